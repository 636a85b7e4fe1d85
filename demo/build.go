package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

const modulePath = "github.com/thinkmorestupidless/ankka-flow-sidecar"

// buildSidecar builds the sidecar into dir and returns the path of its binary. In a checkout it builds that; a demo that was run by its
// module path, as module@version, gets the sidecar of the same version.
func buildSidecar(ctx context.Context, dir string) (string, error) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return "", errors.New("there is no 'go' in PATH, with which the sidecar is built: install Go 1.26 or later, or name a sidecar that is built already with -sidecar FILE")
	}
	binary := filepath.Join(dir, "ankka-flow-sidecar")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	args, env := []string{"build", "-o", binary, modulePath}, os.Environ()
	if here, _ := goOutput(ctx, goCommand, os.Environ(), "list", "-f", "{{.Module.Main}}", modulePath); here != "true" {
		version := ownVersion()
		if version == "" {
			return "", fmt.Errorf("the sidecar's source is not here: run the demo in a checkout of %s, or name a sidecar that is built already with -sidecar FILE", modulePath)
		}
		args, env = []string{"install", modulePath + "@" + version}, append(env, "GOBIN="+dir)
	}
	if out, err := goOutput(ctx, goCommand, env, args...); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("the sidecar could not be built (go %s):\n%s", strings.Join(args, " "), out)
	}
	return binary, nil
}

// ownVersion is the version that the demo was installed as; empty for one that was built in a checkout.
func ownVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Path != modulePath || info.Main.Version == "(devel)" {
		return ""
	}
	for _, setting := range info.Settings {
		if strings.HasPrefix(setting.Key, "vcs") {
			return "" // built in a checkout: that version need not be published
		}
	}
	return info.Main.Version
}

// goOutput runs the go command, which ends what it has started itself when it is interrupted.
func goOutput(ctx context.Context, goCommand string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, goCommand, args...)
	cmd.Env = env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		out = failed.Stderr // kept apart: on a machine with an empty module cache it also tells of each download
	}
	return strings.TrimSpace(string(out)), err
}
