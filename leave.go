package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leave finishes the membership: partitions are revoked with their work finished, the group is left, the client closed.
// It returns within leaveBound and a little, whatever the brokers do.
func (m *membership) leave() {
	in := m.inlet
	deadline := time.Now().Add(leaveBound)
	m.conns.closeClient(m.client.CloseAllowingRebalance, leaveBound)
	m.end()
	m.background.Wait()
	m.mu.Lock()
	if m.giveUp != nil {
		m.giveUp.Stop()
	}
	m.mu.Unlock()
	if m.static != "" && !in.isDynamic() {
		m.leaveStatic(time.Until(deadline))
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range in.held {
		in.forget(a)
	}
	in.membership = nil
	if in.conversation != nil { // the next client feeds it
		in.waiting, in.conversation, in.attached = in.conversation, nil, time.Now()
	}
	in.ready.fed(in.cfg.Name, false)
	in.ready.joined(in.cfg.Name, false)
}

// leaveStatic removes a static member, which closing the client does not: its partitions would wait for the session
// timeout. It is best effort within bound.
func (m *membership) leaveStatic(bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), max(bound, 500*time.Millisecond))
	defer cancel()
	memberID, _ := m.client.GroupMetadata()
	cfg := m.inlet.cfg
	conns := newConnections(m.inlet.network, cfg.Consumer.Connection, m.inlet.troubles)
	client, err := kgo.NewClient(clientOptions(&cfg.PortConfig, cfg.Consumer.Connection, conns)...)
	if err != nil {
		m.tellStays(err)
		return
	}
	defer conns.closeClient(client.Close, closeBound)
	if cfg.Consumer.ConsumerProtocol {
		const leaveForGood = -1 // -2 would keep the name for a member that is back soon
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = cfg.Group, memberID, leaveForGood, &m.static
		var resp *kmsg.ConsumerGroupHeartbeatResponse
		if resp, err = req.RequestWith(ctx, client); err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
	} else {
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = cfg.Group
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID, member.InstanceID = memberID, &m.static
		req.Members = append(req.Members, member)
		var resp *kmsg.LeaveGroupResponse
		if resp, err = req.RequestWith(ctx, client); err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
	}
	if err != nil {
		m.tellStays(err)
	}
}

func (m *membership) tellStays(why error) {
	m.inlet.log.Warn("the group could not be left: the partitions wait for the session timeout", "instance_id", m.static, "cause", why)
}

func (in *inlet) isDynamic() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.dynamic
}
