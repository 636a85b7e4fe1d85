package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run the schedule of faults of this seed alone, in this process")
	simSeeds = flag.Uint64("sim.seeds", 0, "run so many seeds, from sim.first on; 0: as many as fit in sim.for")
	simFirst = flag.Uint64("sim.first", 1, "the first seed")
	simFor   = flag.Duration("sim.for", time.Minute, "how long to run seeds")
	simChild = flag.Bool("sim.child", false, "run the seeds in this process and tell of each in a line")
)

// TestNoScheduleOfFaultsBreaksAPromise runs whole sidecars in virtual time against faults that a seed draws, heals
// everything, and lets the one checker judge. The same seed draws the same faults; the order of goroutines stays random.
//
// The seeds run in processes of their own, since a bubble's clock can stop: kgo holds its consumer's lock while it waits for
// requests, and a goroutine that waits for a lock does not count as idle. Such a seed is given up and counted; it says
// nothing about the sidecar. A clock that another lock stops is a failure.
func TestNoScheduleOfFaultsBreaksAPromise(t *testing.T) {
	if *simSeed != 0 {
		simulate(t, *simSeed)
		return
	}
	if *simChild {
		go watchClock()
		for seed := *simFirst; seed < *simFirst+*simSeeds; seed++ {
			if !t.Run(fmt.Sprint(seed), func(t *testing.T) { simulate(t, seed) }) {
				t.Fatalf("again with: go test -run %s -sim.seed=%d .", t.Name(), seed)
			}
			fmt.Printf("seed %d passed\n", seed)
		}
		return
	}
	var mu sync.Mutex
	next, passed, stopped := *simFirst, 0, 0
	began := time.Now()
	// take reserves the next few seeds for a process.
	take := func() (first, count uint64) {
		mu.Lock()
		defer mu.Unlock()
		count = 20
		if *simSeeds > 0 {
			count = min(count, *simFirst+*simSeeds-next)
		} else if time.Since(began) >= *simFor || t.Failed() {
			count = 0
		}
		first, next = next, next+count
		return first, count
	}
	var slowest atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for first, count := take(); count > 0; first, count = take() {
				p, s := runSeeds(t, first, count, &slowest)
				mu.Lock()
				passed, stopped = passed+p, stopped+s
				if *simSeeds > 0 {
					fmt.Printf("%s: %d seeds passed, of %d the clock stopped\n", time.Since(began).Round(time.Second), passed, stopped)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Logf("%d seeds passed in %s, of %d more the clock stopped", passed, time.Since(began).Round(time.Second), stopped)
	if passed == 0 {
		t.Error("no seed had a verdict")
	}
}

// runSeeds runs seeds in processes of their own, a new one after each whose clock stopped. It is given time by the slowest
// seed that passed so far, in nanoseconds: many times the usual one with the race detector on a busy machine.
func runSeeds(t *testing.T, first, count uint64, slowest *atomic.Int64) (passed, stopped int) {
	patience := func() time.Duration {
		if slowest.Load() == 0 {
			return 90 * time.Second
		}
		return min(90*time.Second, max(15*time.Second, 5*time.Duration(slowest.Load())))
	}
	for last := first + count; first < last; {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-sim.child", fmt.Sprintf("-sim.first=%d", first), fmt.Sprintf("-sim.seeds=%d", last-first))
		child.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400", "GODEBUG=adaptivestackstart=1")
		out, err := child.StdoutPipe()
		if err == nil {
			child.Stderr = child.Stdout
			err = child.Start()
		}
		if err != nil {
			t.Error(err)
			return passed, stopped
		}
		began := time.Now()
		stuck := time.AfterFunc(patience(), func() { _ = child.Process.Kill() })
		var lines []string
		scanner := bufio.NewScanner(out)
		scanner.Buffer(nil, 1<<24)
		for scanner.Scan() {
			lines = append(lines, scanner.Text())
			if strings.HasPrefix(scanner.Text(), "seed ") && strings.HasSuffix(scanner.Text(), " passed") {
				passed++
				first++
				lines = nil
				slowest.Store(max(slowest.Load(), int64(time.Since(began))))
				began = time.Now()
				stuck.Reset(patience())
			}
		}
		err = child.Wait()
		killed := !stuck.Stop()
		switch {
		case child.ProcessState.ExitCode() == exitClockStopped || killed && err != nil:
			stopped++
			first++
		case err != nil:
			t.Errorf("seed %d: %v\n%s", first, err, strings.Join(lines, "\n"))
			first++
		}
	}
	return passed, stopped
}

// exitClockStopped is the exit code of a process of seeds after kgo's lock stopped the bubble's clock.
const exitClockStopped = 75

// watchClock ends the process when the clock of its bubble stopped: it does nothing for some seconds, and goroutines wait
// for locks.
func watchClock() {
	var before time.Duration
	for quiet := 0; quiet < 3; time.Sleep(time.Second) {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			panic(err)
		}
		used := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		if quiet++; used-before > 10*time.Millisecond {
			quiet = 0
		}
		before = used
		if quiet < 3 {
			continue
		}
		stacks := make([]byte, 1<<24)
		stacks = stacks[:runtime.Stack(stacks, true)]
		switch locked, known := readStacks(string(stacks)); {
		case len(locked) == 0:
			quiet = 0 // it was not given the processor
		case known:
			os.Exit(exitClockStopped)
		default:
			fmt.Printf("the clock stopped, of a lock that is not known to do so:\n%s\n", stacks)
			os.Exit(1)
		}
	}
}

// readStacks returns the goroutines that wait for a lock, and whether kgo is known to hold it: while it ends a consumer's session,
// or asks for a producer id.
func readStacks(stacks string) (locked []string, known bool) {
	for goroutine := range strings.SplitSeq(stacks, "\n\n") {
		state, _, _ := strings.Cut(goroutine, "\n")
		if strings.Contains(state, "[sync.Mutex.Lock") || strings.Contains(state, "[sync.RWMutex.") {
			locked = append(locked, goroutine)
		}
		known = known || strings.Contains(goroutine, "kgo.(*consumer).stopSession(") || strings.Contains(goroutine, "kgo.(*Client).doInitProducerID(")
	}
	return locked, known
}

func TestALockThatStopsTheClockIsKnownOnlyWhereKgoHoldsItForItsRequests(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		mu.Lock()
		defer mu.Unlock()
	}()
	var ours string
	testkit.Eventually(t, 10*time.Second, "a goroutine waits for the lock", func() (bool, string) {
		stacks := make([]byte, 1<<24)
		for goroutine := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if locked, _ := readStacks(goroutine); len(locked) == 1 && strings.Contains(goroutine, t.Name()) {
				ours = goroutine
			}
		}
		return ours != "", ""
	})
	mu.Unlock()
	<-done
	if _, known := readStacks(ours); known {
		t.Errorf("known to stop the clock:\n%s", ours)
	}
	if _, known := readStacks(ours + "\n\ngoroutine 7 [sync.Cond.Wait (durable)]:\ngithub.com/twmb/franz-go/pkg/kgo.(*consumer).stopSession(0x1)\n"); !known {
		t.Error("a session of kgo that ends is not known")
	}
}
