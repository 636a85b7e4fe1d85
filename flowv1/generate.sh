#!/bin/sh
# Regenerates this package from ankka/flow/v1/*.proto: `go generate ./flowv1`. Needs protoc; its plugins are tools of go.mod.
set -eu
plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
GOBIN=$plugins go install google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
PATH=$plugins:$PATH protoc --proto_path=. \
  --go_out=. --go_opt=module=github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1 \
  --go-grpc_out=. --go-grpc_opt=module=github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1 \
  ankka/flow/v1/payload.proto ankka/flow/v1/discovery.proto ankka/flow/v1/streamlet.proto
# The compiler's version is not part of the protocol: without it any protoc gives the same files.
sed -i -E '/^\/\/ (- )?[[:space:]]*protoc +v/d' ./*.pb.go
