//go:build e2e

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// It runs before the tests that wait together, which it would slow down. What the unit tests hold against the code is what the jars say: Reference.java, run again, says the same.
func TestTheRecordedAnswersAreThoseOfKafkasOwnClients(t *testing.T) {
	for _, what := range []string{"jaas", "names", "values"} {
		t.Run(what, func(t *testing.T) {
			p := run(t, t.TempDir(), what, nil, "", "java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", kafkaLibs+"/*", "java/Reference.java", what)
			if code := p.exit(t, 10*time.Minute); code != 0 {
				t.Fatalf("it ended with code %d", code)
			}
			want, err := os.ReadFile(filepath.Join("..", "testdata", "kafka-clients", what+".jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal([]byte(p.output()), want) {
				t.Error("they differ; record them again")
			}
		})
	}
}
