package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/term"
)

// screen shows a run: in a terminal as a frame that is drawn again in place, else as lines that are only ever added.
type screen struct {
	out   io.Writer
	size  func() (width, height int) // nil: no terminal
	every time.Duration              // between two reports, where nothing is drawn

	drawn         int           // lines of the frame that is there
	width, height int           // of the window then
	reported      time.Duration // when the last report was
	told          int           // how many events are out
}

// newScreen finds out what the file is. NO_COLOR asks for no more than text, and so does a terminal that calls itself dumb.
func newScreen(file *os.File) *screen {
	s := &screen{out: file, every: time.Second}
	fd := int(file.Fd())
	if !term.IsTerminal(fd) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || runtime.GOOS == "windows" {
		return s
	}
	s.size = func() (int, int) {
		width, height, err := term.GetSize(fd)
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}
	return s
}

func (s *screen) live() bool { return s.size != nil }

// print adds lines that stay.
func (s *screen) print(lines ...line) {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.render(s.live()) + "\n")
	}
	_, _ = io.WriteString(s.out, b.String()) // nobody is left to tell
}

// show brings the screen up to date.
func (s *screen) show(v view) {
	if s.live() {
		s.draw(v)
		return
	}
	for ; s.told < len(v.events); s.told++ {
		s.print(v.events[s.told].line())
	}
	if v.elapsed-s.reported >= s.every && v.state != stopped {
		s.reported = v.elapsed.Truncate(s.every)
		s.print(v.report())
	}
}

// draw puts the frame where the last one is.
func (s *screen) draw(v view) {
	width, height := s.size()
	var b strings.Builder
	switch {
	case s.drawn == 0:
		b.WriteString("\x1b[?25l") // the cursor is not to flicker over the frame
	case width != s.width || height != s.height:
		b.WriteString("\x1b[H\x1b[2J") // the terminal has wrapped and moved what was there
	default:
		fmt.Fprintf(&b, "\x1b[%dA\r", s.drawn)
	}
	// The last column and the last row stay empty, since a terminal goes on to the next in its own way.
	frame := v.frame(width-1, height-1)
	for _, l := range frame {
		b.WriteString(l.render(true) + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	s.drawn, s.width, s.height = len(frame), width, height
	_, _ = io.WriteString(s.out, b.String())
}

// end leaves the last frame where it is and gives the cursor back.
func (s *screen) end() {
	if s.live() && s.drawn > 0 {
		s.drawn = 0
		_, _ = io.WriteString(s.out, "\x1b[?25h")
	}
}

// step is a line about something that is done before there is anything to show.
func step(what, text string) line {
	return line{{"  " + what, dim}, {strings.Repeat(" ", max(1, 10-len(what))) + text, plain}}
}

// step tells of something that takes its time. done replaces the text where that can be.
func (s *screen) step(what, doing string) (done func(text string)) {
	if !s.live() {
		s.print(step(what, doing))
		return func(text string) { s.print(step(what, text)) }
	}
	_, _ = io.WriteString(s.out, step(what, doing).render(true))
	return func(text string) {
		_, _ = io.WriteString(s.out, "\r"+step(what, text).render(true)+"\x1b[K\n")
	}
}
