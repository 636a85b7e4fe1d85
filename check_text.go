package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// write writes the report for a person, or as one JSON document.
func (r *checkReport) write(w world, options checkOptions) {
	if options.json {
		encoder := json.NewEncoder(w.stdout)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(r) // an output that is gone has nobody to tell
		return
	}
	t := &checkText{w: w.stdout, colours: showsColours(w)}
	t.report(r)
}

// showsColours says that the output is a terminal whose user does not mind colours (NO_COLOR).
func showsColours(w world) bool {
	out, isFile := w.stdout.(*os.File)
	if noColour, _ := w.lookupEnv("NO_COLOR"); noColour != "" || !isFile {
		return false
	}
	kind, _ := w.lookupEnv("TERM")
	return kind != "dumb" && term.IsTerminal(int(out.Fd()))
}

// checkText writes a report as lines of text.
type checkText struct {
	w       io.Writer
	colours bool
}

func (t *checkText) line(format string, values ...any) { fmt.Fprintf(t.w, format+"\n", values...) }

// paint puts text into a colour (an SGR parameter).
func (t *checkText) paint(colour, text string) string {
	if !t.colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (t *checkText) title(text string) { t.line("\n%s", t.paint("1", text)) }

func (t *checkText) report(r *checkReport) {
	t.line("ankka-flow-sidecar %s: check", r.Version)
	about := func(what string) {
		for _, f := range r.Findings {
			if f.About == what {
				t.finding(f)
			}
		}
	}
	t.title("configuration")
	if s := r.Summary; s != nil {
		for _, v := range s.Variables {
			if v.Value != "" {
				t.line("  %-27s %-24s (%s)", v.Name, shorten(v.Value), v.From)
			}
		}
		t.line("  pipeline %s, streamlet %s, descriptor of %s", quote(s.Pipeline), quote(s.Streamlet), quote(s.Descriptor))
		for _, key := range slices.Sorted(maps.Keys(s.Parameters)) {
			t.line("  parameter %s = %s", key, s.Parameters[key])
		}
		about("configuration")
		for _, p := range s.Inlets {
			t.title("inlet " + quote(p.Name))
			member := "dynamic member"
			if p.InstanceID != "" {
				member = "static member " + quote(p.InstanceID)
			}
			t.line("  reads topic %s as group %s (%s), batches of up to %d records and %d bytes", quote(p.Topic), quote(p.Group), member, p.MaxRecords, p.MaxBytes)
			t.port(p)
			about("inlet " + quote(p.Name))
		}
		for _, p := range s.Outlets {
			t.title("outlet " + quote(p.Name))
			t.line("  writes topic %s", quote(p.Topic))
			t.port(p)
			about("outlet " + quote(p.Name))
		}
	} else {
		about("configuration")
	}
	if slices.ContainsFunc(r.Findings, func(f finding) bool { return f.About == "process" }) {
		t.title("process")
		about("process")
	}
	t.line("\n%s and %s: exit %d", counted(r.count(forbidden), "problem"), counted(r.count(doubtful), "warning"), r.Exit)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// port writes the properties: a line for each that is written or not Java's, and one for all others.
func (t *checkText) port(p portSummary) {
	t.line("  brokers %s, client-id %s", strings.Join(p.Servers, ", "), quote(p.ClientID))
	var defaults []string
	for _, property := range p.Properties {
		if property.From == fromJavasDefault {
			defaults = append(defaults, property.Name+"="+property.Value)
			continue
		}
		t.line("  %s = %s (%s)", property.Name, property.Value, property.From)
	}
	t.line("  defaults as in Java: %s", strings.Join(defaults, " "))
}

func (t *checkText) finding(f finding) {
	colour := map[findingLevel]string{fine: "32", doubtful: "33", forbidden: "31;1"}[f.Level]
	t.line("  %s %s", t.paint(colour, fmt.Sprintf("%-7s", f.Level)), f.Text)
}
