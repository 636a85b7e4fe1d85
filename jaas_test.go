package main

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"
)

// recorded reads what Kafka's Java clients said, of which e2e/java/Reference.java made the record.
func recorded[T any](t *testing.T, name string) (lines []T) {
	t.Helper()
	f, err := os.Open("testdata/kafka-clients/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		var line T
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestAJAASTextMeansWhatItMeansInJava(t *testing.T) {
	texts := recorded[struct {
		Text, Module string
		Refused      bool
		Options      map[string]string
	}](t, "jaas")
	taken := 0
	for _, want := range texts {
		got, err := parseJAAS(want.Text)
		switch {
		case want.Refused != (err != nil):
			t.Errorf("%q: Java refuses it: %v; here: %v", want.Text, want.Refused, err)
		case err == nil && (got.module != want.Module || !maps.Equal(got.options, want.Options)):
			t.Errorf("%q: %q, in Java %q %q", want.Text, got, want.Module, want.Options)
		case err == nil:
			taken++
		}
	}
	if len(texts) < 200 || taken < 100 {
		t.Errorf("%d texts, %d of them taken, are too few to show it", len(texts), taken)
	}
}

func TestAJAASErrorHoldsNothingOfTheText(t *testing.T) {
	for _, text := range []string{`hunter2`, `hunter2 hunter2`, `x required password=hunter2`, `x required password=a hunter2;`, `x required hunter2;`, `x required password=hunter2+hunter2;`, `x required hunter2=1;`} {
		if _, err := parseJAAS(text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
