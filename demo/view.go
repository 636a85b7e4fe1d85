package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// tone is how a piece of text is shown where there are colours.
type tone string

const (
	plain tone = ""
	dim   tone = "2"
	bold  tone = "1"
	good  tone = "32"
	warn  tone = "33"
	bad   tone = "31"
	calm  tone = "36"
)

// span is text in one tone, and line a line of it.
type (
	span struct {
		text string
		tone tone
	}
	line []span
)

// width is how many columns the line takes. Every character that the demo draws takes one.
func (l line) width() (n int) {
	for _, s := range l {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

// cut is the line in at most so many columns.
func (l line) cut(columns int) line {
	if l.width() <= columns {
		return l
	}
	var short line
	left := columns - 1 // one is for the ellipsis
	for _, s := range l {
		text := []rune(s.text)
		if len(text) > left {
			return append(short, span{string(text[:max(0, left)]) + "…", s.tone})
		}
		short = append(short, s)
		left -= len(text)
	}
	return short
}

// render is the line as text, with the colours of ANSI or without.
func (l line) render(colours bool) string {
	var b strings.Builder
	for _, s := range l {
		if colours && s.tone != plain {
			fmt.Fprintf(&b, "\x1b[%sm%s\x1b[0m", s.tone, s.text)
		} else {
			b.WriteString(s.text)
		}
	}
	return b.String()
}

// view is everything that is shown of a run at one moment.
type view struct {
	deployment
	elapsed    time.Duration
	until      string // when it ends
	state      string // of the sidecar
	stateTone  tone
	series     []series
	partitions []partition
	events     []happening
	now        string
	nowTone    tone
}

// series is a number and how it went.
type series struct {
	label   string
	value   int64
	perSec  int64   // -1: it has none to show
	history []int64 // the latest last
	least   int64   // the height of a full bar is at least this: a few are not a peak
	bars    tone
}

// happening is a line of the story.
type happening struct {
	at   time.Duration
	text string
	tone tone
}

func (h happening) line() line {
	return line{{fmt.Sprintf("  %6.1f s  ", h.at.Seconds()), dim}, {h.text, h.tone}}
}

const bars = 40 // how many moments of a series are shown

// frame draws the view into a window, at most height lines. Where there is no place for everything, the oldest events go first, then
// the partitions.
func (v view) frame(width, height int) []line {
	top := append([]line{v.header(width), {}}, v.diagram(width)...)
	top = append(top, line{})
	for _, s := range v.series {
		top = append(top, s.line())
	}
	middle := append([]line{{}}, v.table()...)
	bottom := []line{{}}
	for _, e := range v.events[max(0, len(v.events)-8):] {
		bottom = append(bottom, e.line())
	}
	if v.now != "" {
		bottom = append(bottom, line{{"     now    ", dim}, {v.now, v.nowTone}})
	}

	const few = 4 // what is left of the story has to tell something
	if len(top)+len(middle)+min(few, len(bottom)) > height {
		middle = nil
	}
	if over := len(top) + len(middle) + len(bottom) - height; over > 0 {
		bottom = slices.Delete(bottom, 1, 1+min(over, len(bottom)-1))
	}
	frame := slices.Concat(top, middle, bottom)
	if over := len(frame) - height; over > 0 {
		frame = frame[over:]
	}
	for i := range frame {
		frame[i] = frame[i].cut(width)
	}
	return frame
}

// header is the title, readiness and the clock at the right end.
func (v view) header(width int) line {
	left := line{{"  ankka-flow-sidecar", bold}, {" demo", plain}}
	right := line{{"● " + v.state, v.stateTone}, {fmt.Sprintf("   %.1f s %s", v.elapsed.Seconds(), v.until), dim}}
	space := max(1, min(width, 80)-1-left.width()-right.width())
	return append(append(left, span{strings.Repeat(" ", space), plain}), right...)
}

// diagram is where records go.
func (v view) diagram(width int) []line {
	streamlet := v.spec.GetStreamlet().GetName()
	way := line{{"  " + v.inlet.topic, calm}, {" ─▶ ", dim}, {"sidecar", bold}, {" ⇄ ", dim}, {streamlet, plain}, {" ", dim}}
	indent := way.width()
	lines := []line{way}
	for i, outlet := range v.outlets {
		arrow := "├▶ "
		switch {
		case len(v.outlets) == 1:
			arrow = "─▶ "
		case i == 0:
			arrow = "┬▶ "
		case i == len(v.outlets)-1:
			arrow = "└▶ "
		}
		if i == 0 {
			lines[0] = append(lines[0], span{"─" + arrow, dim}, span{outlet.topic, calm})
			continue
		}
		lines = append(lines, line{{strings.Repeat(" ", indent+1), plain}, {arrow, dim}, {outlet.topic, calm}})
	}
	if !slices.ContainsFunc(lines, func(l line) bool { return l.width() > width }) {
		return lines
	}
	lines = []line{{{"  " + v.inlet.topic, calm}, {" ─▶ ", dim}, {"sidecar", bold}, {" ⇄ ", dim}, {streamlet, plain}}}
	for _, outlet := range v.outlets {
		lines = append(lines, line{{"   ─▶ ", dim}, {outlet.topic, calm}})
	}
	return lines
}

func (s series) line() line {
	rate := ""
	if s.perSec >= 0 {
		rate = thousands(s.perSec) + "/s"
	}
	label := line{{s.label, plain}}.cut(10)
	return line{{fmt.Sprintf("  %-10s %9s", label.render(false), thousands(s.value)), plain}, {fmt.Sprintf("  %9s  ", rate), dim}, {spark(s.history, s.least), s.bars}}
}

// spark draws numbers as bars of eight heights.
func spark(history []int64, least int64) string {
	const heights = "▁▂▃▄▅▆▇█"
	history = history[max(0, len(history)-bars):]
	highest := max(1, least)
	for _, n := range history {
		highest = max(highest, n)
	}
	var b strings.Builder
	for _, n := range history {
		b.WriteRune([]rune(heights)[n*7/highest])
	}
	return b.String()
}

// table is the inlet's partitions.
func (v view) table() []line {
	rows := []string{"  partition ", "  end       ", "  committed ", "  lag       "}
	for i, p := range v.partitions {
		for row, n := range []int64{int64(i), p.end, p.committed, max(0, p.end-p.committed)} {
			rows[row] += fmt.Sprintf("%10s", thousands(n))
		}
	}
	return []line{{{rows[0], dim}}, {{rows[1], plain}}, {{rows[2], plain}}, {{rows[3], plain}}}
}

// report is the view as one line, for where nothing can be drawn.
func (v view) report() line {
	var words []string
	for _, s := range v.series {
		words = append(words, s.label+" "+thousands(s.value))
	}
	return happening{at: v.elapsed, text: strings.Join(append(words, v.state), " · ")}.line()
}

// summary is the verdict as lines.
func summary(findings []finding) []line {
	lines := []line{{}}
	for _, f := range findings {
		mark, tone := "✓", good
		if !f.ok {
			mark, tone = "✗", bad
		}
		lines = append(lines, line{{"  " + mark + " ", tone}, {fmt.Sprintf("%-16s", f.what), bold}, {f.detail, plain}})
		for _, proof := range f.proof {
			lines = append(lines, line{{"      " + proof, bad}})
		}
	}
	return lines
}
