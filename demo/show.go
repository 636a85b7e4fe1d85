package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	look       = 50 * time.Millisecond // how often the demo looks at everything
	readyTime  = 30 * time.Second      // the longest that the sidecar may take to be ready
	silentTime = 12 * time.Second      // the longest that Kafka may say nothing
	stuckTime  = 30 * time.Second      // the longest that nothing may be committed while something is to be
	stopTime   = 15 * time.Second      // the longest that the sidecar may take to stop
)

// awaitReady waits for the sidecar's first readiness.
func (d *demo) awaitReady(ctx context.Context) error {
	done := d.screen.step("ready", "waiting …")
	began := time.Now()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for !d.isReady() {
		select {
		case <-ctx.Done():
			done("no")
			return ctx.Err()
		case <-tick.C:
		}
		if err := d.childrenRun(); err != nil {
			done("no")
			return err
		}
		if time.Since(began) > readyTime {
			done("no")
			return withLog(fmt.Sprintf("the sidecar is not ready after %v", readyTime), d.sidecar)
		}
	}
	done(fmt.Sprintf("after %.1f s", time.Since(began).Seconds()))
	return nil
}

// show produces carts, shows what becomes of them and checks it: once, or again and again until asked to end.
func (d *demo) show(asked context.Context) error {
	d.screen.print(line{})
	life, end := context.WithCancel(context.Background())
	d.endWatching = end
	d.watching.Go(func() { d.traffic.watch(life) })
	d.story = newStory(d.opts)
	if d.opts.keep && !d.screen.live() {
		d.screen.every = 5 * time.Second
	}
	for {
		roundEnd := d.clock() + d.opts.duration
		producing, stop := context.WithCancel(asked)
		produced := make(chan struct{})
		d.watching.Go(func() {
			defer close(produced)
			d.traffic.produce(producing, life)
		})
		err := d.until(asked, func() bool { return d.clock() >= roundEnd })
		stop()
		patient := asked
		if d.opts.keep {
			patient = d.insisted // who ends an endless run wants to know how it went
		}
		if err != nil && (!errors.Is(err, context.Canceled) || patient.Err() != nil) {
			return err
		}
		if err := d.drain(patient, produced); err != nil {
			return err
		}
		last := !d.opts.keep || asked.Err() != nil
		if last {
			d.stopSidecar()
		}
		carts, err := d.check(patient)
		if err != nil {
			return err
		}
		if last {
			d.phase = finished
			d.screen.show(d.view())
			return nil
		}
		if failed(d.verdict.findings()) {
			d.tell(bad, "checked: not as promised")
			d.stopSidecar()
			d.phase = finished
			d.screen.show(d.view())
			return nil
		}
		d.tell(good, "checked: %s carts, in = out, order kept, committed = end", thousands(carts))
	}
}

// until looks at everything and shows it, again and again, until the condition is true.
func (d *demo) until(ctx context.Context, condition func() bool) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if err := d.lookAt(); err != nil {
			return err
		}
		d.screen.show(d.view())
		if condition() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// lookAt takes in what has happened.
func (d *demo) lookAt() error {
	if d.sidecar != nil {
		for d.sidecar.heard(d.story.sidecarSays) {
		}
	}
	d.numbers = d.traffic.numbers()
	if d.failed != nil {
		return d.failed
	}
	d.sample()
	if err := d.childrenRun(); err != nil {
		return err
	}
	if d.process != nil && d.ready && d.crash.due(d.clock()) {
		if err := d.crashProcess(); err != nil {
			return err
		}
	}
	d.ready = d.isReady()
	d.followCrash()
	return nil
}

// isReady is what a readiness probe would find.
func (d *demo) isReady() bool {
	_, err := os.Stat(filepath.Join(d.dir, "state", "ready"))
	return err == nil
}

// childrenRun is an error when one of them has ended by itself.
func (d *demo) childrenRun() error {
	for _, c := range []*child{d.sidecar, d.process} {
		if c == nil {
			continue
		}
		select {
		case <-c.done:
			return withLog(c.name+" ended by itself: "+c.ended(), c)
		default:
		}
	}
	return nil
}

// drain waits until all that was produced is committed.
func (d *demo) drain(ctx context.Context, produced <-chan struct{}) error {
	d.phase = draining
	defer func() { d.phase = flowing }()
	moved, total := time.Now(), int64(-1)
	var stuck error
	err := d.until(ctx, func() bool {
		if d.commits.total != total {
			moved, total = time.Now(), d.commits.total
		}
		if time.Since(moved) > stuckTime {
			stuck = withLog(fmt.Sprintf("%s carts are not committed, and no commit came for %v", thousands(d.in-total), stuckTime), d.sidecar)
			return true
		}
		select {
		case <-produced:
			return d.commits.total == d.in && !d.crash.open()
		default:
			return false
		}
	})
	return errors.Join(err, stuck)
}

// check reads what is committed, waits until all that the outlets held afterwards is read too, and judges it.
// It returns how many carts that was about.
func (d *demo) check(ctx context.Context) (carts int, err error) {
	committed, err := d.brokers.committed(ctx, d.deployment)
	if err != nil {
		return 0, d.brokers.cannot("the committed offsets could not be read", err)
	}
	ends, err := d.brokers.ends(ctx, d.topics()...)
	if err != nil {
		return 0, d.brokers.cannot("the ends of the topics could not be read", err)
	}
	d.phase = checking
	defer func() { d.phase = flowing }()
	if err := d.until(ctx, func() bool { return d.traffic.readAll(ends) }); err != nil {
		return 0, err
	}
	e := evidence{committed: committed, ends: ends}
	e.sent, e.written = d.traffic.take()
	d.verdict.check(e)
	d.brokers.forget(ctx, ends)
	return len(e.sent), nil
}

// stopSidecar stops it as Kubernetes does.
func (d *demo) stopSidecar() {
	d.phase = stopping
	d.screen.show(d.view())
	began := time.Now()
	byItself := d.sidecar.stop(stopTime, d.insisted.Done())
	d.stopped(byItself, d.sidecar.ended(), time.Since(began))
	d.sidecar = nil
	d.ready = d.isReady()
}
