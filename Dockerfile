# The sidecar's image: docker build --build-arg VERSION=1.2.3 --build-arg COMMIT=$(git rev-parse HEAD) -t ankka-flow-sidecar .
#
# Nothing runs on the platform that is built for, so that any machine builds for any: docker buildx build --platform linux/amd64,linux/arm64 .
FROM busybox:1.37-musl AS commands

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY *.go ./
COPY flowv1 ./flowv1
ARG VERSION=dev
ARG COMMIT
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" -o /image/bin/ankka-flow-sidecar . \
	# The commands of the probes and of the pre-stop hook that the operator renders, and no other.
	&& for command in sh test date stat sleep; do ln -s busybox /image/bin/$command; done \
	&& mkdir -p /image/etc/ssl/certs /image/etc/flow/config /image/tmp \
	&& chmod 1777 /image/tmp \
	&& cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ \
	&& echo 'flow:x:65532:65532::/tmp:/bin/sh' >/image/etc/passwd \
	&& echo 'flow:x:65532:' >/image/etc/group

FROM scratch
COPY --from=commands /bin/busybox /bin/busybox
COPY --from=build /image/ /
# Any other user does as well: the sidecar writes to FLOW_STATE_DIR alone, which is in /tmp by default.
USER 65532:65532
EXPOSE 2050
ENTRYPOINT ["/bin/ankka-flow-sidecar"]
