package main

import (
	"context"
	"sync"
)

// mailbox is a queue that never blocks whoever puts into it. Its length is bounded by its use: a partition is in it once.
type mailbox[T any] struct {
	mu    *sync.Mutex
	items *[]T
	more  chan struct{} // capacity 1
}

func newMailbox[T any]() mailbox[T] {
	return mailbox[T]{mu: new(sync.Mutex), items: new([]T), more: make(chan struct{}, 1)}
}

func (m mailbox[T]) put(item T) {
	m.mu.Lock()
	*m.items = append(*m.items, item)
	m.mu.Unlock()
	select {
	case m.more <- struct{}{}:
	default:
	}
}

// take waits for the first item; it returns false when ctx has ended.
func (m mailbox[T]) take(ctx context.Context) (item T, ok bool) {
	for ctx.Err() == nil {
		m.mu.Lock()
		if len(*m.items) > 0 {
			item = (*m.items)[0]
			*m.items = (*m.items)[1:]
			m.mu.Unlock()
			return item, true
		}
		m.mu.Unlock()
		select {
		case <-m.more:
		case <-ctx.Done():
		}
	}
	return item, false
}
