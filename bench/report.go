//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// goal says whether a figure is good enough, and whether it is at least within twice of that.
type goal func(figure, slack float64) (met bool, text string)

func atLeast(least float64) goal {
	return func(figure, slack float64) (bool, string) { return figure*slack >= least, fmt.Sprintf("≥ %g", least) }
}

func atMost(most float64) goal {
	return func(figure, slack float64) (bool, string) { return figure <= most*slack, fmt.Sprintf("≤ %g", most) }
}

// report gathers the figures of a run.
type report struct {
	rows  []row
	lines *json.Encoder // nil: none are written
}

type row struct {
	what, figure string
	value        float64
	goal         goal
	ratio        bool // of two medians
}

// add notes a figure. g may be nil.
func (r *report) add(what, unit string, value float64, g goal) {
	r.rows = append(r.rows, row{what, fmt.Sprintf("%.3g %s", value, unit), value, g, false})
	r.line(what, "", map[string]any{"value": value, "unit": unit})
}

// ratio notes ours against theirs by their medians.
func (r *report) ratio(what, unit string, ours, theirs []float64, g goal) {
	a, b := median(ours), median(theirs)
	r.rows = append(r.rows, row{what + ": " + unit, fmt.Sprintf("%.4g / %.4g = %.2f", a, b, a/b), a / b, g, true})
	r.line(what, "", map[string]any{"ours": ours, "theirs": theirs, "ratio": a / b, "unit": unit})
}

// line writes a measurement as JSON.
func (r *report) line(what string, s system, measured any) {
	if r.lines == nil {
		return
	}
	if err := r.lines.Encode(map[string]any{"what": what, "system": s, "measured": measured}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// print writes the table.
func (r *report) print(w io.Writer) {
	fmt.Fprintln(w, "| what | measured | goal | |\n|---|---|---|---|")
	for _, row := range r.rows {
		text, mark := "", ""
		if row.goal != nil {
			var met bool
			met, text = row.goal(row.value, 1)
			mark = map[bool]string{true: "met", false: "missed"}[met]
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", row.what, row.figure, text, mark)
	}
}

// gross is about every ratio that is worse than half of its goal, which no noise of a machine explains; what is not measured
// against something else in the same run it would explain.
func (r *report) gross() (err error) {
	for _, row := range r.rows {
		if row.goal == nil || !row.ratio {
			continue
		}
		if near, text := row.goal(row.value, 2); !near {
			err = errors.Join(err, fmt.Errorf("%s: %s, far from the goal of %s", row.what, row.figure, text))
		}
	}
	return err
}
