package main

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestTheGarbageCollectorIsToldTheContainersMemoryLimitUnlessOneIsGiven(t *testing.T) {
	const v2, v1, none = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes", math.MaxInt64
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for name, tt := range map[string]struct {
		files map[string]string
		given string
		want  int64
	}{
		"version 2":           {map[string]string{v2: "134217730\n"}, "", 120795957},
		"version 1":           {map[string]string{v1: "134217730\n"}, "", 120795957},
		"without a limit":     {map[string]string{v2: "max\n"}, "", none},
		"without a container": {nil, "", none},
		"GOMEMLIMIT is given": {map[string]string{v2: "134217730\n"}, "1GiB", none},
	} {
		files := newMemFiles()
		for file, text := range tt.files {
			files.write(file, []byte(text))
		}
		debug.SetMemoryLimit(none)
		limitMemory(files, func(string) (string, bool) { return tt.given, tt.given != "" })
		if got := debug.SetMemoryLimit(-1); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
