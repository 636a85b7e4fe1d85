package main

import "runtime/debug"

// protocolVersion is what this sidecar speaks, MAJOR.MINOR of ankka.flow.v1.
const protocolVersion = "1.0"

// version is the sidecar's own, stamped by the build with -ldflags "-X main.version=…".
var version = "dev"

// sidecarVersion is the stamped version, else the one that the go command recorded for an installed module.
func sidecarVersion() string {
	if version != "dev" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return version
}
