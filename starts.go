package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// starts is where the partitions of one assignment begin, for its line in the log.
type starts struct {
	partitions []int32
	from       map[string][]start // by what says so
}

type start struct {
	partition int32
	offset    int64 // -1 when it is the first that there is
}

func (s *starts) add(partition int32, offset int64, from string) {
	if s.from == nil {
		s.from = map[string][]start{}
	}
	s.partitions = append(s.partitions, partition)
	s.from[from] = append(s.from[from], start{partition, offset})
}

// log writes the line of the assignment: which partitions, and of each where it starts and why there.
func (s *starts) log(log *slog.Logger) {
	if len(s.partitions) == 0 {
		return
	}
	attrs := []any{"partitions", partitionList(s.partitions)}
	for _, from := range slices.Sorted(maps.Keys(s.from)) {
		attrs = append(attrs, "from_"+strings.NewReplacer(".", "_", "=", "_").Replace(from), startList(s.from[from]))
	}
	log.Info("partitions assigned", attrs...)
}

// startList writes 0@57,1@60: partition at offset.
func startList(list []start) string {
	slices.SortFunc(list, func(a, b start) int { return cmp.Compare(a.partition, b.partition) })
	var text []string
	for _, s := range list {
		if s.offset < 0 {
			text = append(text, fmt.Sprint(s.partition))
		} else {
			text = append(text, fmt.Sprintf("%d@%d", s.partition, s.offset))
		}
	}
	return strings.Join(text, ",")
}

// commitMissing says loudly when the group had committed the partition, as this sidecar saw, and now has no commit of it.
// The inlet's mu is held.
func (in *inlet) commitMissing(a *assignment) {
	if before := a.history.committed; before > 0 {
		in.log.Error("the group's commit is gone: reading starts by auto.offset.reset, as for a new group", "partition", a.partition,
			"committed", before, "policy", in.cfg.Consumer.OffsetReset.Policy)
		a.history.committed = 0
	}
}
