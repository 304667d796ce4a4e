package images

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/oci"
)

func TestStopSignal(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "SIGQUIT": 3, "quit": 3, " TERM ": 15, "9": 9, "SIGWINCH": 28, "SIGRTMIN+3": 37, "RTMIN": 34, "SIGRTMAX-1": 63, "SIGRTMAX": 64,
		"0": 0, "65": 0, "-1": 0, "SIG": 0, "SIGNONE": 0, "RTMIN+31": 0, "RTMIN-1": 0, "RTMIN+-1": 0, "RTMIN+999999999999": 0, "SIGRTMAX+1": 0, "ÿ\x00": 0,
	} {
		if got := stopSignal(text); got != want {
			t.Errorf("the stop signal %q is %d, not %d", text, got, want)
		}
	}
}

func TestHealthcheck(t *testing.T) {
	usual := hutch.HealthCheck{Interval: 30, Timeout: 30, StartInterval: 5, Retries: 3}
	with := func(command string) *hutch.HealthCheck {
		c := usual
		c.Command = command
		return &c
	}
	for name, c := range map[string]struct {
		says  oci.Healthcheck
		shell []string
		want  *hutch.HealthCheck
	}{
		"a program":        {says: oci.Healthcheck{Test: []string{"CMD", "/check", "it's"}}, want: with(`'/check' 'it'\''s'`)},
		"a command line":   {says: oci.Healthcheck{Test: []string{"CMD-SHELL", "a || exit 1"}}, want: with(`'/bin/sh' '-c' 'a || exit 1'`)},
		"with SHELL":       {says: oci.Healthcheck{Test: []string{"CMD-SHELL", "a"}}, shell: []string{"/bin/ash", "-ec"}, want: with(`'/bin/ash' '-ec' 'a'`)},
		"none":             {says: oci.Healthcheck{Test: []string{"NONE"}}},
		"the base's":       {},
		"nothing to run":   {says: oci.Healthcheck{Test: []string{"CMD"}}},
		"another kind":     {says: oci.Healthcheck{Test: []string{"EXEC", "a"}}},
		"a zero byte":      {says: oci.Healthcheck{Test: []string{"CMD", "a\x00"}}},
		"too long":         {says: oci.Healthcheck{Test: []string{"CMD", strings.Repeat("a", hutch.MaxCommand)}}},
		"times":            {says: oci.Healthcheck{Test: []string{"CMD", "a"}, Interval: time.Minute, Timeout: time.Second, StartPeriod: time.Hour, StartInterval: 2 * time.Second, Retries: 5}, want: &hutch.HealthCheck{Command: "'a'", Interval: 60, Timeout: 1, StartPeriod: 3600, StartInterval: 2, Retries: 5}},
		"impossible times": {says: oci.Healthcheck{Test: []string{"CMD", "a"}, Interval: 1, Timeout: -time.Hour, StartPeriod: -1, StartInterval: 1 << 62, Retries: -5}, want: &hutch.HealthCheck{Command: "'a'", Interval: 0.1, Timeout: 0.1, StartInterval: 0.1, Retries: 1}},
	} {
		if got := healthcheck(oci.Config{Healthcheck: &c.says, Shell: c.shell}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
	}
}
