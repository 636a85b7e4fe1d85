package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

// The names that a descriptor may give (protocol: "Descriptor").
var (
	streamletName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	portName      = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	parameterKey  = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

// validateSpec returns every rule of the protocol's "Descriptor" that spec breaks, one problem each, and nil when it is
// valid.
func validateSpec(spec *flowv1.Spec) []string {
	var problems []string
	problem := func(format string, values ...any) { problems = append(problems, fmt.Sprintf(format, values...)) }

	if _, _, ok := parseVersion(spec.GetProtocolVersion()); !ok {
		problem("protocol_version %s is not MAJOR.MINOR, two unsigned integers such as %s", quote(spec.GetProtocolVersion()), protocolVersion)
	}
	if spec.GetStreamlet() == nil {
		problem("streamlet is missing")
		return problems
	}
	if name := spec.Streamlet.GetName(); !streamletName.MatchString(name) {
		problem("streamlet name %s must be 1 to 63 of a-z, 0-9 and '-', and must not begin or end with '-'", quote(name))
	}

	declared := map[string][]string{}
	ports := func(kind string, ports []*flowv1.Port) {
		for _, port := range ports {
			declared[port.GetName()] = append(declared[port.GetName()], kind)
			if !portName.MatchString(port.GetName()) {
				problem("%s name %s must be a letter a-z, then up to 62 of a-z, 0-9 and '-'", kind, quote(port.GetName()))
			}
			for _, text := range validateContract(port.GetContract()) {
				problem("%s %s: %s", kind, quote(port.GetName()), text)
			}
		}
	}
	ports("inlet", spec.Streamlet.GetInlets())
	ports("outlet", spec.Streamlet.GetOutlets())
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if kinds := declared[name]; len(kinds) > 1 {
			problem("port %s is declared %d times (%s); names are unique across inlets and outlets together", quote(name), len(kinds), strings.Join(kinds, ", "))
		}
	}

	keys := map[string]int{}
	for _, parameter := range spec.Streamlet.GetConfigParameters() {
		key := parameter.GetKey()
		if keys[key]++; keys[key] == 2 {
			problem("parameter %s is declared more than once", quote(key))
		}
		if !parameterKey.MatchString(key) {
			problem("parameter key %s must be a letter a-z, then any number of a-z, 0-9 and '-'", quote(key))
		}
		if _, known := flowv1.ConfigType_name[int32(parameter.GetType())]; !known {
			problem("parameter %s has the unknown type %d", quote(key), parameter.GetType())
		} else if text := parameter.GetDefaultValue(); text != "" { // an empty one is none
			if _, err := parameterJSON(parameter.GetType(), text); err != nil {
				problem("parameter %s: the default %s is not %v", quote(key), quote(text), err)
			}
		}
	}
	return problems
}

func validateContract(contract *flowv1.Contract) []string {
	if contract == nil {
		return []string{"it has no contract"}
	}
	var problems []string
	if contract.GetFormat() != "json" {
		problems = append(problems, fmt.Sprintf("contract format %s is not supported; it must be 'json'", quote(contract.GetFormat())))
	}
	if contract.GetSchemaName() == "" {
		problems = append(problems, "the contract's schema_name is empty")
	} else if want := fingerprint(contract.GetSchemaName()); contract.GetFingerprint() != want {
		problems = append(problems, fmt.Sprintf("fingerprint %s does not belong to schema_name %s; it must be %s",
			quote(contract.GetFingerprint()), quote(contract.GetSchemaName()), want))
	}
	return problems
}

// fingerprint is what stands for a schema in a contract (protocol: "Descriptor").
func fingerprint(schemaName string) string {
	sum := sha256.Sum256([]byte(schemaName))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// parseVersion reads MAJOR.MINOR.
func parseVersion(version string) (major, minor uint64, ok bool) {
	first, second, found := strings.Cut(version, ".")
	major, err1 := strconv.ParseUint(first, 10, 32)
	minor, err2 := strconv.ParseUint(second, 10, 32)
	return major, minor, found && err1 == nil && err2 == nil
}

// parameterJSON is a parameter's value as Start.config_json carries it: a number, a boolean or a string, always valid
// JSON (protocol: "The conversation", 1). A DURATION and a MEMORY_SIZE stay the text that they are. The error ends the
// sentence "this is not …".
func parameterJSON(kind flowv1.ConfigType, text string) (json.RawMessage, error) {
	trimmed := strings.TrimSpace(text)
	switch kind {
	case flowv1.ConfigType_INTEGER:
		n, err := strconv.ParseInt(trimmed, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("an INTEGER from %d to %d", int64(math.MinInt64), int64(math.MaxInt64))
		}
		return strconv.AppendInt(nil, n, 10), nil
	case flowv1.ConfigType_DOUBLE:
		f, err := strconv.ParseFloat(trimmed, 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) || strings.ContainsAny(trimmed, "xXpP_") {
			return nil, errors.New("a DOUBLE: a decimal number of finite size")
		}
		return json.Marshal(f)
	case flowv1.ConfigType_BOOLEAN:
		if trimmed != "true" && trimmed != "false" {
			return nil, errors.New("a BOOLEAN: true or false")
		}
		return json.RawMessage(trimmed), nil
	case flowv1.ConfigType_DURATION:
		if _, err := parseDuration(text); err != nil {
			return nil, errors.New("a DURATION in HOCON's syntax, such as 500ms, 30s or 5m")
		}
	case flowv1.ConfigType_MEMORY_SIZE:
		if _, err := parseByteSize(text); err != nil {
			return nil, errors.New("a MEMORY_SIZE in HOCON's syntax, such as 512k or 1 MiB")
		}
	}
	return appendJSONString(nil, text), nil
}

// compareSpecs returns in what the process's answer is not what was deployed, one problem for each difference, and nil
// when they are equal. The streamlet's name, ports with contracts, and parameters with type and default count; order,
// descriptions and the SDK do not (protocol: "Discovery", 3).
func compareSpecs(deployed, answered *flowv1.Spec) []string {
	var problems []string
	differs := func(what, deployed, answered string) {
		if deployed != answered {
			problems = append(problems, fmt.Sprintf("%s differs: deployed is %s, the process has %s", what, orNone(deployed), orNone(answered)))
		}
	}
	differs("the streamlet's name", deployed.GetStreamlet().GetName(), answered.GetStreamlet().GetName())

	type port struct {
		kind     string
		contract *flowv1.Contract
	}
	ports := func(streamlet *flowv1.StreamletDescriptor) map[string]port {
		byName := map[string]port{}
		for _, outlet := range streamlet.GetOutlets() {
			byName[outlet.GetName()] = port{"outlet", outlet.GetContract()}
		}
		for _, inlet := range streamlet.GetInlets() {
			byName[inlet.GetName()] = port{"inlet", inlet.GetContract()}
		}
		return byName
	}
	eachName(ports(deployed.GetStreamlet()), ports(answered.GetStreamlet()), func(name string, here, there *port) {
		switch {
		case there == nil:
			problems = append(problems, fmt.Sprintf("%s %s is deployed, but the process has no such port", here.kind, quote(name)))
		case here == nil:
			problems = append(problems, fmt.Sprintf("%s %s is in the process, but not deployed", there.kind, quote(name)))
		default:
			if here.kind != there.kind {
				problems = append(problems, fmt.Sprintf("port %s is deployed as an %s, but is an %s in the process", quote(name), here.kind, there.kind))
			}
			what := here.kind + " " + quote(name) + ": the contract's "
			differs(what+"format", here.contract.GetFormat(), there.contract.GetFormat())
			differs(what+"schema_name", here.contract.GetSchemaName(), there.contract.GetSchemaName())
			if here.contract.GetSchemaName() == there.contract.GetSchemaName() { // else it must differ, and says nothing new
				differs(what+"fingerprint", here.contract.GetFingerprint(), there.contract.GetFingerprint())
			}
		}
	})

	parameters := func(streamlet *flowv1.StreamletDescriptor) map[string]*flowv1.ConfigParameter {
		byKey := map[string]*flowv1.ConfigParameter{}
		for _, parameter := range streamlet.GetConfigParameters() {
			byKey[parameter.GetKey()] = parameter
		}
		return byKey
	}
	eachName(parameters(deployed.GetStreamlet()), parameters(answered.GetStreamlet()), func(key string, here, there **flowv1.ConfigParameter) {
		switch {
		case there == nil:
			problems = append(problems, fmt.Sprintf("parameter %s is deployed, but the process has no such parameter", quote(key)))
		case here == nil:
			problems = append(problems, fmt.Sprintf("parameter %s is in the process, but not deployed", quote(key)))
		default:
			differs("parameter "+quote(key)+": the type", (*here).GetType().String(), (*there).GetType().String())
			differs("parameter "+quote(key)+": the default", (*here).GetDefaultValue(), (*there).GetDefaultValue())
		}
	})
	return problems
}

// eachName calls compare for every name in either map, sorted, with nil for the side that does not have it.
func eachName[V any](deployed, answered map[string]V, compare func(name string, deployed, answered *V)) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(deployed)), maps.Keys(answered))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		var here, there *V
		if value, ok := deployed[name]; ok {
			here = &value
		}
		if value, ok := answered[name]; ok {
			there = &value
		}
		compare(name, here, there)
	}
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return quote(text)
}
