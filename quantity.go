package main

import (
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
)

// unit is a unit with all its names. The first unit of a list is that of a bare number.
type unit struct {
	names string
	size  int64
}

var durationUnits = []unit{
	{"ms milli millis millisecond milliseconds", 1e6}, {"s second seconds", 1e9}, {"m minute minutes", 60e9},
	{"h hour hours", 3600e9}, {"d day days", 86400e9},
	{"us micro micros microsecond microseconds", 1e3}, {"ns nano nanos nanosecond nanoseconds", 1},
}

var sizeUnits = []unit{
	{"B b byte bytes", 1},
	{"kB kilobyte kilobytes", 1e3}, {"K k Ki KiB kibibyte kibibytes", 1 << 10},
	{"MB megabyte megabytes", 1e6}, {"M m Mi MiB mebibyte mebibytes", 1 << 20},
	{"GB gigabyte gigabytes", 1e9}, {"G g Gi GiB gibibyte gibibytes", 1 << 30},
	{"TB terabyte terabytes", 1e12}, {"T t Ti TiB tebibyte tebibytes", 1 << 40},
	{"PB petabyte petabytes", 1e15}, {"P p Pi PiB pebibyte pebibytes", 1 << 50},
	{"EB exabyte exabytes", 1e18}, {"E e Ei EiB exbibyte exbibytes", 1 << 60},
}

// quantity is a number and a unit. The digits are limited so that exact arithmetic stays small.
var quantity = regexp.MustCompile(`^([+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?)[\s\p{Z}]*([A-Za-z]*)$`)

// parseQuantity multiplies number and unit, and drops what is left of a fraction; nil if the text is no quantity.
func parseQuantity(text string, units []unit) *big.Int {
	m := quantity.FindStringSubmatch(strings.TrimSpace(text))
	for i, unit := range units {
		if m != nil && (slices.Contains(strings.Fields(unit.names), m[2]) || i == 0 && m[2] == "") {
			number, _ := new(big.Rat).SetString(m[1])
			number.Mul(number, new(big.Rat).SetInt64(unit.size))
			return new(big.Int).Quo(number.Num(), number.Denom())
		}
	}
	return nil
}

// parseDuration reads a HOCON duration, of which a bare number is milliseconds. One longer than a time.Duration can be is
// cut to the longest, as in the reference implementation.
func parseDuration(text string) (time.Duration, error) {
	n := parseQuantity(text, durationUnits)
	switch {
	case n == nil:
		return 0, fmt.Errorf("%.30q is no duration: expected a number with one of ns, us, ms, s, m, h, d, such as 500ms", text)
	case !n.IsInt64():
		return time.Duration(n.Sign()) * (1<<63 - 1), nil
	}
	return time.Duration(n.Int64()), nil
}

// parseByteSize reads a HOCON size in bytes, of which a bare number is bytes.
func parseByteSize(text string) (int64, error) {
	n := parseQuantity(text, sizeUnits)
	if n == nil || n.Sign() < 0 || !n.IsInt64() {
		return 0, fmt.Errorf("%.30q is no size: expected a number with one of B, kB, KiB, MB, MiB, GB, GiB, such as 1 MiB", text)
	}
	return n.Int64(), nil
}
