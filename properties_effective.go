package main

import (
	"slices"
	"strings"
)

// EffectiveProperty is a Kafka property as a client works with it, for a person to read.
type EffectiveProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"` // not a secret's
	From  string `json:"from"`  // the place where it is written, or one of the two below
}

const (
	fromJavasDefault = "default"
	fromOwnDefault   = "default here, not Java's"
)

// effective lists what the client works with, in the order of the table: what was given, and the defaults that have a
// meaning beside it. Properties without effect are not in it: a warning tells of each.
func (d *portProperties) effective() []EffectiveProperty {
	var list []EffectiveProperty
	for _, rule := range propertyRules() {
		if rule.effect != mapped || rule.clients&d.client == 0 {
			continue
		}
		written := false
		for _, name := range d.names {
			if findRule([]propertyRule{rule}, name) == nil {
				continue
			}
			written = true
			given := d.given[name]
			list = append(list, EffectiveProperty{name, d.worksWith(name, rule.shownAsIs(given)), given.place.String()})
		}
		if value := d.worksWith(rule.name, rule.byDefault+rule.shownDefault); !written && value != "" && d.matters(rule.name) {
			from := fromJavasDefault
			if rule.differs != "" {
				from = fromOwnDefault
			}
			list = append(list, EffectiveProperty{rule.name, value, from})
		}
	}
	return list
}

// worksWith is the value that a property works with: what was found to hold instead, or the value itself.
func (d *portProperties) worksWith(name, value string) string {
	if instead, ok := d.instead[name]; ok {
		return instead
	}
	return value
}

// shownAsIs is a value of the property for a person, masked when it is a secret.
func (r *propertyRule) shownAsIs(given property) string {
	if r.secret || given.resolved {
		return "(not shown)"
	}
	value := strings.TrimSpace(given.value)
	if value == "" {
		return "(empty)"
	}
	return shorten(value)
}

// matters says that the default of a property has a meaning beside what was given.
func (d *portProperties) matters(name string) bool {
	switch protocol := d.security.protocol; {
	case strings.HasPrefix(name, "ssl."):
		return strings.HasSuffix(protocol, "SSL")
	case strings.HasPrefix(name, "sasl.oauthbearer."), strings.HasPrefix(name, "sasl.login."):
		return strings.HasPrefix(protocol, "SASL_") && d.security.mechanism == "OAUTHBEARER"
	case strings.HasPrefix(name, "sasl."):
		return strings.HasPrefix(protocol, "SASL_")
	case d.groupProtocol == "consumer":
		return !slices.Contains(brokersDecide, name)
	}
	return true
}

// brokersDecide are what a consumer cannot set with group.protocol=consumer.
var brokersDecide = []string{"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
