package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// starts tells of each partition what is retained and where reading would start, and how long that stays so.
func (c *inletCheck) starts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkAskWithin)
	defer cancel()
	topic := c.cfg.Topic
	reset := c.cfg.Consumer.OffsetReset
	logStarts, ends, resolved, err := listStarts(ctx, c.admin, topic, reset, readsCommitted(c.client))
	if err != nil || logStarts.Error() != nil || ends.Error() != nil {
		c.problem("where the partitions of %s begin and end cannot be read: %v", topicName(topic), cmp.Or(err, logStarts.Error(), ends.Error()))
		return
	}
	commits, known := c.commits(ctx)
	var partitions []int32
	for partition := range logStarts[topic] {
		partitions = append(partitions, partition)
	}
	slices.Sort(partitions)

	next := map[int32]int64{} // where reading would start
	var committed int
	var behind int64
	for i, p := range partitions {
		start, end := logStarts[topic][p].Offset, ends[topic][p].Offset
		commit, has := commits[p]
		said := fmt.Sprintf("partition %d retains %d to %d", p, start, end)
		switch {
		case has && commit < start:
			c.problem("%s, but %d is committed: retention removed %d offsets before they were read; reading would go on at %d", said, commit, start-commit, start)
			next[p] = start
		case has && commit > end:
			c.problem("%s, but %d is committed: the topic was truncated or created anew; reading would start at %d, as for a new topic", said, commit, start)
			next[p] = start
		case has:
			next[p] = commit
			c.few(i, len(partitions), "%s, %d is committed: %d to read", said, commit, end-commit)
		case !known:
			c.few(i, len(partitions), "%s", said)
			continue
		case reset.Policy == "none":
			c.problem("%s", noStart(p))
			continue
		default:
			next[p] = max(start, resolved[topic][p].Offset)
			c.few(i, len(partitions), "%s, nothing is committed: reading would start at %d (auto.offset.reset=%s)", said, next[p], reset.Policy)
		}
		if has {
			committed++
		}
		behind += end - next[p]
	}
	if known {
		c.ok("%d of %s are committed, %s to read in all", committed, counted(len(partitions), "partition"), counted(int(behind), "offset"))
	}
	c.retention(ctx, next, ends)
	c.commitsAge(ctx, commits)
}

// few says something of a partition that is fine, unless it is one of very many.
func (c *inletCheck) few(i, of int, format string, values ...any) {
	const most = 24
	if i < most {
		c.ok(format, values...)
	} else if i == most {
		c.ok("and %d partitions more that are not listed", of-most)
	}
}

// commits are the group's, by partition. known says that they could be read.
func (c *inletCheck) commits(ctx context.Context) (commits map[int32]int64, known bool) {
	if c.uncommitted || !c.committable {
		return nil, c.uncommitted
	}
	fetched, err := c.admin.FetchOffsetsForTopics(ctx, c.cfg.Group, c.cfg.Topic)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		c.problem("the commits of %s cannot be read: %v", groupName(c.cfg.Group), err)
		return nil, false
	}
	commits = map[int32]int64{}
	for partition, offset := range fetched[c.cfg.Topic] {
		switch {
		case offset.Err != nil:
			c.problem("the commit of %s for partition %d cannot be read: %v", groupName(c.cfg.Group), partition, offset.Err)
			return nil, false
		case offset.At >= 0:
			commits[partition] = offset.At
		}
	}
	return commits, true
}

// retention tells when what is not read yet will be gone: next is where reading would start.
func (c *inletCheck) retention(ctx context.Context, next map[int32]int64, ends kadm.ListedOffsets) {
	millis, ok := configNumber(c.configs, "retention.ms")
	deletes := c.configs["cleanup.policy"]
	switch {
	case !ok:
		return
	case millis < 0 || deletes == "compact":
		c.ok("no record is removed for its age (retention.ms=%d, cleanup.policy=%s)", millis, deletes)
		return
	}
	retention := time.Duration(millis) * time.Millisecond
	older := c.notAfter(ctx, retention/2, next, func(p int32, from, young int64) bool { return from < young && from < ends[c.cfg.Topic][p].Offset })
	switch {
	case older == nil:
	case len(older) > 0:
		c.warn("retention.ms is %v, and of partitions %s records that are not read yet are older than half of it: they will be removed within %v; start reading, or raise retention.ms",
			retention, partitionList(older), retention-retention/2)
	default:
		c.ok("retention.ms is %v: nothing that is not read yet is older than half of it", retention)
	}
	if bytes, ok := configNumber(c.configs, "retention.bytes"); ok && bytes >= 0 {
		c.ok("retention.bytes is %d: records may be removed earlier", bytes)
	}
}

// commitsAge tells whether the group's commits may expire. Kafka does not say when a commit was made: only that it is
// younger than the records below it.
func (c *inletCheck) commitsAge(ctx context.Context, commits map[int32]int64) {
	if c.keeps == 0 {
		return
	}
	if reset := c.cfg.Consumer.OffsetReset.Policy; reset != "earliest" {
		c.warn("the brokers forget the commits of a group without members after offsets.retention.minutes (%v): a sidecar that was stopped for longer starts by auto.offset.reset=%s; "+
			"raise offsets.retention.minutes beyond the longest stop, or choose earliest", c.keeps, reset)
	}
	if !c.empty || len(commits) == 0 {
		return
	}
	old := c.notAfter(ctx, c.keeps/2, commits, func(_ int32, commit, young int64) bool { return commit <= young })
	switch {
	case old == nil:
	case len(old) == len(commits):
		c.warn("the group has no members, and no record that it has committed is younger than %v: its commits expire %v after the last member left (offsets.retention.minutes), which may be soon, "+
			"and reading then starts by auto.offset.reset=%s; start the sidecar before", c.keeps/2, c.keeps, c.cfg.Consumer.OffsetReset.Policy)
	default:
		c.ok("the group has no members, but has committed a record of the last %v: the brokers keep its commits for offsets.retention.minutes (%v)", c.keeps/2, c.keeps)
	}
}

// notAfter returns of which partitions the offset is that of an old record: is is called with it and with the first offset
// that is younger than age, or the log's end. It returns nil when the brokers do not tell.
func (c *inletCheck) notAfter(ctx context.Context, age time.Duration, offsets map[int32]int64, is func(partition int32, offset, young int64) bool) []int32 {
	listed, err := c.admin.ListOffsetsAfterMilli(ctx, time.Now().Add(-age).UnixMilli(), c.cfg.Topic)
	if err != nil {
		return nil
	}
	old := []int32{}
	for p, offset := range offsets {
		if young, ok := listed.Lookup(c.cfg.Topic, p); ok && young.Err == nil && is(p, offset, young.Offset) {
			old = append(old, p)
		}
	}
	return old
}
