package main

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// quote puts a name that a person or a process gave between single quotes, so that it stays on one line and at a length
// that a log can bear, whatever is in it.
func quote(name string) string {
	const longest = 120
	cut := ""
	if len(name) > longest {
		end := longest
		for !utf8.RuneStart(name[end]) {
			end--
		}
		name, cut = name[:end], "…"
	}
	quoted := strconv.Quote(name)
	return "'" + strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`) + cut + "'"
}

// nearest is which of the known names was probably meant: one with few typing errors, else the shortest that has the name
// in it, as a prefix is forgotten. It is empty when there is none.
func nearest(name string, known []string) string {
	const errors, part = 3, 4 // at most; at least, in bytes
	best, least := "", 1+min(max(1, len(name)/3), errors)
	for _, candidate := range known {
		if distance := editDistance(strings.ToLower(name), strings.ToLower(candidate)); distance < least {
			best, least = candidate, distance
		}
	}
	if best != "" || len(name) < part {
		return best
	}
	for _, candidate := range known {
		if strings.Contains(strings.ToLower(candidate), strings.ToLower(name)) && (best == "" || len(candidate) < len(best)) {
			best = candidate
		}
	}
	return best
}

// suggest says which of the known names was probably meant, as the end of a sentence, or nothing when none is close.
func suggest(name string, known []string) string {
	best := nearest(name, known)
	if best == "" {
		return ""
	}
	return "; did you mean " + quote(best) + "?"
}

// editDistance is how many insertions, deletions and replacements of bytes, and swaps of neighbours, make b of a.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// shorten cuts text from outside to what a log line bears.
func shorten(text string) string {
	quoted := quote(text)
	return quoted[1 : len(quoted)-1]
}

// further puts a part behind a sentence, which may be a question.
func further(sentence, part string) string {
	if strings.HasSuffix(sentence, "?") {
		return sentence + " " + part
	}
	return sentence + "; " + part
}
