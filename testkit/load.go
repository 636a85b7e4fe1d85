package testkit

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// minAge takes the five seconds out of kgo's defaults, which a test would otherwise wait for.
const minAge = 100 * time.Millisecond

// IDHeader names the header that carries a record's identity when its value does not.
const IDHeader = "id"

// Identity is what a record says that it is: the header 'id', or its value up to the first ';'.
func Identity(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == IDHeader {
			return string(h.Value)
		}
	}
	id, _, _ := strings.Cut(string(r.Value), ";")
	return id
}

// Load makes n records for a topic, each with its own identity and a partition, as awkward as Kafka allows: without a key, with an
// empty one, with binary ones and with ones that many records share; without headers, with repeated names and with empty values; with
// binary and empty values and with tombstones. The same arguments give the same records.
func Load(topic string, partitions int32, n int) []*kgo.Record {
	return LoadFrom(topic, partitions, 0, n)
}

// LoadFrom makes the n records of a load that come after its first ones.
func LoadFrom(topic string, partitions int32, first, n int) []*kgo.Record {
	records := make([]*kgo.Record, 0, n)
	for i := first; i < first+n; i++ {
		id := fmt.Sprintf("%s#%d", topic, i)
		r := &kgo.Record{Topic: topic, Key: loadKey(i), Value: fmt.Appendf(nil, "%s;\x00\xff value %d", id, i*i)}
		switch i % 6 {
		case 1:
			r.Headers = headers("a", "1", "a", "2", "b", "", "a", "1")
		case 2: // the value is empty, so that the identity has to travel in a header
			r.Value = []byte{}
			if i%12 == 2 {
				r.Value = nil // a tombstone, which a process sees as an empty value
			}
			r.Headers = headers("", "", IDHeader, id, "z", "\x00\xfe")
		case 3:
			r.Headers = headers("trace", "", "trace", "", "trace", "\x01")
		case 5:
			r.Value = fmt.Appendf(nil, "%s;%s", id, strings.Repeat("x", i%700))
		}
		r.Partition = int32(i/8) % partitions // those without a key are every eighth
		if r.Key != nil {
			r.Partition = JavaPartition(r.Key, partitions)
		}
		records = append(records, r)
	}
	return records
}

func loadKey(i int) []byte {
	switch i % 8 {
	case 0:
		return nil
	case 1:
		if i%64 == 1 { // all of them share a partition
			return []byte{}
		}
		return fmt.Appendf(nil, "seldom-%d", i)
	case 2, 3:
		return []byte{0, byte(i / 8), 0xff, 0xfe, byte(i / 2048)}
	default:
		return fmt.Appendf(nil, "key-%d", i%997)
	}
}

func headers(pairs ...string) (hs []kgo.RecordHeader) {
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, kgo.RecordHeader{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return hs
}
