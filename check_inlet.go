package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// checkInlet asks the inlet's brokers whether its topic can be read in its group, and where reading would start.
func checkInlet(ctx context.Context, cfg *InletConfig, network network, f *findings) {
	askKafka(ctx, &cfg.PortConfig, cfg.Consumer.Connection, cfg.Consumer.Options, network, f, func(ctx context.Context, port *portCheck) {
		c := &inletCheck{portCheck: port, cfg: cfg}
		topic := c.topic(ctx, kadm.OpRead)
		if topic != nil {
			c.configs = c.topicConfigs(ctx)
			c.largeRecords()
		}
		if c.groupsKnown(ctx) {
			c.group(ctx)
		}
		if topic != nil {
			c.starts(ctx)
		}
	})
}

// inletCheck is the check of one inlet.
type inletCheck struct {
	*portCheck
	cfg         *InletConfig
	configs     map[string]string // of the topic; nil when they may not be read
	uncommitted bool              // no group has committed anything
	committable bool              // the group's commits can be asked for
	empty       bool              // the group is known to have no members
	keeps       time.Duration     // offsets.retention.minutes; 0 when it is not known
}

// largeRecords tells of a topic that takes larger records than can be delivered.
func (c *inletCheck) largeRecords() {
	if limit, ok := configNumber(c.configs, "max.message.bytes"); ok && limit > maxRecordBytes {
		c.warn("max.message.bytes is %d, but a record of more than %d bytes cannot be delivered to the process, and its partition stands still; be sure that there are none", limit, maxRecordBytes)
	}
}

// groupsKnown says that the cluster has its topic of commits. Asking for a group's coordinator would make it.
func (c *inletCheck) groupsKnown(ctx context.Context) bool {
	const commits = "__consumer_offsets"
	detail, err := describeTopic(ctx, c.admin, commits)
	if err != nil || !errors.Is(detail.Err, kerr.UnknownTopicOrPartition) {
		return true // also where it may not be seen
	}
	c.uncommitted = true
	c.ok("no group has ever committed on this cluster, so nothing is known of %s and of the right to join it", groupName(c.cfg.Group))
	return false
}

// group asks for the group: whether it may be read, its coordinator's limits, and who is in it.
func (c *inletCheck) group(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkAskWithin)
	defer cancel()
	name := groupName(c.cfg.Group)
	coordinators := c.admin.FindGroupCoordinators(ctx, c.cfg.Group)
	coordinator := coordinators[c.cfg.Group]
	switch {
	case isUnauthorized(coordinator.Err):
		c.problem("%s", unauthorized("DESCRIBE and READ", name))
		return
	case coordinator.Err != nil:
		c.problem("%s has no coordinator: %v; look whether the partitions of __consumer_offsets have leaders", name, coordinator.Err)
		return
	}
	c.committable = true
	if err := c.nobodysHeartbeat(ctx); isUnauthorized(err) {
		c.problem("%s", unauthorized("READ", name))
		return
	}
	if configs := c.brokerConfigs(ctx, coordinator.NodeID); configs != nil {
		if minutes, ok := configNumber(configs, "offsets.retention.minutes"); ok {
			c.keeps = time.Duration(minutes) * time.Minute
		}
		c.sessionLimits(configs)
	}
	c.members(ctx)
}

// nobodysHeartbeat is a heartbeat of a member that does not exist: the coordinator refuses it for want of a right first,
// as it would refuse a join, and it changes nothing.
func (c *inletCheck) nobodysHeartbeat(ctx context.Context) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = c.cfg.Group, -1, "nobody"
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

func (c *inletCheck) sessionLimits(configs map[string]string) {
	session := c.cfg.Consumer.SessionTimeout.Milliseconds()
	least, leastKnown := configNumber(configs, "group.min.session.timeout.ms")
	most, mostKnown := configNumber(configs, "group.max.session.timeout.ms")
	switch {
	case c.cfg.Consumer.ConsumerProtocol:
	case leastKnown && session < least:
		c.problem("session.timeout.ms (%d) is less than the brokers' group.min.session.timeout.ms (%d), so that the group refuses the member; raise it", session, least)
	case mostKnown && session > most:
		c.problem("session.timeout.ms (%d) is more than the brokers' group.max.session.timeout.ms (%d), so that the group refuses the member; lower it", session, most)
	case leastKnown && mostKnown:
		c.ok("time bound: the brokers' group.min.session.timeout.ms (%d) <= session.timeout.ms (%d) <= group.max.session.timeout.ms (%d)", least, session, most)
	}
}

// member is who is in the group, of either protocol.
type member struct {
	clientID, host string
	topics         []string // none while the group rebalances
}

// members tells who is in the group: others than this inlet take a part of the partitions, whose records never come here.
func (c *inletCheck) members(ctx context.Context) {
	name := groupName(c.cfg.Group)
	members, ok := c.describeGroup(ctx)
	if !ok {
		return
	}
	c.empty = len(members) == 0
	foreign := map[string]int{}
	own := 0
	for _, m := range members {
		if m.clientID == c.cfg.ClientID && (len(m.topics) == 0 || slices.Contains(m.topics, c.cfg.Topic)) {
			own++
			continue
		}
		who := fmt.Sprintf("client-id %s on %s", quote(m.clientID), m.host)
		if len(m.topics) > 0 {
			who += ", which reads " + quote(strings.Join(m.topics, ", "))
		}
		foreign[who]++
	}
	switch {
	case len(foreign) > 0:
		var list []string
		for who, n := range foreign {
			if n > 1 {
				who = fmt.Sprintf("%d × %s", n, who)
			}
			list = append(list, who)
		}
		slices.Sort(list)
		const most = 5
		if len(list) > most {
			list = append(list[:most], fmt.Sprintf("and %d more kinds", len(list)-most))
		}
		c.problem("%s has members that are not this inlet's: %s; they take partitions, whose records do not come here: give the inlet a group of its own (flow.inlets.%s.group), or end them",
			name, strings.Join(list, "; "), c.cfg.Name)
	case own > 0:
		c.ok("%s has %s, all of them this inlet's", name, counted(own, "member"))
	default:
		c.ok("%s has no members now", name)
	}
}

// describeGroup returns the members of the group, whichever protocol it has. ok is false when they cannot be known.
func (c *inletCheck) describeGroup(ctx context.Context) (members []member, ok bool) {
	name := groupName(c.cfg.Group)
	described, err := c.admin.DescribeGroups(ctx, c.cfg.Group)
	group := described[c.cfg.Group]
	if err = cmp.Or(err, group.Err); err == nil && group.ProtocolType != "" && group.ProtocolType != "consumer" {
		c.problem("%s is one of protocol type %s, which no consumer can join: give the inlet a group of its own (flow.inlets.%s.group)", name, quote(group.ProtocolType), c.cfg.Name)
		return nil, false
	}
	if err == nil && len(group.Members) > 0 {
		c.assignor(group.Protocol)
	}
	for _, m := range group.Members {
		of := member{clientID: m.ClientID, host: m.ClientHost}
		if join, isConsumer := m.Join.AsConsumer(); isConsumer {
			of.topics = join.Topics
		}
		members = append(members, of)
	}
	if err == nil && (len(members) > 0 || group.State == "Empty") {
		return members, true
	}
	// Not a classic one: one of the consumer protocol, or none.
	consumers, consumerErr := c.admin.DescribeConsumerGroups(ctx, c.cfg.Group)
	modern, found := consumers[c.cfg.Group]
	if cmp.Or(consumerErr, modern.Err) == nil && found {
		for _, m := range modern.Members {
			members = append(members, member{m.ClientID, m.ClientHost, m.SubscribedTopics})
		}
		return members, true
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		c.warn("%s cannot be described: %v", name, err)
		return nil, false
	}
	return nil, true
}

// assignor tells of a group that works with another assignor than the inlet would.
func (c *inletCheck) assignor(protocol string) {
	balancers, _ := c.client.OptValue(kgo.Balancers).([]kgo.GroupBalancer)
	var own []string
	for _, b := range balancers {
		own = append(own, b.ProtocolName())
	}
	if protocol != "" && len(own) > 0 && !slices.Contains(own, protocol) && !c.cfg.Consumer.ConsumerProtocol {
		c.warn("%s works with the assignor %s now, and this inlet with %s: it can join only if all members know %s as well; else give partition.assignment.strategy that assignor",
			groupName(c.cfg.Group), quote(protocol), strings.Join(own, ", "), strings.Join(own, " or "))
	}
}
