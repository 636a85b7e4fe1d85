package main

import (
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// night is a sidecar under steady load that is scraped as Prometheus does it, while one thing after another goes wrong.
type night struct {
	*bed
	sidecar  *instance
	loader   *kgo.Client
	load     int // records each loadInterval
	loaded   time.Time
	retained int64 // records below the committed offset that retention leaves, while it is not 0
	began    time.Time
	scrapes  []timedScrape
	chapters []chapter
}

const (
	loadInterval   = 10 * time.Second
	scrapeInterval = 15 * time.Second
)

// timedScrape is what the metrics port answered at a time of the night.
type timedScrape struct {
	at   time.Duration
	text []byte
}

// chapter is a part of the night in which one thing is wrong.
type chapter struct {
	name       string
	begin, end time.Duration
}

// pass lets time pass, with load and scrapes.
func (n *night) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if time.Since(n.loaded) >= loadInterval {
			n.loaded = time.Now()
			if n.load > 0 {
				n.tryProduce(n.loader, n.load)
			}
			if n.retained > 0 {
				n.trim()
			}
		}
		if now := time.Since(n.began); len(n.scrapes) == 0 || now-n.scrapes[len(n.scrapes)-1].at >= scrapeInterval {
			n.scrapes = append(n.scrapes, timedScrape{now, n.sidecar.scrapeText()})
		}
		time.Sleep(min(time.Second, max(0, time.Until(end))))
	}
}

// trim is a retention so short that it nearly reaches what is committed.
func (n *night) trim() {
	_, committed := n.offsets()
	n.deleteBefore(2, committed[testkit.TopicPartition{Topic: "in", Partition: 2}]-n.retained)
}

// chapter plays one, and then lets an interval pass in peace.
func (n *night) chapter(name string, play func(), peace time.Duration) {
	c := chapter{name: name, begin: time.Since(n.began)}
	play()
	c.end = time.Since(n.began)
	n.chapters = append(n.chapters, c)
	n.pass(peace)
}

// The chapters.
const (
	poisonedRecord = "a poisoned record"
	processAway    = "the process is away"
	brokerDown     = "the broker is down"
	recordsLost    = "retention takes records"
	rebalanceStorm = "a rebalance storm"
	crashLoop      = "the process crashes again and again"
	commitsRefused = "commits are refused"
	slowProcess    = "the process is too slow"
	shortRetention = "retention comes near"
)

// playNight is a night in virtual time in which everything happens that an alert is about, but the expiry of a certificate.
func playNight(t *testing.T) (n *night) {
	inBubble(t, 4, func(t *testing.T, b *bed) {
		n = &night{bed: b, sidecar: b.start(), loader: b.newLoader(), load: 50, began: time.Now()}
		defer n.loader.Close()
		n.sidecar.awaitReady()
		n.pass(10 * time.Minute)

		n.chapter(poisonedRecord, func() {
			ends, _ := b.offsets()
			at := ends[testkit.TopicPartition{Topic: "in", Partition: 1}] + 10
			remove := b.process.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", 1, at), Text: "cannot decode the cart"})
			n.pass(7 * time.Minute)
			remove()
		}, 20*time.Minute)

		n.chapter(processAway, func() {
			b.process.Close()
			n.pass(5 * time.Minute)
			b.startProcess()
		}, 10*time.Minute)

		n.chapter(brokerDown, func() {
			for _, address := range b.cluster.ListenAddrs() {
				b.net.kill(address)
			}
			n.load = 0
			n.pass(3 * time.Minute)
			n.load = 50
			for _, address := range b.cluster.ListenAddrs() {
				b.net.revive(address)
			}
		}, 10*time.Minute)

		n.chapter(recordsLost, func() {
			b.process.Close()
			n.pass(20 * time.Second)
			ends, _ := b.offsets()
			b.deleteBefore(2, ends[testkit.TopicPartition{Topic: "in", Partition: 2}]-10)
			b.startProcess()
		}, 5*time.Minute)

		n.chapter(rebalanceStorm, func() {
			for range 4 {
				pod := b.startPod()
				pod.awaitReady()
				n.pass(10 * time.Second)
				pod.stop()
				n.pass(10 * time.Second)
			}
		}, 5*time.Minute)

		n.chapter(slowProcess, func() {
			remove := b.process.Inject(testkit.Fault{Do: testkit.Obey, Delay: 30 * time.Second})
			n.load = 300
			n.pass(11 * time.Minute)
			n.load = 50
			remove()
		}, 15*time.Minute)

		n.chapter(commitsRefused, func() {
			var left atomic.Int64
			left.Store(1 << 40)
			b.refuseCommitsWhile(&left, kerr.RequestTimedOut)
			n.pass(3 * time.Minute)
			left.Store(0)
		}, 15*time.Minute)

		n.chapter(crashLoop, func() {
			remove := b.process.Inject(testkit.Fault{Do: testkit.DieAfterEmits})
			n.pass(6 * time.Minute)
			remove()
		}, 20*time.Minute)

		n.chapter(shortRetention, func() {
			n.retained = 20
			n.pass(15 * time.Minute)
			n.retained = 0
			n.load = 100 // which moves what is committed away from the log's start
		}, 30*time.Minute)
		n.sidecar.stop()
	})
	return n
}

// TestABadNight looks at what an operator has of a night: the log, and what Prometheus makes of the scrapes.
func TestABadNight(t *testing.T) {
	n := playNight(t)
	t.Run("its log is short and tells the story", n.logTellsTheStory)
	for _, tool := range []string{"promtool", "prometheus"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v: what Prometheus makes of the night is not looked at", err)
		}
	}
	t.Run("each alert fires within its time and clears", n.alertsFireAndClear)
	t.Run("Prometheus has no complaint about a scrape", n.scrapesAreClean)
	t.Run("each query of the dashboard has an answer", n.dashboardHasAnswers)
}

func (n *night) logTellsTheStory(t *testing.T) {
	log := n.sidecar.log.String()
	checkLog(t, log)
	lines := slices.Collect(strings.Lines(log))
	t.Logf("%d lines", len(lines))
	if len(lines) >= 200 {
		t.Errorf("%d lines", len(lines))
	}
	story := []struct{ chapter, tells string }{
		{"", "partitions assigned"}, {"", "readiness ready=true"},
		{poisonedRecord, "cannot decode the cart"}, {poisonedRecord, "the conversation failed again"}, {poisonedRecord, "partition held back"}, {poisonedRecord, "PartitionStalled"}, {"", "the conversation lasts"}, {"", "readiness ready=true"},
		{processAway, "readiness ready=false"}, {processAway, "discovery: no answer yet"}, {"", "readiness ready=true"},
		{brokerDown, "partitions lost"}, {brokerDown, "unreachable"}, {"", "the trouble with broker"}, {"", "readiness ready=true"},
		{recordsLost, "discovery: no answer yet"}, {"", "records were removed by retention"},
		{rebalanceStorm, "partitions revoked"}, {rebalanceStorm, "partitions assigned"},
		{commitsRefused, "offsets could not be committed"}, {commitsRefused, "the conversation failed"},
		{crashLoop, "the process went away"}, {crashLoop, "the conversation failed again"}, {crashLoop, "PartitionStalled"}, {"", "the conversation lasts"}, {"", "readiness ready=true"},
		{"", "stopped"},
	}
	at := 0
	for _, part := range story {
		next := slices.IndexFunc(lines[at:], func(line string) bool { return strings.Contains(line, part.tells) })
		if next < 0 {
			t.Errorf("after line %d nothing tells of %q", at, part.tells)
			continue
		}
		at += next
		when, err := time.Parse(time.RFC3339, logFields(lines[at])["time"])
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range n.chapters {
			if c.name == part.chapter && (when.Before(n.began.Add(c.begin).Truncate(time.Millisecond)) || when.After(n.began.Add(c.end))) {
				t.Errorf("%q is told at %s, not from %s to %s, while %s", part.tells, when.Sub(n.began), c.begin, c.end, c.name)
			}
		}
	}
	if t.Failed() {
		t.Logf("the log:\n%s", log)
	}
}
