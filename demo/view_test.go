package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// aView is one with everything in it, and large numbers.
func aView(suffix string) view {
	v := view{
		deployment: deploy(cartSpec(), suffix), elapsed: 123456 * time.Millisecond, until: "· Ctrl-C ends", state: "not ready", stateTone: warn,
		partitions: []partition{{1234567, 1234560}, {1, 1}, {22, 21}, {333, 333}},
		now:        "the sidecar asks the process again in 500ms: connection refused: is the process listening on 127.0.0.1:45678?", nowTone: warn,
	}
	history := make([]int64, bars+5)
	for i := range history {
		history[i] = int64(i % 9 * 100)
	}
	for _, label := range []string{"in", "valid", "review", "committed", "lag"} {
		v.series = append(v.series, series{label: label, value: 123456789, perSec: 12345, history: history, bars: calm})
	}
	for i := range 9 {
		v.events = append(v.events, happening{time.Duration(i) * time.Second, fmt.Sprintf("event %d, of which there is a lot to say and more than a line has place for", i), plain})
	}
	return v
}

func texts(lines []line) (texts []string) {
	for _, l := range lines {
		texts = append(texts, l.render(false))
	}
	return texts
}

func TestTheFrameKeepsToEveryWindow(t *testing.T) {
	for _, suffix := range []string{"", "-12ab"} {
		for _, width := range []int{10, 40, 79, 80, 200} {
			for height := 1; height < 40; height++ {
				frame := aView(suffix).frame(width, height)
				if len(frame) > height {
					t.Fatalf("%d lines in a window of %d", len(frame), height)
				}
				for _, l := range frame {
					if l.width() > width {
						t.Fatalf("%d columns in a window of %d: %s", l.width(), width, l.render(false))
					}
				}
			}
		}
	}
}

func TestTheFrameIn80Columns(t *testing.T) {
	v := aView("")
	v.events = v.events[:2]
	v.events[0].text, v.events[1].text = "the process is killed: SIGKILL to pid 1", "recovered after 0.6 s"
	v.now = "carts flow"
	got := strings.Join(texts(v.frame(79, 30)), "\n")
	spark := spark(v.series[0].history, 0)
	want := `  ankka-flow-sidecar demo                  ● not ready   123.5 s · Ctrl-C ends

  shop.cart-events.v1 ─▶ sidecar ⇄ cart-router ─┬▶ cart.valid-carts
                                                └▶ cart.review-carts

  in         123,456,789   12,345/s  ` + spark + `
  valid      123,456,789   12,345/s  ` + spark + `
  review     123,456,789   12,345/s  ` + spark + `
  committed  123,456,789   12,345/s  ` + spark + `
  lag        123,456,789   12,345/s  ` + spark + `

  partition          0         1         2         3
  end        1,234,567         1        22       333
  committed  1,234,560         1        21       333
  lag                7         0         1         0

     0.0 s  the process is killed: SIGKILL to pid 1
     1.0 s  recovered after 0.6 s
     now    carts flow`
	if got != want {
		t.Errorf("got\n%s\nnot\n%s", got, want)
	}
}

func TestASmallWindowKeepsWhatIsNewest(t *testing.T) {
	frame := strings.Join(texts(aView("").frame(79, 15)), "\n")
	for _, there := range []string{"● not ready", "valid", "event 8", "now"} {
		if !strings.Contains(frame, there) {
			t.Errorf("%q is not there:\n%s", there, frame)
		}
	}
	for _, gone := range []string{"partition", "event 1"} {
		if strings.Contains(frame, gone) {
			t.Errorf("%q is there:\n%s", gone, frame)
		}
	}
}

func TestSpark(t *testing.T) {
	for want, history := range map[string][]int64{"": nil, "▁": {0}, "▁█": {0, 5}, "▁▄█": {0, 50, 100}} {
		if got := spark(history, 0); got != want {
			t.Errorf("%v is %s, to be %s", history, got, want)
		}
	}
	if got := spark([]int64{0, 5}, 500); got != "▁▁" {
		t.Errorf("a few are drawn as a peak: %s", got)
	}
}

func TestCut(t *testing.T) {
	l := line{{"ab", bold}, {"cdef", plain}}
	for columns, want := range map[int]string{6: "abcdef", 5: "abcd…", 3: "ab…", 2: "a…", 1: "…"} {
		if got := l.cut(columns).render(false); got != want {
			t.Errorf("in %d columns it is %q, to be %q", columns, got, want)
		}
	}
	if got := l.render(true); got != "\x1b[1mab\x1b[0mcdef" {
		t.Errorf("in colours it is %q", got)
	}
}

func TestWithoutATerminalThereAreOnlyLines(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, every: time.Second}
	v := aView("")
	v.events = nil
	v.elapsed = 0
	for range 30 { // three seconds, and an event in the middle
		v.elapsed += 100 * time.Millisecond
		if v.elapsed == 1500*time.Millisecond {
			v.events = append(v.events, happening{v.elapsed, "the process is killed", bad})
		}
		s.show(v)
	}
	s.step("ready", "waiting …")("after 0.1 s")
	s.print(summary([]finding{{ok: true, what: "in = out", detail: "1 in"}, {what: "nothing lost", detail: "no", proof: []string{"it is gone"}}})...)
	s.end()
	report := "  in 123,456,789 · valid 123,456,789 · review 123,456,789 · committed 123,456,789 · lag 123,456,789 · not ready\n"
	want := "     1.0 s" + report + "     1.5 s  the process is killed\n     2.0 s" + report + "     3.0 s" + report + `  ready     waiting …
  ready     after 0.1 s

  ✓ in = out        1 in
  ✗ nothing lost    no
      it is gone
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nnot\n%s", got, want)
	}
}

func TestInATerminalTheFrameIsDrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	width, height := 80, 24
	s := &screen{out: &out, size: func() (int, int) { return width, height }}
	drawn := func() string {
		out.Reset()
		s.show(aView(""))
		return out.String()
	}
	first := drawn()
	lines := strings.Count(first, "\n")
	if !strings.HasPrefix(first, "\x1b[?25l") || lines > 23 {
		t.Errorf("the first frame hides the cursor and leaves a row: %q", first)
	}
	if again := drawn(); !strings.HasPrefix(again, fmt.Sprintf("\x1b[%dA\r", lines)) || strings.Count(again, "\n") != lines {
		t.Errorf("the next frame is not where the first is: %q", again)
	}
	width = 60
	if narrow := drawn(); !strings.HasPrefix(narrow, "\x1b[H\x1b[2J") {
		t.Errorf("a window of another size is not cleared: %q", narrow)
	}
	out.Reset()
	s.end()
	s.end()
	if out.String() != "\x1b[?25h" {
		t.Errorf("the cursor is to come back once: %q", out.String())
	}
}

func TestTheSummaryFitsIn80Columns(t *testing.T) {
	d := deploy(cartSpec(), "")
	v := newVerdict(d)
	v.in, v.committed, v.end = 1234567, 1234567, 1234567
	v.out[d.outlets[0].topic], v.out[d.outlets[1].topic] = 987654, 246913
	s := newStory(options{duration: time.Second})
	s.crash.happened, s.crash.took = true, time.Second
	s.stopped(true, "exit 0", time.Second)
	for _, l := range summary(slices.Concat(v.findings(), s.findings())) {
		if l.width() > 79 {
			t.Errorf("%d columns: %s", l.width(), l.render(false))
		}
	}
}
