package main

import (
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory has Go collect garbage harder near nine tenths of the container's memory limit, so that a peak costs processor
// time and not the pod. The rest is for what the kernel counts beside Go's memory. A GOMEMLIMIT that is given stays.
func limitMemory(files files, lookupEnv func(string) (string, bool)) {
	if _, given := lookupEnv("GOMEMLIMIT"); given {
		return
	}
	if limit, ok := containerMemory(files); ok {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}

// containerMemory is the container's memory limit in bytes, by the cgroups of version 2 or 1. Without one the former says
// "max", and the latter nearly 2^63.
func containerMemory(files files) (limit int64, ok bool) {
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := files.ReadFile(name)
		if err != nil {
			continue
		}
		limit, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return limit, err == nil && limit > 0
	}
	return 0, false
}
