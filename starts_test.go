package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
)

// logged are the lines of s that have every part.
func (s *instance) logged(parts ...string) (lines []string) {
	for line := range strings.Lines(s.log.String()) {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(line, part)
		}
		if has {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestTheLineOfAnAssignmentSaysWhereEachPartitionStartsAndWhy(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		if lines := s.logged("partitions assigned", "inlet=in", "topic=in", "partitions=0-2", "from_auto_offset_reset_earliest=0@0,1@0,2@0"); len(lines) != 1 {
			t.Errorf("%d lines of a new group; the log:\n%s", len(lines), s.log)
		}
		remove := b.process.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", 1, 57)})
		b.produce(600)
		time.Sleep(10 * time.Minute)
		_, committed := b.offsets()
		s.stop()
		remove()
		s = b.start()
		s.awaitReady()
		first, third := committed[testkit.TopicPartition{Topic: "in"}], committed[testkit.TopicPartition{Topic: "in", Partition: 2}]
		want := "from_commit=" + startList([]start{{2, third}, {0, first}, {1, 57}})
		if lines := s.logged("partitions assigned", want); len(lines) != 1 || !strings.Contains(want, ",1@57,") {
			t.Errorf("%d lines with %s; the log:\n%s", len(lines), want, s.log)
		}
	})
}

func TestAGroupWhoseCommitsAreGoneIsToldLoudly(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		b.produce(100)
		b.awaitCaughtUp(time.Minute)
		b.process.Close()
		time.Sleep(2 * time.Minute) // the member leaves the group
		if err := b.kafka.Admin(func(admin *kadm.Client) error {
			_, err := admin.DeleteGroup(context.Background(), "pipe.echo.in")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		b.startProcess()
		s.awaitReady()
		if lines := s.logged("level=ERROR", "the group's commit is gone", "partition=0", "committed=100", "policy=earliest"); len(lines) != 1 {
			t.Errorf("%d lines; the log:\n%s", len(lines), s.log)
		}
	})
}

func TestATopicThatIsCreatedAnewIsToldLoudly(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		b.produce(100)
		b.awaitCaughtUp(time.Minute)
		if err := b.kafka.Admin(func(admin *kadm.Client) error {
			_, err := admin.DeleteTopics(context.Background(), "in")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := b.kafka.Create(context.Background(), "in", 1, 1, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if lines := s.logged("level=ERROR", "deleted and created again", "partition=0", "offset=100"); len(lines) != 1 {
			t.Errorf("%d lines; the log:\n%s", len(lines), s.log)
		}
	})
}
