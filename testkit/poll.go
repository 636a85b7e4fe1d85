package testkit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// Interval is how often Eventually looks, and the only pause in the suites. It is short against what a test waits for (a commit, a
// rebalance) and long against what one look costs.
const Interval = 20 * time.Millisecond

// Eventually waits until condition is true, and fails the test when that takes longer than within. The text that condition gives
// tells then what was there instead.
func Eventually(t testing.TB, within time.Duration, what string, condition func() (ok bool, instead string)) {
	t.Helper()
	if err := Poll(within, what, condition); err != nil {
		t.Fatal(err)
	}
}

// Poll is Eventually where there is no test.
func Poll(within time.Duration, what string, condition func() (ok bool, instead string)) error {
	deadline := time.Now().Add(within)
	for {
		ok, instead := condition()
		if ok {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %s; instead: %s", within, what, instead)
		}
		time.Sleep(Interval)
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
