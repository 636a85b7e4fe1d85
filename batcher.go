package main

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// maxMessageBytes is the protocol's limit of one encoded message, either way (PROTOCOL: The conversation).
	maxMessageBytes = 4 << 20
	// maxRecordBytes is the largest record that can be delivered: key, headers and value together.
	maxRecordBytes = maxMessageBytes - 64<<10
)

// batch is records of one partition on their way: fetched, with the process, acknowledged, written, confirmed,
// committed. The conversation's receiver alone touches emits until the acknowledgement, the writer afterwards.
type batch struct {
	id           uint64
	conversation *conversation
	assignment   *assignment
	first, next  int64 // the first record's offset, and the one after the last
	records      int
	leaderEpoch  int32
	newest       time.Time // the last record's timestamp
	sent         time.Time

	emits     []emit
	emitBytes int64
	chunk     []byte // memory for the bytes of emits: what is free of it
	repeats   int    // records to write that may be written already

	writeBegun  time.Time
	unconfirmed atomic.Int64
	failed      atomic.Pointer[error] // the first write's refusal
	abandoned   atomic.Bool           // its assignment or its conversation is gone: answers are dropped without a word
}

func (b *batch) String() string {
	return fmt.Sprintf("batch %d of %s/%d, offsets %d to %d", b.id, b.assignment.inlet.cfg.Topic, b.assignment.partition, b.first, b.next-1)
}

// undeliverable says that a record can never go to the process.
type undeliverable struct {
	topic     string
	partition int32
	offset    int64
	why       string
}

func (e *undeliverable) Error() string {
	return fmt.Sprintf("record %s/%d offset %d cannot be delivered: %s", e.topic, e.partition, e.offset, e.why)
}

// nextBatch takes the partition's next batch for the process into records, which the caller owns and reuses. It returns
// nil when there is none to send now, and an *undeliverable when the next record can never go and everything before it
// is committed. The inlet's mu is held.
func (a *assignment) nextBatch(records []*kgo.Record) (*batch, []*kgo.Record, error) {
	if !a.sendable() {
		return nil, records, nil
	}
	if a.suspect != nil && a.queue[0].Offset > a.suspect.until {
		a.suspect = nil // the record at fault is behind
	}
	cfg := a.inlet.cfg
	maxRecords := cfg.BatchMaxRecords
	if a.single() {
		maxRecords = 1
	}
	var bytes int64
	encoded := batchOverhead(cfg.Name)
	records = records[:0]
	for _, r := range a.queue {
		if len(records) == maxRecords {
			break
		}
		size, wire := recordBytes(r), encodedBytes(r)
		why := ""
		switch {
		case size > maxRecordBytes:
			why = fmt.Sprintf("key, headers and value are %d bytes together, the protocol's limit is %d", size, maxRecordBytes)
		case batchOverhead(cfg.Name)+wire >= maxMessageBytes:
			why = fmt.Sprintf("its message would be %d bytes, the protocol's limit is %d", batchOverhead(cfg.Name)+wire, maxMessageBytes)
		case !validHeaders(r):
			why = "a header's name is not UTF-8, which the protocol cannot carry"
		}
		if why != "" {
			if len(records) > 0 {
				break
			}
			if a.writing != nil || a.confirmed != a.base {
				return nil, records, nil // what is before it is delivered and committed first
			}
			return nil, records, &undeliverable{topic: cfg.Topic, partition: a.partition, offset: r.Offset, why: why}
		}
		if len(records) > 0 && (bytes+size > cfg.BatchMaxBytes || encoded+wire >= maxMessageBytes) {
			break
		}
		bytes += size
		encoded += wire
		records = append(records, r)
	}
	last := records[len(records)-1]
	a.takeFromQueue(records)
	b := &batch{
		assignment: a, first: records[0].Offset, next: last.Offset + 1, records: len(records),
		leaderEpoch: last.LeaderEpoch, newest: last.Timestamp, sent: time.Now(),
	}
	a.withProcess = b
	return b, records, nil
}

// keep copies bytes of an emit; what it returns is not nil, also for none. The emits of a batch lie side by side, since they
// are forgotten together.
func (b *batch) keep(v []byte) []byte {
	const least, most = 1 << 10, 64 << 10
	if len(v) > most/8 {
		return bytes.Clone(v)
	}
	if len(v) >= len(b.chunk) { // also at first, for an empty one
		b.chunk = make([]byte, min(most, max(least, b.emitBytes, int64(len(v)))))
	}
	kept := b.chunk[:len(v):len(v)]
	b.chunk = b.chunk[len(v):]
	copy(kept, v)
	return kept
}

// takeFromQueue removes records, the first ones of the queue, and lets the partition be fetched again below its low mark.
func (a *assignment) takeFromQueue(records []*kgo.Record) {
	var held int64
	for _, r := range records {
		held += heldBytes(r)
	}
	clear(a.queue[:len(records)]) // the array behind the slice must not keep what was sent
	a.queue = a.queue[len(records):]
	if len(a.queue) == 0 {
		a.queue = nil
	}
	a.queueBytes -= held
	a.inlet.budget.add(-held)
	a.inlet.resumeBelowLowMark(a)
}

// recordBytes is what the protocol's and batch.max-bytes' limits count: key, headers and value.
func recordBytes(r *kgo.Record) int64 {
	n := int64(len(r.Key)) + int64(len(r.Value))
	for _, h := range r.Headers {
		n += int64(len(h.Key)) + int64(len(h.Value))
	}
	return n
}

// heldBytes is what a record takes in memory, nearly.
func heldBytes(r *kgo.Record) int64 { return recordBytes(r) + heldOverhead(r) }

const recordStruct, headerStruct = 216, 40 // bytes

// heldOverhead is what of it is not key, headers and value.
func heldOverhead(r *kgo.Record) int64 {
	return recordStruct + headerStruct*int64(len(r.Headers))
}

// encodedBytes is the exact size that a record adds to an encoded Batch.
func encodedBytes(r *kgo.Record) int {
	record := 0
	if r.Key != nil {
		record += 1 + protowire.SizeBytes(len(r.Key))
	}
	for _, h := range r.Headers {
		header := sizeUnlessEmpty(len(h.Key)) + sizeUnlessEmpty(len(h.Value))
		record += 1 + protowire.SizeBytes(header)
	}
	record += sizeUnlessEmpty(len(r.Value))
	input := 1 + protowire.SizeBytes(record)
	if r.Offset != 0 {
		input += 1 + protowire.SizeVarint(uint64(r.Offset))
	}
	if ms := r.Timestamp.UnixMilli(); ms != 0 {
		input += 1 + protowire.SizeVarint(uint64(ms))
	}
	return 1 + protowire.SizeBytes(input)
}

func sizeUnlessEmpty(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(n)
}

// batchOverhead bounds what a ToProcess with a Batch adds around its records.
func batchOverhead(inlet string) int {
	const id, partition, wrapper = 11, 11, 6
	return id + partition + wrapper + 1 + protowire.SizeBytes(len(inlet))
}

func validHeaders(r *kgo.Record) bool {
	for _, h := range r.Headers {
		if !utf8.ValidString(h.Key) {
			return false
		}
	}
	return true
}
