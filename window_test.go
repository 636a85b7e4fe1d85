package main

import (
	"math"
	"testing"
	"time"
)

func TestAWindowIsTheJavaClients(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%s is %v, not %v", what, got, want)
		}
	}
	w := &window{}
	near("the rate of nothing", w.rate(at(0)), 0)
	near("the average of nothing", w.average(at(0)), math.NaN())
	for second := range 30 {
		w.record(at(second), 100)
	}
	near("a rate within the first sample, over a whole one more", w.rate(at(10)), 3000.0/40)
	near("a rate after one sample", w.rate(at(30)), 3000.0/30)
	w.record(at(30), 400) // the second sample
	near("the average over both", w.average(at(31)), 3400.0/31)
	_, greatest := w.extremes(at(59))
	near("the greatest of both", greatest, 400)
	near("a rate over both", w.rate(at(59)), 3400.0/59)
	near("a rate without the first, which is too old", w.rate(at(60)), 400.0/30)
	w.record(at(61), 7) // in place of the first
	least, greatest := w.extremes(at(62))
	near("the least", least, 7)
	near("the greatest", greatest, 400)
	_, greatest = w.extremes(at(90))
	near("the greatest when 400 is too old", greatest, 7)
	near("a rate long after", w.rate(at(1000)), 0)
	near("an average long after", w.average(at(1000)), math.NaN())
}
