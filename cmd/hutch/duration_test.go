package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "30d": 30 * day, "1w": 7 * day, "1.5d": 36 * time.Hour, "1w2d3h4m": 9*day + 3*time.Hour + 4*time.Minute,
		"-1h": -time.Hour, "-2d": -2 * day, "0": 0, "0s": 0,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
		d := duration(want)
		if again, err := parseDuration(d.String()); want != 0 && (err != nil || again != want) {
			t.Errorf("%v is written %s, which is %v, %v", want, d.String(), again, err)
		}
	}
	for text, hint := range map[string]string{"5": "5m", "30D": "30d", "": "90s", "-": "90s", "d": "90s", "1d-2h": "90s", "--1h": "90s", "99999999999d": "too long"} {
		if got, err := parseDuration(text); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

// TestTimesOfZeroMeanSomething looks at each flag for a time whose default is empty. Either the flag refuses 0, or its
// help says what 0 means. A 0 that silently meant the default made `hutch expose --link 0s` print the public URL.
func TestTimesOfZeroMeanSomething(t *testing.T) {
	t.Parallel()
	explained := regexp.MustCompile(`\b0\b`)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "time" || f.Value.String() != "" {
				return // a default in words, or another time than 0
			}
			err := f.Value.Set("0s")
			if err == nil && !explained.MatchString(f.Usage) {
				t.Errorf("%s --%s: 0s is accepted, and the help does not say what it means: %s", c.CommandPath(), f.Name, f.Usage)
			}
			if err != nil && !strings.Contains(err.Error(), "leave the flag out for the default") {
				t.Errorf("%s --%s: %v", c.CommandPath(), f.Name, err)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root())
}
