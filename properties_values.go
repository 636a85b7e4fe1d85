package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The rows of the table of properties are made by the functions below: a mapped one by the kind of its values.

func ignoredProperty(name string, clients clientKinds, effect propertyEffect, why string, same ...string) propertyRule {
	return propertyRule{name: name, clients: clients, effect: effect, why: why, same: same}
}

func mappedProperty(name string, clients clientKinds, byDefault string, set func(d *portProperties, value string) error) propertyRule {
	return propertyRule{name: name, clients: clients, effect: mapped, byDefault: byDefault, set: set}
}

// possibleRange is what is possible here of what is legal in Java.
type possibleRange struct{ least, most int64 }

// number is a row of a whole number that Java takes from lowest to highest.
func numberProperty(name string, clients clientKinds, byDefault string, lowest, highest int64, possible possibleRange, store func(d *portProperties, v int64)) propertyRule {
	return mappedProperty(name, clients, byDefault, func(d *portProperties, value string) error {
		if err := whole(lowest, highest)(value); err != nil {
			return err
		}
		n, _ := strconv.ParseInt(value, 10, 64)
		bounded := min(max(n, possible.least), possible.most)
		if bounded != n {
			d.warn(d.given[name], "it is %d, but works as %d, which is the limit here", n, bounded)
			d.instead[name] = strconv.FormatInt(bounded, 10)
		}
		store(d, bounded)
		return nil
	})
}

// millis is a row of a number of milliseconds.
func millisProperty(name string, clients clientKinds, byDefault string, lowest, highest int64, possible possibleRange, store func(d *portProperties, v time.Duration)) propertyRule {
	return numberProperty(name, clients, byDefault, lowest, highest, possible, func(d *portProperties, v int64) { store(d, time.Duration(v)*time.Millisecond) })
}

// choiceProperty is a row of one word of several, written exactly so.
func choiceProperty(name string, clients clientKinds, byDefault string, words []string, store func(d *portProperties, v string)) propertyRule {
	legal := oneOfThese(words...)
	return mappedProperty(name, clients, byDefault, func(d *portProperties, value string) error {
		err := legal(value)
		if err == nil {
			store(d, value)
		}
		return err
	})
}

// anyCaseProperty is a row of one word of several, in any case.
func anyCaseProperty(name string, clients clientKinds, byDefault string, words []string, store func(d *portProperties, v string)) propertyRule {
	legal := oneOfAnyCase(words...)
	return mappedProperty(name, clients, byDefault, func(d *portProperties, value string) error {
		err := legal(value)
		if err == nil {
			store(d, strings.ToLower(value))
		}
		return err
	})
}

func booleanProperty(name string, clients clientKinds, byDefault string, store func(d *portProperties, v bool)) propertyRule {
	return anyCaseProperty(name, clients, byDefault, []string{"true", "false"}, func(d *portProperties, v string) { store(d, v == "true") })
}

// givenProperty is a row whose text is looked at where it is used.
func givenProperty(name string, legal func(string) error) propertyRule {
	return mappedProperty(name, bothClients, "", func(_ *portProperties, value string) error { return legal(value) })
}

// secretProperty is a row whose value is never shown. Without set, its text is looked at where it is used.
func secretProperty(name string, set func(*portProperties, string) error) propertyRule {
	if set == nil {
		set = func(*portProperties, string) error { return nil }
	}
	rule := mappedProperty(name, bothClients, "", set)
	rule.secret = true
	return rule
}

// takes says what Java takes of a property that does nothing here.
func (r propertyRule) takes(legal func(string) error) propertyRule {
	r.legal = legal
	return r
}

// meaning says what a mapped property does, for the document.
func (r propertyRule) meaning(does string) propertyRule {
	r.does = does
	return r
}

// otherwise says why the default is not Java's.
func (r propertyRule) otherwise(why string) propertyRule {
	r.differs = why
	return r
}

// as gives a default for the document that is not set.
func (r propertyRule) as(byDefault string) propertyRule {
	r.shownDefault = byDefault
	return r
}

// What Java takes, each with an error that ends "it must be".

func whole(lowest, highest int64) func(string) error {
	return func(value string) error {
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < lowest || n > highest {
			return fmt.Errorf("a whole number from %d to %d", lowest, highest)
		}
		return nil
	}
}

const maxFraction = math.MaxFloat64

func fraction(lowest, highest float64) func(string) error {
	return func(value string) error {
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err == nil && n >= lowest && n <= highest:
			return nil
		case highest == maxFraction:
			return errors.New("a number")
		}
		return fmt.Errorf("a number from %v to %v", lowest, highest)
	}
}

func oneOfThese(words ...string) func(string) error {
	return func(value string) error {
		if !slices.Contains(words, value) {
			return errors.New(oneOf(words))
		}
		return nil
	}
}

func oneOfAnyCase(words ...string) func(string) error {
	return func(value string) error {
		if !slices.ContainsFunc(words, func(word string) bool { return strings.EqualFold(word, value) }) {
			return errors.New(oneOf(words))
		}
		return nil
	}
}

func trueOrFalse(value string) error { return oneOfAnyCase("true", "false")(value) }

func notEmpty(value string) error {
	if value == "" {
		return errors.New("given or left out, not empty")
	}
	return nil
}

func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

const (
	assignorPackage    = "org.apache.kafka.clients.consumer."
	partitionerPackage = "org.apache.kafka.clients.producer."
	byteArrays         = "org.apache.kafka.common.serialization.ByteArray"

	// stickyBytes is how much goes to one partition before another gets records without a key; kgo's default.
	stickyBytes = 64 << 10
)

// kafkaName is what a topic and a group.instance.id may be made of, besides not being . or ..
var kafkaName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func isKafkaName(name string) bool {
	return kafkaName.MatchString(name) && name != "." && name != ".."
}

// setGroupInstanceID checks an id; portProperties.consumer takes it. An empty one, which Java refuses, makes the member dynamic.
func setGroupInstanceID(_ *portProperties, value string) error {
	if value != "" && !isKafkaName(value) {
		return errors.New("1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', or empty for a dynamic member")
	}
	return nil
}

func setRack(d *portProperties, value string) error {
	if len(value) > 512 {
		return errors.New("at most 512 bytes")
	}
	d.rack = value
	return nil
}

func setConnectionIdle(d *portProperties, value string) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return errors.New("a whole number of milliseconds, -1 for never")
	}
	const least, most = 100, 15 * minuteMillis
	bounded := min(max(n, least), most)
	if n < 0 {
		bounded = most
	}
	if bounded != n {
		d.warn(d.given["connections.max.idle.ms"], "it is %d, but works as %d, which is the limit here", n, bounded)
		d.instead["connections.max.idle.ms"] = strconv.FormatInt(bounded, 10)
	}
	d.connectionIdle = time.Duration(bounded) * time.Millisecond
	return nil
}

// assignors are the client's ones, in the order of preference.
func setAssignors(d *portProperties, value string) error {
	known := map[string]func() kgo.GroupBalancer{
		"RangeAssignor": kgo.RangeBalancer, "RoundRobinAssignor": kgo.RoundRobinBalancer,
		"StickyAssignor": kgo.StickyBalancer, "CooperativeStickyAssignor": kgo.CooperativeStickyBalancer,
	}
	var balancers []kgo.GroupBalancer
	for _, class := range splitList(value) {
		balancer := known[strings.TrimPrefix(class, assignorPackage)]
		if balancer == nil || !strings.HasPrefix(class, assignorPackage) {
			balancers = nil
			break
		}
		balancers = append(balancers, balancer())
	}
	if len(balancers) == 0 {
		return errors.New("a list of " + assignorPackage + "RangeAssignor, …RoundRobinAssignor, …StickyAssignor and …CooperativeStickyAssignor; classes of your own cannot run here")
	}
	d.balancers = balancers
	return nil
}

// assignors are what the group protocol in use chooses from. For group.protocol=consumer kgo takes the name of the broker's
// assignor from the kind of the first one, and uses the classic protocol with it where the broker does not know the new one.
func (d *portProperties) assignors() []kgo.GroupBalancer {
	switch {
	case d.groupProtocol != "consumer":
		return d.balancers
	case d.remoteAssignor == "range":
		return []kgo.GroupBalancer{kgo.RangeBalancer()}
	default:
		return []kgo.GroupBalancer{kgo.CooperativeStickyBalancer()}
	}
}

// splitList splits a Java LIST.
func splitList(value string) []string {
	var items []string
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func setOffsetReset(d *portProperties, value string) error {
	switch policy, duration, found := strings.Cut(value, ":"); {
	case !found && (policy == "earliest" || policy == "latest" || policy == "none"):
		d.offsetReset = OffsetReset{Policy: policy}
		return nil
	case policy == "by_duration":
		if ago, ok := parseISODuration(duration); ok && ago >= 0 {
			d.offsetReset = OffsetReset{Policy: policy, Ago: ago}
			return nil
		}
	}
	return errors.New("earliest, latest, none or by_duration:<a duration of ISO 8601 that is not negative, such as P7D or PT1H30M>")
}

var isoDuration = regexp.MustCompile(`(?i)^([-+]?)P(?:([-+]?\d+)D)?(T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?)(\d+)(?:[.,](\d{0,9}))?S)?)?$`)

// parseISODuration reads what java.time.Duration.parse does: days of 24 hours, hours, minutes and seconds, each with a
// sign, seconds with a fraction. It refuses what time.Duration does not hold.
func parseISODuration(text string) (time.Duration, bool) {
	m := isoDuration.FindStringSubmatch(text)
	if m == nil || strings.EqualFold(m[3], "T") || m[2]+m[4]+m[5]+m[7] == "" {
		return 0, false
	}
	var total float64 // only to find out what is too large
	var exact time.Duration
	for text, unit := range map[string]time.Duration{
		"d" + m[2]: 24 * time.Hour, "h" + m[4]: time.Hour, "m" + m[5]: time.Minute,
		"s" + m[6] + m[7]: time.Second, "n" + m[6] + (m[8] + "000000000")[:9]: time.Nanosecond,
	} {
		number := strings.TrimLeft(text[1:], "+")
		if number == "" || number == "-" {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, false
		}
		total += math.Abs(float64(n) * float64(unit))
		exact += time.Duration(n) * unit
	}
	if total >= math.MaxInt64 {
		return 0, false
	}
	if m[1] == "-" {
		exact = -exact
	}
	return exact, true
}

func setGzipLevel(d *portProperties, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n != -1 && (n < 1 || n > 9) {
		return errors.New("-1 or a whole number from 1 to 9")
	}
	d.gzipLevel = n
	return nil
}

// codec is compression.type with its level, which the libraries here count differently than Java's.
func (d *portProperties) codec() kgo.CompressionCodec {
	switch d.compression {
	case "gzip":
		return kgo.GzipCompression().WithLevel(d.gzipLevel)
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		if d.lz4Level == 0 {
			return kgo.Lz4Compression()
		}
		return kgo.Lz4Compression().WithLevel(1 << (8 + min(d.lz4Level, 9)))
	case "zstd":
		speed := 0 // the library's default
		for level, from := range []int{-131072, 1, 3, 7, 11} {
			if d.zstdLevel != 0 && d.zstdLevel >= from {
				speed = max(level, 1)
			}
		}
		return kgo.ZstdCompression().WithLevel(speed)
	default:
		return kgo.NoCompression()
	}
}

func setPartitioner(d *portProperties, value string) error {
	switch strings.TrimPrefix(value, partitionerPackage) {
	case "internals.DefaultPartitioner":
	case "RoundRobinPartitioner":
		d.roundRobin = true
	case "UniformStickyPartitioner":
		d.ignoreKeys = true
	default:
		return errors.New(partitionerPackage + "RoundRobinPartitioner or not given; a class of your own cannot run here")
	}
	return nil
}

// retryBackoff is the wait before a further attempt: least after the first failure, doubling, give or take a fifth, and
// never more than most, as in Java.
func retryBackoff(least, most time.Duration) func(fails int) time.Duration {
	return func(fails int) time.Duration {
		wait := float64(least) * math.Pow(2, float64(max(fails-1, 0)))
		return time.Duration(min(wait*(0.8+0.4*rand.Float64()), float64(most)))
	}
}

// groupRetryTimeout bounds requests with their retries: those that keep up the membership by the session, which is over
// then, a commit by a moment, since the committer tries again by itself, and asks each time whether the partitions are still
// held, and others by the time that a Java consumer gives its calls.
func groupRetryTimeout(session, call time.Duration) func(key int16) time.Duration {
	membership := map[int16]bool{
		(*kmsg.JoinGroupRequest)(nil).Key(): true, (*kmsg.SyncGroupRequest)(nil).Key(): true,
		(*kmsg.HeartbeatRequest)(nil).Key(): true, (*kmsg.ConsumerGroupHeartbeatRequest)(nil).Key(): true,
	}
	return func(key int16) time.Duration {
		switch {
		case membership[key]:
			return session
		case key == (*kmsg.OffsetCommitRequest)(nil).Key():
			return commitRetries
		}
		return call
	}
}
