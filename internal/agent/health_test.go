package agent

import (
	"testing"
	"time"

	"hutch"
)

// TestVerdict: a process is known to be healthy as soon as a check says so, and is unhealthy no earlier than with Docker.
func TestVerdict(t *testing.T) {
	began := time.Unix(1e9, 0)
	type step struct {
		at   time.Duration
		ok   bool
		want hutch.HealthStatus
		next time.Duration
	}
	const s = time.Second
	for name, c := range map[string]struct {
		check hutch.HealthCheck
		steps []step
	}{
		"ready soon, then lost": {hutch.HealthCheck{}, []step{
			{1 * s, false, hutch.HealthStarting, 5 * s}, {6 * s, true, hutch.HealthGood, 30 * s}, {36 * s, false, hutch.HealthGood, 30 * s},
			{66 * s, false, hutch.HealthGood, 30 * s}, {96 * s, false, hutch.HealthUnhealthy, 30 * s}, {126 * s, true, hutch.HealthGood, 30 * s},
		}},
		"never ready": {hutch.HealthCheck{Interval: 10, Retries: 2}, []step{
			{1 * s, false, hutch.HealthStarting, 5 * s}, {6 * s, false, hutch.HealthStarting, 5 * s}, {11 * s, false, hutch.HealthStarting, 5 * s},
			{16 * s, false, hutch.HealthStarting, 5 * s}, {21 * s, false, hutch.HealthUnhealthy, 5 * s},
		}},
		"a start period": {hutch.HealthCheck{Interval: 10, Retries: 1, StartPeriod: 60}, []step{
			{50 * s, false, hutch.HealthStarting, 5 * s}, {65 * s, false, hutch.HealthStarting, 5 * s}, {71 * s, false, hutch.HealthUnhealthy, 5 * s}, {76 * s, true, hutch.HealthGood, 10 * s},
		}},
	} {
		v := verdict{check: c.check.WithDefaults(), began: began}
		for _, st := range c.steps {
			if next := v.add(st.ok, began.Add(st.at)); next != st.next || v.status() != st.want {
				t.Errorf("%s, after %v: %s and %v, not %s and %v", name, st.at, v.status(), next, st.want, st.next)
			}
		}
	}
}
