package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTheDocumentOfGuaranteesNamesTestsThatExistAndEveryCrashPoint(t *testing.T) {
	text, err := os.ReadFile("docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	document := string(text)
	tests, _ := testNames(t)
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(document, -1)
	if len(named) < 60 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, name := range named {
		if !slices.Contains(tests, name[1]) {
			t.Errorf("there is no %s", name[1])
		}
	}
	for _, crash := range crashPoints[1:] {
		point, _ := strings.CutPrefix(crash.name, "crash ")
		if !strings.Contains(document, "| "+point+" |") {
			t.Errorf("the crash point %q has no row", point)
		}
	}
	// A guarantee without a test is a hope: each row of a table of failures or limits ends in the tests that show it.
	_, tables, _ := strings.Cut(document, "## Guarantee × failure")
	for row := range strings.Lines(tables) {
		if strings.HasPrefix(row, "|") && !strings.HasPrefix(row, "|---") && !strings.HasSuffix(row, "shown by |\n") && !strings.Contains(row, "`Test") {
			t.Errorf("no test shows: %s", row)
		}
	}
}
