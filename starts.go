package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// listStarts asks where each partition of a topic begins and ends, and where one without a commit is to be read from. err is
// that of the last. committed says that the log ends where a transaction is open.
func listStarts(ctx context.Context, admin *kadm.Client, topic string, reset OffsetReset, committed bool) (logStarts, ends, resolved kadm.ListedOffsets, err error) {
	logStarts, startErr := admin.ListStartOffsets(ctx, topic)
	ends, endErr := listEnds(ctx, admin, topic, committed)
	switch reset.Policy {
	case "latest":
		return logStarts, ends, ends, endErr
	case "by_duration":
		resolved, err = admin.ListOffsetsAfterMilli(ctx, time.Now().Add(-reset.Ago).UnixMilli(), topic)
		return logStarts, ends, resolved, err
	}
	return logStarts, ends, logStarts, startErr
}

// startOffsets resolves where each newly assigned partition begins, and returns it. offsets hold the group's commits, or
// -2 where it has none. kgo calls it with a context that ends with the group session.
func (m *membership) startOffsets(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	in := m.inlet
	topic := in.cfg.Topic
	in.mu.Lock()
	client := m.client
	in.mu.Unlock()
	admin := kadm.NewClient(client)
	reset := in.cfg.Consumer.OffsetReset
	logStarts, ends, resolved, err := listStarts(ctx, admin, topic, reset, m.readsCommitted)
	in.mu.Lock()
	defer in.mu.Unlock()
	var told starts
	for p, offset := range offsets[topic] {
		a := in.held[p]
		if a == nil {
			continue
		}
		if start, ok := logStarts.Lookup(topic, p); ok && start.Err == nil {
			a.logStart = start.Offset
		}
		if end, ok := ends.Lookup(topic, p); ok && end.Err == nil {
			a.logEnd = end.Offset
		}
		committed := offset.EpochOffset().Offset
		if committed >= 0 {
			m.beginAtCommit(a, committed)
			told.add(p, a.position, "commit")
			offsets[topic][p] = kgo.NewOffset().At(a.position)
			continue
		}
		in.commitMissing(a)
		policy := reset.Policy
		start, ok := resolved.Lookup(topic, p)
		switch {
		case policy == "none":
			return nil, errors.New(noStart(p))
		case ok && start.Err == nil && start.Offset >= 0:
			a.beginAt(start.Offset)
			// A crash before the first commit would resolve another start and skip what was read meanwhile.
			a.commitBase = policy != "earliest"
			offsets[topic][p] = kgo.NewOffset().At(start.Offset)
			told.add(p, start.Offset, "auto.offset.reset="+policy)
		case policy != "earliest":
			return nil, fmt.Errorf("partition %d: the offset to start at (%s) could not be read: %w", p, policy, errors.Join(err, start.Err))
		default:
			told.add(p, -1, "auto.offset.reset=earliest")
		}
	}
	for p := range offsets[topic] {
		if a := in.held[p]; a != nil {
			a.started = true
		}
	}
	m.unstarted = false
	told.log(in.log)
	m.joined()
	m.requestCommit()
	return offsets, nil
}

// noStart says that auto.offset.reset=none does not let a partition begin.
func noStart(partition int32) string {
	return fmt.Sprintf("partition %d has no committed offset and auto.offset.reset is none: commit one, or choose earliest or latest", partition)
}

// beginAtCommit begins at the group's commit, and says loudly when what it points at is gone. The inlet's mu is held.
func (m *membership) beginAtCommit(a *assignment, committed int64) {
	log := m.inlet.log.With("committed", committed)
	a.history.committed = committed
	switch {
	case a.logStart > committed:
		a.tellRemoved(log, committed, a.logStart, a.logStart-committed)
		a.beginAt(a.logStart)
	case a.logEnd >= 0 && a.logEnd < committed:
		log.Error("the committed offset is past the log's end: the topic was truncated or created anew; reading starts as for a new topic", "partition", a.partition, "offset", max(0, a.logStart), "log_end", a.logEnd)
		a.beginAt(max(0, a.logStart))
		a.commitBase = true // the old commit is above everything that will be read
	default:
		a.beginAt(committed)
	}
}

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
