package main

import (
	"context"
	"fmt"
	"time"
)

const (
	watchdogPatience = 2 * time.Minute  // without any progress while there is something to do
	watchdogLook     = 10 * time.Second // between looks; also how fresh a log's end must be to count
)

// watchProgress fails the conversation when an inlet stands still for no reason: records are there to be read, none is with
// the process, nothing is being written, held or paused, and the brokers answer. No such state is meant to exist; if one
// does all the same, everything is rewound to the last commits. A slow process never looks like it.
func (c *conversation) watchProgress(ctx context.Context) error {
	tick := time.NewTicker(watchdogLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		c.mu.Lock()
		out := len(c.withProcess)
		c.mu.Unlock()
		if out > 0 {
			continue
		}
		for _, in := range c.inlets {
			if partition, behind, still := in.standsStill(c); behind > 0 {
				f := &failure{cause: fmt.Errorf("inlet '%s' stands still: partition %d is %d records behind, nothing is with the process, and nothing has moved for %s",
					in.cfg.Name, partition, behind, still.Round(time.Second))}
				c.fail(f)
				return f
			}
		}
	}
}

// standsStill names a partition that could move and has not for watchdogPatience; behind is 0 when there is none.
func (in *inlet) standsStill(c *conversation) (partition int32, behind int64, still time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	still = time.Since(in.progressed)
	if in.conversation != c || still < watchdogPatience || time.Since(in.endsRead) > watchdogLook || time.Since(in.denied) <= watchdogLook {
		return 0, 0, 0
	}
	for p, a := range in.held {
		if a.acknowledged != nil || a.writing != nil || a.committing || a.leaving {
			return 0, 0, 0 // something is on its way; a write that hangs has a watch of its own
		}
		if lag := a.lag(); lag > behind && !a.paused && a.heldUntil.IsZero() {
			partition, behind = p, lag
		}
	}
	return partition, behind, still
}

// moved notes that something of the inlet has moved on. mu is held.
func (in *inlet) moved() { in.progressed = time.Now() }
