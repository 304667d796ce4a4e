package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// durationVar defines a flag for a time span, such as 90s, 12h or 30d.
func durationVar(f *pflag.FlagSet, d *time.Duration, name, short string, value time.Duration, usage string) {
	*d = value
	f.VarP((*duration)(d), name, short, usage)
}

// positiveDurationVar does the same as durationVar, for a flag that refuses 0. In requests 0 means that the value is
// left out, so `--expires 0` would make a token that never expires.
func positiveDurationVar(f *pflag.FlagSet, d *time.Duration, name, short string, value time.Duration, usage string) {
	*d = value
	f.VarP(positiveDuration{(*duration)(d)}, name, short, usage)
}

// sleepAfter is the value of --sleep-after. Its error names the flag for a sandbox that never sleeps.
type sleepAfter struct{ pflag.Value }

func (s sleepAfter) Set(text string) error {
	err := s.Value.Set(text)
	if err != nil {
		err = fmt.Errorf("%w; for a sandbox that never sleeps, give --keep-alive", err)
	}
	return err
}

// positiveDuration is the value of a flag that cannot be 0 or less.
type positiveDuration struct{ *duration }

func (d positiveDuration) Set(text string) error {
	v, err := parseDuration(text)
	if err != nil {
		return err
	}
	if v <= 0 {
		return fmt.Errorf("%q is not longer than 0: give a time such as 90s, 5m, 12h or 30d, or leave the flag out for the default", text)
	}
	*d.duration = duration(v)
	return nil
}

// duration is a flag's value.
type duration time.Duration

func (d *duration) Set(text string) error {
	v, err := parseDuration(text)
	*d = duration(v)
	return err
}

func (d *duration) Type() string { return "time" }

func (d *duration) String() string {
	switch v := time.Duration(*d); {
	case v == 0:
		return "" // in help: no default
	case v%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", v/(24*time.Hour))
	case v%time.Hour == 0:
		return strings.TrimSuffix(v.String(), "0m0s")
	case v%time.Minute == 0:
		return strings.TrimSuffix(v.String(), "0s")
	default:
		return v.String()
	}
}

var longUnits = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([dw])`)

// parseDuration parses a duration as time.ParseDuration does, and also accepts weeks and days before the hours.
func parseDuration(text string) (time.Duration, error) {
	rest, sum, negative := text, time.Duration(0), false
	rest, negative = strings.CutPrefix(rest, "-")
	for part := longUnits.FindStringSubmatch(rest); part != nil; part = longUnits.FindStringSubmatch(rest) {
		n, err := strconv.ParseFloat(part[1], 64)
		if err != nil || n > 1e5 {
			return 0, fmt.Errorf("%q is too long a time: give at most 100000d", text)
		}
		unit := 24 * time.Hour
		if part[2] == "w" {
			unit *= 7
		}
		sum += time.Duration(n * float64(unit))
		rest = rest[len(part[0]):]
	}
	if rest != "" || text == "" || text == "-" {
		d, err := time.ParseDuration(rest)
		if _, number := strconv.ParseFloat(rest, 64); err != nil && number == nil {
			return 0, fmt.Errorf("%q has no unit: write %[1]ss, %[1]sm, %[1]sh or %[1]sd for seconds, minutes, hours or days", text)
		}
		if err != nil || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
			return 0, fmt.Errorf("%q is not a time: write one such as 90s, 5m, 12h or 30d", text)
		}
		sum += d
	}
	if negative {
		sum = -sum
	}
	return sum, nil
}
