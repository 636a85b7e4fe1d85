package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	missingTopicInterval = 500 * time.Millisecond // between looks at a topic that is not there
	logEndsWait          = 1000                   // ms that a broker may take to say how long a log is: the answers to commits come on the same connection, after it
)

// topicInterval is the time between looks at a topic that is there; also how old a lag may be. The simulation alone changes
// it, before a sidecar runs: in a quiet minute these looks are most of what a cluster in memory has to do.
var topicInterval = 3 * time.Second

// watchTopic looks after the inlet's topic until ctx ends: whether it exists, whether it is still the same one, and how
// long its log is, which is what lag is measured against also while nothing is fetched.
func (m *membership) watchTopic(ctx context.Context) {
	in := m.inlet
	admin := kadm.NewClient(m.client)
	admin.SetTimeoutMillis(logEndsWait)
	seen, missing := false, false // by this client
	for {
		interval := topicInterval
		details, err := describeTopic(ctx, admin, in.cfg.Topic)
		if err == nil {
			err = details.Err
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == kerr.UnknownTopicOrPartition:
			interval = missingTopicInterval
			in.ready.topic(in.cfg.Name, false)
			if !missing {
				log := in.log
				if near := nearest(in.cfg.Topic, topicNames(ctx, admin)); near != "" {
					log = log.With("did_you_mean", near)
				}
				log.Warn(fmt.Sprintf("inlet '%s': topic '%s' does not exist; not ready until it does", in.cfg.Name, in.cfg.Topic))
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
			// No broker has answered for as long as describeTopic waits. A group that cannot be asked ends nobody's membership, so
			// that nothing else would tell.
			interval = missingTopicInterval
			in.ready.topic(in.cfg.Name, false)
			in.troubles.tell(topicName(in.cfg.Topic), fmt.Sprintf("inlet '%s': no broker answers for topic '%s'; not ready until one does", in.cfg.Name, in.cfg.Topic))
		default:
			if in.topicCreatedAnew(details.ID, seen) && seen {
				m.breakOff(fmt.Errorf("topic '%s' was deleted and created again: reading starts as for a new topic", in.cfg.Topic))
				return
			}
			seen, missing = true, false
			in.troubles.over(topicName(in.cfg.Topic))
			in.ready.topic(in.cfg.Name, !in.recentlyDenied())
			m.readLogEnds(ctx, admin)
		}
		if !wait(ctx, interval) {
			return
		}
	}
}

// recentlyDenied says that a fetch was refused since the last look.
func (in *inlet) recentlyDenied() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return time.Since(in.denied) <= topicInterval
}

// mayNot says that a broker that tells what is allowed on a topic does not allow the operation.
func mayNot(details kadm.TopicDetail, operation kadm.ACLOperation) bool {
	return len(details.AuthorizedOperations) > 0 && !slices.Contains(details.AuthorizedOperations, operation)
}

// describeTopic asks the brokers for a topic and what may be done with it. The error is of a request that was not answered;
// what a broker says is wrong with the topic is in the answer's Err.
func describeTopic(ctx context.Context, admin *kadm.Client, topic string) (kadm.TopicDetail, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	details, err := admin.ListTopics(kadm.WithAuthorizedOps(ctx), topic)
	if isUnauthorized(err) { // an answer about the topic, which kadm makes one about the request
		return kadm.TopicDetail{Topic: topic, Err: err}, nil
	}
	return details[topic], err
}

// topicNames are the topics that this client may see; none when the brokers do not say.
func topicNames(ctx context.Context, admin *kadm.Client) []string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return nil // it is for a word more
	}
	return topics.Names()
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
	ends, err := listEnds(ctx, admin, in.cfg.Topic, m.readsCommitted)
	if err != nil {
		return
	}
	now := time.Now()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.endsRead = now
	for p, a := range in.held {
		before := a.logStart
		if start, ok := starts.Lookup(in.cfg.Topic, p); ok && start.Err == nil {
			a.logStart = start.Offset
		}
		if end, ok := ends.Lookup(in.cfg.Topic, p); ok && end.Err == nil {
			a.logEnd = max(a.logEnd, end.Offset)
		}
		if a.logStart == before && a.logStart == a.logEnd { // as at the look before: what was fetched earlier has come
			a.passEmptyLog()
		}
		a.observeLag(now)
	}
}

// passEmptyLog moves a partition past records that retention removed before they were read, and with them all others: no
// fetch would tell of it until more come. mu is held.
func (a *assignment) passEmptyLog() {
	in := a.inlet
	if a.position < 0 || a.position >= a.logStart || len(a.queue) > 0 || a.outstanding() || a.committing || in.conversation == nil {
		return
	}
	a.tellRemoved(in.log, a.position, a.logStart, a.logStart-a.position)
	a.beginAt(a.logStart)
	a.resumeAt, a.suspect = -1, nil
	a.release()
	delete(in.stalls, a.partition)
}

// listEnds asks how far each partition's log can be read: for a consumer that reads committed transactions alone, up to the
// first one that is open.
func listEnds(ctx context.Context, admin *kadm.Client, topic string, committed bool) (kadm.ListedOffsets, error) {
	if committed {
		return admin.ListCommittedOffsets(ctx, topic)
	}
	return admin.ListEndOffsets(ctx, topic)
}

// readsCommitted says whether the client is set to read committed transactions alone. It is not for every poll: kgo makes a
// copy of its options for each question.
func readsCommitted(client *kgo.Client) bool {
	return client.OptValue(kgo.FetchIsolationLevel) == kgo.ReadCommitted()
}

// lag is how many records of the partition are not yet written and confirmed, of those that are retained. mu is held.
func (a *assignment) lag() int64 {
	from := max(a.confirmed, a.logStart)
	if a.logEnd < 0 || from < 0 {
		return 0
	}
	return max(0, a.logEnd-from)
}

// topicCreatedAnew says whether the topic is another than when it was last seen. Then it says loudly that what the old one
// had is gone. held says that the assignments are still those of the old one, of which everything is forgotten; a client
// made since then has begun with the new one.
func (in *inlet) topicCreatedAnew(id kadm.TopicID, held bool) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	old := in.topicID
	if id != (kadm.TopicID{}) { // brokers before 2.8 tell none
		in.topicID = id
	}
	if old == (kadm.TopicID{}) || in.topicID == old {
		return false
	}
	if !held {
		in.log.Error("the topic was deleted and created again while it was not read: what was not read of the old one is gone")
		return true
	}
	for p, a := range in.held {
		in.log.Error("the topic was deleted and created again: what was not read of it is gone", "partition", p, "offset", a.base, "log_end", a.logEnd)
	}
	for _, h := range in.histories {
		h.sentTo, h.writtenTo, h.committed = 0, 0, 0
	}
	return true
}

// watch looks after the outlet's topic until ctx ends: whether the brokers can be reached and writing is allowed, without
// which the outlet is not ready. That also an outlet that has nothing to write says.
func (o *outlet) watch(ctx context.Context, client *kgo.Client) {
	admin := kadm.NewClient(client)
	var missing string // what is said of a topic that does not exist
	for {
		detail, err := describeTopic(ctx, admin, o.cfg.Topic)
		if ctx.Err() != nil {
			return
		}
		allowed := false
		switch {
		case err != nil: // told by the connections
		case o.troubles.refused(detail.Err, "DESCRIBE and WRITE", topicName(o.cfg.Topic)):
		case mayNot(detail, kadm.OpWrite):
			o.troubles.refused(kerr.TopicAuthorizationFailed, "WRITE", topicName(o.cfg.Topic))
		case errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
			allowed = true // readiness asks for the inlets' topics (seeds: Probes); the first write to this one fails
			if missing == "" {
				missing = topicName(o.cfg.Topic) + " does not exist: what is emitted cannot be written until it does" + suggest(o.cfg.Topic, topicNames(ctx, admin))
			}
			o.troubles.tell(topicName(o.cfg.Topic), missing)
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
