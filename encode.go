package main

import (
	"slices"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/twmb/franz-go/pkg/kgo"
)

// batchEncoder builds the message of one batch after another in the same memory. The sender alone uses it: a message is
// encoded when Send returns, since no interceptor or stats handler keeps it.
type batchEncoder struct {
	records []*kgo.Record // of the batch being sent

	message flowv1.ToProcess
	batch   flowv1.Batch
	inputs  []flowv1.InputRecord
	bodies  []flowv1.Record
}

func newBatchEncoder() *batchEncoder {
	e := &batchEncoder{}
	e.message.Message = &flowv1.ToProcess_Batch{Batch: &e.batch}
	return e
}

// encode makes the message of b from e.records. It is valid until the next call.
func (e *batchEncoder) encode(b *batch) *flowv1.ToProcess {
	n := len(e.records)
	if n > len(e.inputs) {
		e.inputs, e.bodies = make([]flowv1.InputRecord, n), make([]flowv1.Record, n)
	}
	e.batch.BatchId, e.batch.Inlet, e.batch.Partition = b.id, b.assignment.inlet.cfg.Name, b.assignment.partition
	e.batch.Records = slices.Grow(e.batch.Records[:0], n)
	for i, r := range e.records {
		body, input := &e.bodies[i], &e.inputs[i]
		body.Key, body.Value = r.Key, r.Value
		body.Headers = body.Headers[:0]
		for _, h := range r.Headers {
			body.Headers = append(body.Headers, &flowv1.Header{Key: h.Key, Value: h.Value})
		}
		input.Offset, input.TimestampMs, input.Record = r.Offset, r.Timestamp.UnixMilli(), body
		e.batch.Records = append(e.batch.Records, input)
		e.records[i] = nil
	}
	return &e.message
}
