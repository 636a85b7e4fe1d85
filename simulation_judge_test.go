package main

import (
	"context"
	"slices"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kfake"
)

// checkReady is told that a pod says that it is ready. When that is for the first time, it has to be a member of its group; who was one
// for longer may have been expelled while it could not be told.
func (s *simulation) checkReady(pod *instance) {
	const sessionTimeout = 45 * time.Second
	first := !pod.wasReady.Swap(true)
	group := s.cluster.GroupInfo("pipe.echo.in")
	switch {
	case !first || time.Since(pod.started) >= sessionTimeout || s.expelling.Load() || pod.dead.Load():
	case group == nil || len(group.Members) == 0:
		s.t.Errorf("%s is ready, and its group has no member", pod.host)
	case pod.pod != "" && !slices.ContainsFunc(group.Members, func(m kfake.GroupMember) bool { return m.InstanceID != nil && *m.InstanceID == pod.pod+".in" }):
		s.t.Errorf("%s is ready, and no member of its group", pod.host)
	}
}

// watchCommits looks at what is committed after each commit until ctx ends: nobody may rewind a partition.
func (s *simulation) watchCommits(ctx context.Context) {
	last := map[int32]int64{}
	for {
		select {
		case <-s.commitSeen:
		case <-ctx.Done():
			return
		}
		group := s.cluster.GroupInfo("pipe.echo.in")
		if group == nil {
			continue
		}
		for p, commit := range group.Commits["in"] {
			if commit.Offset < last[p] && time.Now().UnixNano() > s.mayGoBack.Load() {
				s.t.Errorf("after %s the commit of in/%d went back from %d to %d", time.Since(s.began), p, last[p], commit.Offset)
			}
			last[p] = commit.Offset
		}
	}
}

// poison has every process fail one partition for two minutes in which nothing else fails: the others have to go on.
func (s *simulation) poison() {
	if s.partitions == 1 {
		return
	}
	undisturbed := false
	s.quiet(func() {
		for _, remove := range s.misbehaviour {
			remove()
		}
		undisturbed = s.heals(time.Minute) && len(s.cluster.GroupInfo("pipe.echo.in").Members) == len(s.alive())
	})
	if !undisturbed {
		return
	}
	poisoned := s.rand.Int32N(s.partitions)
	s.note("every batch of in/%d is failed for two minutes", poisoned)
	for _, pod := range s.alive() {
		defer pod.process.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.OfPartition("in", poisoned)})()
	}
	time.Sleep(90 * time.Second)
	ends, _ := s.offsets()
	time.Sleep(30 * time.Second)
	_, committed := s.offsets()
	for tp, end := range ends {
		if tp.Partition != poisoned && committed[tp] < end {
			s.t.Errorf("in/%d is poisoned, and %s is not read on: its end was %d 30s ago, committed is %d", poisoned, tp, end, committed[tp])
		}
	}
}
