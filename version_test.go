package main

import (
	"regexp"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestBrokersTakeTheVersionOfEveryBuild(t *testing.T) {
	// KIP-511; org.apache.kafka.common.requests.ApiVersionsRequest.
	pattern := regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	for version, want := range map[string]string{
		"v0.0.0-20261129195613-c80958a0b1c2+dirty": "v0.0.0-20261129195613-c80958a0b1c2-dirty",
		"1.2.3":                   "1.2.3",
		"v2.0.0+incompatible":     "v2.0.0-incompatible",
		"release candidate 1 (β)": "release-candidate-1",
		"+":                       "unknown",
		"":                        "unknown",
	} {
		got := clientVersion(version)
		if got != want || !pattern.MatchString(got) {
			t.Errorf("%q is told as %q", version, got)
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.SoftwareNameAndVersion("ankka-flow-sidecar", got))
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Ping(t.Context()); err != nil {
			t.Errorf("a broker refuses version %q: %v", got, err)
		}
		client.Close()
	}
}
