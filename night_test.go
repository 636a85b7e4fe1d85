package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

// TestTheLogOfABadNightIsShortAndTellsTheStory plays a poisoned record, a process that is away, a broker that is down, records
// lost to retention and a rebalance storm, one after another, and looks at the log of the sidecar that lived through all.
func TestTheLogOfABadNightIsShortAndTellsTheStory(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		b.produce(400)
		b.awaitCaughtUp(time.Minute)
		var alerts []string
		look := func(name string, fires bool) {
			if fires {
				alerts = append(alerts, name)
			}
		}

		remove := b.process.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", 1, 150), Text: "cannot decode the cart"})
		b.produce(400)
		time.Sleep(6 * time.Minute)
		look("FlowPartitionStalled", s.scrape().value(ours+"stalled_seconds", "1") > 300)
		remove()
		b.awaitCaughtUp(5 * time.Minute)
		look("FlowPartitionStalled cleared", s.scrape().value(ours+"stalled_seconds", "1") == 0)

		b.process.Close()
		time.Sleep(3 * time.Minute)
		look("FlowNotReady", s.scrape().value(ours+"ready") == 0)
		time.Sleep(2 * time.Minute)
		b.startProcess()
		s.awaitReady()
		look("FlowNotReady cleared", s.scrape().value(ours+"ready") == 1)

		for _, address := range b.cluster.ListenAddrs() {
			b.net.kill(address)
		}
		time.Sleep(3 * time.Minute)
		look("broker: FlowNotReady", s.scrape().value(ours+"ready") == 0)
		for _, address := range b.cluster.ListenAddrs() {
			b.net.revive(address)
		}
		testkit.Eventually(t, 5*time.Minute, "ready", func() (bool, string) { return s.ready(), "" })

		b.process.Close()
		time.Sleep(time.Minute)
		b.produce(400)
		ends, _ := b.offsets()
		b.deleteBefore(2, ends[testkit.TopicPartition{Topic: "in", Partition: 2}]-10)
		b.startProcess()
		b.awaitCaughtUp(5 * time.Minute)
		look("FlowRecordsLost", s.scrape().value(ours+"retention_lost_records_total", "2") > 0)

		for range 8 {
			pod := b.startPod()
			pod.awaitReady()
			pod.stop()
		}
		b.produce(100)
		b.awaitCaughtUp(5 * time.Minute)
		s.stop()

		want := []string{"FlowPartitionStalled", "FlowPartitionStalled cleared", "FlowNotReady", "FlowNotReady cleared", "broker: FlowNotReady", "FlowRecordsLost"}
		if !slices.Equal(alerts, want) {
			t.Errorf("alerts %q, not %q", alerts, want)
		}
		lines := s.logged()
		checkLog(t, s.log.String())
		t.Logf("%d lines", len(lines))
		if len(lines) >= 200 {
			t.Errorf("%d lines", len(lines))
		}
		at := 0
		for _, part := range []string{"partitions assigned", "cannot decode the cart", "PartitionStalled", "discovery: no answer yet", "readiness ready=true", "records were removed by retention", "partitions revoked", "stopped"} {
			next := slices.IndexFunc(lines[at:], func(line string) bool { return strings.Contains(line, part) })
			if next < 0 {
				t.Errorf("after line %d nothing tells of %q", at, part)
				continue
			}
			at += next
		}
	})
}
