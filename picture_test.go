package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
)

// drawDashboard draws the panels as the dashboard places them: of each its title, its lines over the night, the range of its
// values and the legends of the highest. The chapters of the night are the grey bands.
func drawDashboard(n *night, panels []panel, lines [][]curve) []byte {
	const unit, row, gap, head = 50.0, 26.0, 5.0, 16.0 // pixels of a grid column and row, between panels, and of a panel's title
	colours := []string{"#3274d9", "#e0b400", "#37872d", "#c4162a", "#8f3bb8", "#fa6400"}
	end := n.scrapes[len(n.scrapes)-1].at.Seconds()
	bottom := 0.0
	for _, p := range panels {
		bottom = max(bottom, float64(p.GridPos.Y+p.GridPos.H)*row)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="9"><rect width="100%%" height="100%%" fill="#f4f5f5"/>`+"\n", 24*unit, bottom+2*row)
	for i, p := range panels {
		x, y := float64(p.GridPos.X)*unit+gap, float64(p.GridPos.Y)*row+gap
		w, h := float64(p.GridPos.W)*unit-2*gap, float64(p.GridPos.H)*row-2*gap
		fmt.Fprintf(&b, `<g transform="translate(%.0f %.0f)"><rect width="%.0f" height="%.0f" fill="#fff" stroke="#ccc"/><text x="4" y="12" font-weight="bold" font-size="10">%s</text>`+"\n", x, y, w, h, html.EscapeString(p.Title))
		top, base := head+14, h-14
		for _, c := range n.chapters {
			from, to := c.begin.Seconds()/end*w, max(c.end.Seconds()/end*w, c.begin.Seconds()/end*w+1)
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.0f" width="%.1f" height="%.0f" fill="#eee"><title>%s</title></rect>`, from, top, to-from, base-top, html.EscapeString(c.name))
		}
		low, high := 0.0, 0.0
		for _, l := range lines[i] {
			for _, point := range l.points {
				low, high = min(low, point.value), max(high, point.value)
			}
		}
		slices.SortStableFunc(lines[i], func(a, b curve) int { return cmp.Compare(b.highest(), a.highest()) })
		for k, l := range lines[i] {
			colour := colours[k%len(colours)]
			fmt.Fprintf(&b, `<path fill="none" stroke="%s" d="`, colour)
			last := math.Inf(-1)
			for _, point := range l.points {
				command := "L"
				if point.at-last > 90 {
					command = "M" // a gap
				}
				last = point.at
				fmt.Fprintf(&b, "%s%.0f %.1f", command, point.at/end*w, base-(point.value-low)/max(high-low, 1e-9)*(base-top))
			}
			fmt.Fprint(&b, `"/>`)
			if k < 4 {
				fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" fill="%s">%s</text>`, 4+float64(k)*w/4, h-3, colour, html.EscapeString(cut(l.legend, int(w/22))))
			}
		}
		fmt.Fprintf(&b, `<text x="4" y="%.0f" fill="#666">%s … %s</text></g>`+"\n", head+8, inShort(low), inShort(high))
	}
	for i, c := range n.chapters {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" fill="#444">%.0f min: %s</text>`, 10+float64(i%5)*24*unit/5, bottom+14+float64(i/5)*14, c.begin.Minutes(), html.EscapeString(c.name))
	}
	fmt.Fprint(&b, "</svg>\n")
	return b.Bytes()
}

func (l curve) highest() float64 {
	highest := math.Inf(-1)
	for _, point := range l.points {
		highest = max(highest, point.value)
	}
	return highest
}

func inShort(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(slices.Concat(runes[:max(1, most-1)], []rune("…")))
	}
	return text
}
