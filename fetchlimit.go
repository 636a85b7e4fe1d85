package main

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// expansion is how many bytes of memory a byte on the wire becomes: records are decompressed, and each is held in a
// structure of its own. Kafka limits a fetch by what is on the wire alone. It is the client's hook for each batch.
type expansion struct {
	mu    sync.Mutex
	worst float64 // of the batches since the last look; 0: none came
}

var _ kgo.HookFetchBatchRead = (*expansion)(nil)

// OnFetchBatchRead notes a batch. It is called on the client's goroutines.
func (e *expansion) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, batch kgo.FetchBatchMetrics) {
	held := int64(batch.UncompressedBytes) + recordStruct*int64(batch.NumRecords)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.worst = max(e.worst, float64(held)/float64(max(1, batch.CompressedBytes)))
}

// next is the factor to reckon with after the one so far: it rises at once and falls slowly.
func (e *expansion) next(factor float64) float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	worst := e.worst
	e.worst = 0
	switch {
	case worst == 0:
		return factor
	case worst > factor, factor == unknownExpansion:
		return worst
	}
	return factor + (worst-factor)/4
}

// unknownExpansion is reckoned with before the first fetch: it costs one small answer, and too little could cost the pod. Small
// records that are much alike come near it.
const unknownExpansion = 256

// limitFetches keeps what one answer may bring of a partition within a quarter of its share of the memory budget, and of
// all within what an answer may be: another is on its way, and one more with the client. The inlet's mu is held.
func (m *membership) limitFetches() {
	// An answer has one batch that is over its partition's limit, and only when it is the first: with a thousand partitions
	// each batch would take a request. So the least, which is reckoned in memory too, is a batch of the Java producer's default
	// size in small records.
	const leastOfPartition, least = 64 << 10, 64 << 10
	in, cfg := m.inlet, m.inlet.cfg.Consumer
	m.limitedFor = m.factor
	ofAll := min(int64(cfg.FetchMaxBytes), max(least, int64(oneAnswer/m.factor)))
	factor := m.factor
	if factor == unknownExpansion {
		// A broker keeps a partition's limit until it has sent something of it, and with small ones it sends of one partition at
		// a time: a thousand would take a thousand requests. Until more is known the answer's own limit is enough.
		factor = 1
	}
	ofPartition := min(int64(cfg.MaxPartitionFetch), int64(max(leastOfPartition, float64(in.budget.share())/4)/factor))
	m.client.UpdateFetchMaxBytes(int32(ofAll), int32(ofPartition))
}

// followExpansion limits fetches anew when what they brought was held in other memory than reckoned with. The inlet's mu
// is held.
func (m *membership) followExpansion() {
	m.factor = m.expansion.next(m.factor)
	if ratio := m.factor / m.limitedFor; ratio > 1.2 || ratio < 0.8 {
		m.limitFetches()
	}
}
