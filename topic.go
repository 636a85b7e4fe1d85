package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	missingTopicInterval = 500 * time.Millisecond // between looks at a topic that is not there
	topicInterval        = 3 * time.Second        // between looks at one that is; also how old a lag may be
)

// watchTopic looks after the inlet's topic until ctx ends: whether it exists, whether it is still the same one, and how
// long its log is, which is what lag is measured against also while nothing is fetched.
func (m *membership) watchTopic(ctx context.Context) {
	in := m.inlet
	admin := kadm.NewClient(m.client)
	var id kadm.TopicID
	missing := false
	for {
		interval := topicInterval
		details, err := m.topicDetail(ctx, admin)
		switch {
		case ctx.Err() != nil:
			return
		case err == kerr.UnknownTopicOrPartition:
			interval = missingTopicInterval
			in.ready.topic(in.cfg.Name, false)
			if !missing {
				in.log.Warn(fmt.Sprintf("inlet '%s': topic '%s' does not exist; not ready until it does", in.cfg.Name, in.cfg.Topic))
			}
			missing = true
		case in.troubles.refused(err, "DESCRIBE and READ", topicName(in.cfg.Topic)):
			interval = missingTopicInterval
			in.ready.topic(in.cfg.Name, false)
		case mayNot(details, kadm.OpRead):
			interval = missingTopicInterval
			in.ready.topic(in.cfg.Name, false)
			in.troubles.refused(kerr.TopicAuthorizationFailed, "READ", topicName(in.cfg.Topic))
		case err != nil:
			// A broker that cannot be asked says nothing about the topic. The client's own warnings tell of it.
			interval = missingTopicInterval
		default:
			if id != (kadm.TopicID{}) && details.ID != id && details.ID != (kadm.TopicID{}) {
				m.breakOff(fmt.Errorf("topic '%s' was deleted and created again: reading starts as for a new topic", in.cfg.Topic))
				return
			}
			id, missing = details.ID, false
			in.troubles.over(topicName(in.cfg.Topic))
			in.ready.topic(in.cfg.Name, true)
			m.readLogEnds(ctx, admin)
		}
		if !wait(ctx, interval) {
			return
		}
	}
}

// mayNot says that a broker that tells what is allowed on a topic does not allow the operation.
func mayNot(details kadm.TopicDetail, operation kadm.ACLOperation) bool {
	return len(details.AuthorizedOperations) > 0 && !slices.Contains(details.AuthorizedOperations, operation)
}

// topicDetail asks the brokers for the inlet's topic.
func (m *membership) topicDetail(ctx context.Context, admin *kadm.Client) (kadm.TopicDetail, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	details, err := admin.ListTopics(kadm.WithAuthorizedOps(ctx), m.inlet.cfg.Topic)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	detail := details[m.inlet.cfg.Topic]
	return detail, detail.Err
}

// readLogEnds refreshes where each held partition's log begins and ends.
func (m *membership) readLogEnds(ctx context.Context, admin *kadm.Client) {
	in := m.inlet
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	starts, err := admin.ListStartOffsets(ctx, in.cfg.Topic)
	if err != nil {
		return
	}
	ends, err := admin.ListEndOffsets(ctx, in.cfg.Topic)
	if err != nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for p, a := range in.held {
		if start, ok := starts.Lookup(in.cfg.Topic, p); ok && start.Err == nil {
			a.logStart = start.Offset
		}
		if end, ok := ends.Lookup(in.cfg.Topic, p); ok && end.Err == nil {
			a.logEnd = max(a.logEnd, end.Offset)
		}
	}
}

// lag is how many records of the partition are not yet written and confirmed, of those that are retained. mu is held.
func (a *assignment) lag() int64 {
	from := max(a.confirmed, a.logStart)
	if a.logEnd < 0 || from < 0 {
		return 0
	}
	return max(0, a.logEnd-from)
}

// watch looks after the outlet's topic until ctx ends: whether the brokers can be reached and writing is allowed, without
// which the outlet is not ready. That also an outlet that has nothing to write says.
func (o *outlet) watch(ctx context.Context, client *kgo.Client) {
	admin := kadm.NewClient(client)
	for {
		asking, cancel := context.WithTimeout(ctx, 10*time.Second)
		details, err := admin.ListTopics(kadm.WithAuthorizedOps(asking), o.cfg.Topic)
		cancel()
		if ctx.Err() != nil {
			return
		}
		detail := details[o.cfg.Topic]
		allowed := false
		switch {
		case err != nil: // told by the connections
		case o.troubles.refused(detail.Err, "DESCRIBE and WRITE", topicName(o.cfg.Topic)):
		case mayNot(detail, kadm.OpWrite):
			o.troubles.refused(kerr.TopicAuthorizationFailed, "WRITE", topicName(o.cfg.Topic))
		default:
			allowed = true
			o.troubles.over(topicName(o.cfg.Topic))
		}
		o.ready.writable(o.cfg.Name, allowed)
		interval := topicInterval
		if !allowed {
			interval = missingTopicInterval
		}
		if !wait(ctx, interval) {
			return
		}
	}
}
