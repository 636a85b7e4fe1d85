package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var writeDocument = flag.Bool("document", false, "write docs/kafka-properties.md")

const propertiesDocument = "docs/kafka-properties.md"

func TestTheDocumentOfPropertiesIsWhatTheTableSays(t *testing.T) {
	want := describeProperties(recorded[javaProperty](t, "names"))
	if *writeDocument {
		if err := os.WriteFile(propertiesDocument, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(propertiesDocument)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table says: go test -run TheDocumentOfProperties -document .", propertiesDocument)
	}
}

func TestADefaultThatIsNotJavasSaysWhy(t *testing.T) {
	java := map[string]javaProperty{}
	for _, p := range recorded[javaProperty](t, "names") {
		java[p.Name] = p
	}
	for _, rule := range propertyRules() {
		if rule.effect != mapped {
			continue
		}
		if rule.does == "" {
			t.Errorf("%s: the document would not say what it does", rule.name)
		}
		if theirs := java[rule.name].defaultValue(); theirs != rule.documentDefault() && rule.differs == "" && rule.documentDefault() != "" {
			t.Errorf("%s: the default is %q, in Java %q", rule.name, rule.documentDefault(), theirs)
		}
	}
}

func (p javaProperty) defaultValue() string {
	if p.Consumer {
		return p.ConsumerDefault
	}
	return p.ProducerDefault
}

func (r *propertyRule) documentDefault() string {
	if r.shownDefault != "" {
		return r.shownDefault
	}
	return r.byDefault
}

// describeProperties is the document.
func describeProperties(java []javaProperty) string {
	types := map[string]javaProperty{}
	for _, p := range java {
		types[p.Name] = p
	}
	var b strings.Builder
	b.WriteString(`# Kafka client properties

What the sidecar does with each property of the Java consumer and producer of Kafka 4.3, in a port's ` + "`connection-config`" + ` and, over
it, ` + "`consumer-config` or `producer-config`" + `. Names, values and defaults are Java's but where this page says otherwise. A value that Java
refuses is refused here: exit code 2, with file, line, property and what is allowed. A value beyond what is possible here is brought
to the limit, with a warning. A name that no Kafka client has warns once.

This page is made from the table in the code: ` + "`go test -run TheDocumentOfProperties -document .`" + `

`)
	rules := propertyRules()
	b.WriteString("## Defaults that are not Java's\n\n| property | here | Java | why |\n|---|---|---|---|\n")
	for _, rule := range rules {
		if rule.differs != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", rule.name, cell(rule.documentDefault()), cell(types[rule.name].defaultValue()), rule.differs)
		}
	}
	for _, group := range []struct {
		title  string
		effect propertyEffect
	}{
		{"Done as in Java", mapped}, {"Decided by the sidecar: ignored, with a warning that says why", owned},
		{"Accepted without effect", noEffect}, {"Refused", refused},
	} {
		why := "why"
		if group.effect == mapped {
			why = "what it says"
			fmt.Fprintf(&b, "\n## %s\n\n| property | of | type | default | %s |\n|---|---|---|---|---|\n", group.title, why)
		} else {
			fmt.Fprintf(&b, "\n## %s\n\n| property | of | type | %s |\n|---|---|---|---|\n", group.title, why)
		}
		for _, rule := range rules {
			if rule.effect != group.effect {
				continue
			}
			of := map[clientKinds]string{consumers: "consumer", producers: "producer", bothClients: "both"}[rule.clients]
			kind := strings.ToLower(types[rule.name].Type)
			if strings.HasSuffix(rule.name, ".ms") {
				kind = "ms"
			}
			if rule.effect == mapped {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", rule.name, of, kind, cell(rule.documentDefault()), rule.does)
			} else {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", rule.name, of, kind, rule.why)
			}
		}
	}
	return b.String()
}

func cell(value string) string {
	if value == "" {
		return "none"
	}
	value = strings.ReplaceAll(value, "class "+assignorPackage, "…")
	return "`" + strings.ReplaceAll(value, assignorPackage, "…") + "`"
}
