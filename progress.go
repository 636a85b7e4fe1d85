package main

import (
	"context"
	"time"
)

const (
	progressInterval = time.Minute
	farBehind        = 1000 // records; fewer are no backlog, however slow the process is
)

// reportProgress logs once a minute, for each inlet that is far behind, how fast it goes and when it will have caught up. An
// inlet that stands still says nothing here: the failure or the stall does. It returns when ctx ends.
func reportProgress(ctx context.Context, inlets []*inlet) {
	before := make([]map[int32]progressPoint, len(inlets))
	for wait(ctx, progressInterval) {
		for i, in := range inlets {
			before[i] = in.logProgress(before[i])
		}
	}
}

// progressPoint is where a partition was at the last look.
type progressPoint struct{ confirmed, lag int64 }

// logProgress compares the held partitions with where they were a progressInterval before, and returns where they are.
func (in *inlet) logProgress(before map[int32]progressPoint) map[int32]progressPoint {
	now := map[int32]progressPoint{}
	var lag, done, gained int64 // gained is by how much the lag is less
	in.mu.Lock()
	for p, a := range in.held {
		at := progressPoint{a.confirmed, a.lag()}
		now[p] = at
		lag += at.lag
		if was, held := before[p]; held && was.confirmed >= 0 && at.confirmed >= was.confirmed { // not gone back by a failure
			done += at.confirmed - was.confirmed
			gained += was.lag - at.lag
		}
	}
	in.mu.Unlock()
	if lag < farBehind || done == 0 || lag <= done { // the last: less than an interval's work is left
		return now
	}
	perSecond := done / int64(progressInterval/time.Second)
	if gained <= 0 {
		in.log.Info("falling behind", "lag", lag, "records_per_second", perSecond, "lag_grew", -gained)
		return now
	}
	const longest = float64(10 * 365 * 24 * time.Hour)
	left := time.Duration(min(float64(progressInterval)*float64(lag)/float64(gained), longest)).Round(time.Second)
	in.log.Info("catching up", "lag", lag, "records_per_second", perSecond, "caught_up_in", left)
	return now
}
