package testkit

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"google.golang.org/protobuf/proto"
)

// MaxMessageBytes is what Start allows one message to be, and what a gRPC server receives by default.
const MaxMessageBytes = 4 << 20

// Conversation is one Run stream as the process saw it.
type Conversation struct {
	Start      *flowv1.Start
	Batches    []Batch
	Began      time.Time
	Stopped    bool // Stop came
	StopReason string
	HalfClosed bool
	Ended      bool
	Err        string // why it ended, when it was not the process that completed its side

	unanswered map[slot]uint64 // the batch of each partition that is with the process
}

type slot struct {
	inlet     string
	partition int32
}

// Batch is one batch as the process saw it.
type Batch struct {
	*flowv1.Batch
	Bytes  int // of the message, encoded
	At     time.Time
	Answer string // "ack", "fail" or, while there is none, ""
}

// Offsets are those of its records, in the order given.
func (b Batch) Offsets() []int64 {
	offsets := make([]int64, 0, len(b.GetRecords()))
	for _, r := range b.GetRecords() {
		offsets = append(offsets, r.GetOffset())
	}
	return offsets
}

// record is everything a process saw; guarded by Process.mu.
type record struct {
	discoveries   []*flowv1.SidecarInfo
	reported      [][]string
	conversations []*Conversation
	problems      []string
}

// Conversations are all so far, the oldest first: a copy.
func (p *Process) Conversations() []Conversation {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Conversation
	for _, c := range p.seen.conversations {
		copied := *c
		copied.Batches = slices.Clone(c.Batches)
		copied.unanswered = nil
		all = append(all, copied)
	}
	return all
}

// Running is how many conversations have begun and not ended.
func (p *Process) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.seen.conversations {
		if !c.Ended {
			n++
		}
	}
	return n
}

// Records is how many records came, repeats too.
func (p *Process) Records() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.seen.conversations {
		for _, b := range c.Batches {
			n += len(b.GetRecords())
		}
	}
	return n
}

// Discoveries are the calls of Discover so far.
func (p *Process) Discoveries() []*flowv1.SidecarInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen.discoveries)
}

// Reported are the problems of each ReportError so far.
func (p *Process) Reported() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen.reported)
}

// Problems are the rules of the protocol that the sidecar broke, in words.
func (p *Process) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen.problems)
}

// Pings are the HTTP/2 pings that came, those of grpc's bandwidth estimate left out: what is left are keepalives.
func (p *Process) Pings() int { return p.gate.pings() }

func (p *Process) open() *Conversation {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &Conversation{Began: time.Now(), unanswered: map[slot]uint64{}}
	p.seen.conversations = append(p.seen.conversations, c)
	return c
}

func (p *Process) closed(c *Conversation, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.Ended = true
	if err != nil {
		c.Err = err.Error()
	}
	if c.Start == nil && err == nil {
		p.problem("a conversation ended without Start")
	}
}

// halfClosed notes the end of the sidecar's side and says whether the process ignores it.
func (p *Process) halfClosed(c *Conversation) (ignored bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.HalfClosed = true
	if !c.Stopped {
		p.problem("half-closed without Stop")
	}
	return p.ignored
}

func (p *Process) answered(c *Conversation, id uint64, answer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(c.Batches) - 1; i >= 0; i-- {
		if c.Batches[i].GetBatchId() == id {
			c.Batches[i].Answer = answer
			at := slot{c.Batches[i].GetInlet(), c.Batches[i].GetPartition()}
			if c.unanswered[at] == id {
				delete(c.unanswered, at)
			}
			return
		}
	}
}

// anOutlet is the first that Start bound, or a name that is none.
func (p *Process) anOutlet(c *Conversation) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range c.Start.GetOutlets() {
		return b.GetPort()
	}
	return "not-an-outlet"
}

// previous is the last batch of the conversation before c.
func (p *Process) previous(c *Conversation) (id uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := slices.Index(p.seen.conversations, c) - 1; i >= 0; i-- {
		if batches := p.seen.conversations[i].Batches; len(batches) > 0 {
			return batches[len(batches)-1].GetBatchId(), true
		}
	}
	return 0, false
}

func (p *Process) problem(format string, args ...any) {
	const most = 100 // a sidecar that is wrong once is wrong in each batch
	if len(p.seen.problems) < most {
		p.seen.problems = append(p.seen.problems, fmt.Sprintf(format, args...))
	}
}

// received judges a message of the sidecar by the protocol, and gives back the batch that is to be answered.
func (p *Process) received(c *Conversation, m *flowv1.ToProcess) *flowv1.Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Start == nil && m.GetStart() == nil {
		p.problem("the first message is a %T, not Start", m.GetMessage())
	}
	switch m := m.GetMessage().(type) {
	case *flowv1.ToProcess_Start:
		p.started(c, m.Start)
	case *flowv1.ToProcess_Stop:
		if c.Stopped {
			p.problem("Stop came twice")
		}
		c.Stopped, c.StopReason = true, m.Stop.GetReason()
	case *flowv1.ToProcess_Batch:
		p.took(c, m.Batch, proto.Size(&flowv1.ToProcess{Message: m}))
		return m.Batch
	default:
		p.problem("a message without content came")
	}
	return nil
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// started judges Start against the descriptor of this process; p.mu is held.
func (p *Process) started(c *Conversation, start *flowv1.Start) {
	if c.Start != nil {
		p.problem("Start came twice in conversation %s", c.Start.GetConversationId())
		return
	}
	if !uuid.MatchString(start.GetConversationId()) {
		p.problem("the conversation id %q is no UUID", start.GetConversationId())
	}
	for _, other := range p.seen.conversations {
		if other.Start.GetConversationId() == start.GetConversationId() {
			p.problem("the conversation id %s was used before", start.GetConversationId())
		}
	}
	c.Start = start
	if start.GetMaxMessageBytes() != MaxMessageBytes {
		p.problem("Start says max_message_bytes %d, not %d", start.GetMaxMessageBytes(), MaxMessageBytes)
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(start.GetConfigJson()), &config); err != nil {
		p.problem("Start's config_json %q is no JSON object: %v", start.GetConfigJson(), err)
	}
	var has, declared []string
	for key := range config {
		has = append(has, key)
	}
	for _, parameter := range p.spec.GetStreamlet().GetConfigParameters() {
		declared = append(declared, parameter.GetKey())
	}
	p.sameNames("config_json has the parameters", has, declared)
	p.sameNames("Start binds the inlets", bound(start.GetInlets()), named(p.spec.GetStreamlet().GetInlets()))
	p.sameNames("Start binds the outlets", bound(start.GetOutlets()), named(p.spec.GetStreamlet().GetOutlets()))
}

func (p *Process) sameNames(what string, got, want []string) {
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		p.problem("%s %q, the descriptor declares %q", what, got, want)
	}
}

func bound(bindings []*flowv1.PortBinding) (names []string) {
	for _, b := range bindings {
		names = append(names, b.GetPort())
	}
	return names
}

func named(ports []*flowv1.Port) (names []string) {
	for _, port := range ports {
		names = append(names, port.GetName())
	}
	return names
}

// took judges a batch by what came before it in the conversation, and notes it; p.mu is held.
func (p *Process) took(c *Conversation, b *flowv1.Batch, size int) {
	name := fmt.Sprintf("batch %d of inlet %s, partition %d", b.GetBatchId(), b.GetInlet(), b.GetPartition())
	if len(b.GetRecords()) == 0 {
		p.problem("%s is empty", name)
	}
	if size >= MaxMessageBytes {
		p.problem("%s is a message of %d bytes", name, size)
	}
	if c.Stopped {
		p.problem("%s came after Stop", name)
	}
	if !slices.Contains(bound(c.Start.GetInlets()), b.GetInlet()) {
		p.problem("%s: Start did not bind this inlet", name)
	}
	if n := len(c.Batches); n > 0 && c.Batches[n-1].GetBatchId() >= b.GetBatchId() {
		p.problem("%s: batch %d came before it", name, c.Batches[n-1].GetBatchId())
	}
	at := slot{b.GetInlet(), b.GetPartition()}
	if other, is := c.unanswered[at]; is {
		p.problem("%s came while batch %d of that partition was unanswered", name, other)
	}
	c.unanswered[at] = b.GetBatchId()
	records := b.GetRecords()
	for i := 1; i < len(records); i++ {
		if records[i-1].GetOffset() >= records[i].GetOffset() {
			p.problem("%s: offset %d comes after %d", name, records[i].GetOffset(), records[i-1].GetOffset())
		}
	}
	c.Batches = append(c.Batches, Batch{Batch: b, Bytes: size, At: time.Now()})
}
