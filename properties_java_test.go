package main

import (
	"slices"
	"strings"
	"testing"
)

// javaProperty is what the kafka-clients jar says of a property.
type javaProperty struct {
	Name, Type                       string
	Consumer, Producer               bool
	ConsumerDefault, ProducerDefault string
	Validator                        string
}

func TestEveryPropertyOfJavasClientsHasARowOfItsOwnForTheSameClients(t *testing.T) {
	rules := propertyRules()
	names := map[string]bool{}
	for _, java := range recorded[javaProperty](t, "names") {
		names[java.Name] = true
		var clients clientKinds
		if java.Consumer {
			clients |= consumers
		}
		if java.Producer {
			clients |= producers
		}
		if clients == 0 || strings.HasPrefix(java.Name, "internal.") {
			continue // the name of a broker's or an admin client's property, which is unknown to Java's consumer and producer
		}
		if rule := findRule(rules, java.Name); rule == nil || rule.name != java.Name || rule.clients != clients {
			t.Errorf("%s of clients %b: row %+v", java.Name, clients, rule)
		}
	}
	for i, rule := range rules {
		if !names[strings.TrimSuffix(rule.name, ".")] && rule.name != "auto.include.jmx.reporter" {
			t.Errorf("no Java client has %s", rule.name)
		}
		if slices.ContainsFunc(rules[:i], func(other propertyRule) bool { return other.name == rule.name }) {
			t.Errorf("%s has two rows", rule.name)
		}
	}
}

// otherThanJava are the values that are taken here and refused by Java's clients, or the reverse, and why.
var otherThanJava = map[string]string{
	"group.instance.id=":                                    "it makes the member dynamic, which the sidecar's own default is not",
	"group.remote.assignor=":                                "Java asks the broker for an assignor without a name, and never joins",
	"partition.assignment.strategy=":                        "Java refuses it when it subscribes",
	"sasl.mechanism=SCRAM-SHA-1":                            "Java's has none of the name, and never connects",
	"sasl.mechanism=plain":                                  "Java's has none of the name, and never connects",
	"sasl.mechanism=NONSENSE":                               "Java's has none of the name, and never connects",
	"ssl.cipher.suites=nonsense":                            "Java never connects",
	"ssl.cipher.suites=TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "Go has no DHE",
	"ssl.enabled.protocols=TLSv1.4":                         "Java never connects",
	"ssl.enabled.protocols=TLSv1.1":                         "Java's own security settings forbid it, and it never connects",
	"ssl.endpoint.identification.algorithm=nonsense":        "Java never connects",
	"ssl.keystore.type=nonsense":                            "Java takes it as long as there is no store",
	"ssl.keystore.type=":                                    "Java takes it as long as there is no store",
	"ssl.truststore.type=nonsense":                          "Java takes it as long as there is no store",
	"ssl.truststore.type=":                                  "Java takes it as long as there is no store",
	"internal.throw.on.fetch.stable.offset.unsupported":     "it is Kafka's own, and unknown here",
}

func TestAValueIsRefusedExactlyWhenJavasClientsRefuseIt(t *testing.T) {
	used := map[string]bool{}
	for _, java := range recorded[struct {
		Client, Name, Value, Protocol string
		Taken                         bool
	}](t, "values") {
		lines := []string{"security.protocol=" + java.Protocol}
		if java.Protocol == "SASL_PLAINTEXT" {
			lines = append(lines, "sasl.mechanism=PLAIN", `sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";`)
		}
		lines = append(lines, java.Name+"="+java.Value)
		client := consumers
		if java.Client == "producer" {
			client = producers
		}
		_, problems := judge(client, lines...)
		if taken := len(problems) == 0; taken != java.Taken {
			if key := java.Name + "=" + java.Value; otherThanJava[key] != "" {
				used[key] = true
			} else if otherThanJava[java.Name] != "" {
				used[java.Name] = true
			} else {
				t.Errorf("%s %s=%s: Java takes it: %v; here: %q", java.Client, java.Name, java.Value, java.Taken, problems)
			}
		}
	}
	for key := range otherThanJava {
		if !used[key] {
			t.Errorf("%s is as in Java, and yet in the list of exceptions", key)
		}
	}
}
