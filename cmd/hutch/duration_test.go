package main

import (
	"strings"
	"testing"
	"time"
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
