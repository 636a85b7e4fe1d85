package main

import (
	"cmp"
	"runtime/debug"
	"strings"
	"unicode"
	"unicode/utf8"
)

// protocolVersion is what this sidecar speaks, MAJOR.MINOR of ankka.flow.v1.
const protocolVersion = "1.0"

// version is the sidecar's own, stamped by the build with -ldflags "-X main.version=…".
var version = "dev"

// commit is what the build was made of, stamped with -ldflags "-X main.commit=…".
var commit = ""

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

// clientVersion is a version as brokers take it from a client: they refuse every request of one whose version has other
// characters, such as the + of a build from a changed working copy.
func clientVersion(version string) string {
	version = strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.') {
			return r
		}
		return '-'
	}, version)
	return cmp.Or(strings.Trim(version, "-."), "unknown")
}

// sidecarCommit is the stamped commit, else the one that the go command recorded in a working copy.
func sidecarCommit() string {
	if commit != "" {
		return commit
	}
	recorded := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			recorded[setting.Key] = setting.Value
		}
	}
	switch revision := recorded["vcs.revision"]; {
	case revision == "":
		return "unknown"
	case recorded["vcs.modified"] == "true":
		return revision + " (changed)"
	default:
		return revision
	}
}
