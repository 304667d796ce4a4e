package agent

import (
	"sync"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// The health of a job is checked from inside, so checks continue while the daemon is down, and pause when the sandbox
// sleeps. A check is its own program, outside of the job's tree.

const (
	firstCheck = time.Second // the first check comes at most this long after a start, so that a fast start is noticed soon
	lateCode   = 124         // exit code of a check that took too long, as of timeout(1)
)

// unknownHealth returns the health of a process that was not checked yet; nil if it has no check.
func unknownHealth(s wire.Start) *wire.Health {
	if s.Health == nil {
		return nil
	}
	return &wire.Health{Status: hutch.HealthStarting}
}

// watchHealth checks the health of one run until its end.
func (j *job) watchHealth(p *running) {
	c := j.start.Health.WithDefaults()
	v := verdict{check: c, began: time.Now()}
	timer := time.NewTimer(min(firstCheck, c.StartInterval.Duration()))
	defer timer.Stop()
	for {
		select {
		case <-p.over:
			return
		case <-timer.C:
		}
		code, output, ended := j.checkHealth(p, c)
		if !ended {
			return
		}
		now := time.Now()
		pause := v.add(code == 0, now)
		j.mu.Lock()
		if j.run == p {
			j.rec.Health = &wire.Health{Status: v.status(), Failures: v.failures, ExitCode: &code, Output: output, CheckedMS: now.UnixMilli()}
		}
		j.mu.Unlock()
		timer.Reset(pause)
	}
}

// endHealthLocked records that a run has ended. The result of its last check is kept.
func (j *job) endHealthLocked() {
	if j.rec.Health != nil {
		last := *j.rec.Health
		last.Status = hutch.HealthUnhealthy
		j.rec.Health = &last
	}
}

// checkHealth makes one check. If the run ends first, the check is killed and ended is false.
func (j *job) checkHealth(p *running, c hutch.HealthCheck) (code int, output string, ended bool) {
	probe, err := j.agent.launch(wire.Start{ID: hutch.NewID("h"), Command: c.Command, Dir: j.start.Dir, User: j.start.User, Env: j.start.Env})
	if err != nil {
		return max(exitCode(err), 126), clip(hutch.AsError(unstarted(err)).Message, hutch.MaxHealthOutput), true
	}
	defer probe.clean()
	var mu sync.Mutex // stdout and stderr arrive concurrently
	var said []byte
	probe.readOutput(j.agent.logged, func(_ wire.Type, data []byte) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, data[:min(len(data), hutch.MaxHealthOutput-len(said))]...)
	})
	late := time.NewTimer(c.Timeout.Duration())
	defer late.Stop()
	ended, tardy := true, false
	select {
	case status := <-probe.status:
		code = exitOf(status).Code
	case <-p.over:
		ended = false
	case <-late.C:
		tardy, code = true, lateCode
	}
	if tardy || !ended {
		probe.tree.kill()
		<-probe.status
	}
	probe.awaitOutput()
	if len(probe.tree.members()) > 0 { // not otherwise, because a kill can briefly stop all other programs
		probe.tree.kill()
	}
	mu.Lock()
	defer mu.Unlock()
	return code, string(said), ended
}

// verdict is the combined result of the checks of a run.
//
// Until the first success, checks are frequent, so that readiness is noticed soon, but a failure counts only once in
// each usual interval: no process is called unhealthy earlier than Docker would.
type verdict struct {
	check    hutch.HealthCheck
	began    time.Time
	healthy  bool // the last check that counted succeeded
	worked   bool // a check has succeeded
	failures int  // failures in a row that count against the limit
}

// add adds a check, and returns when to make the next.
func (v *verdict) add(ok bool, now time.Time) time.Duration {
	c := v.check
	switch {
	case ok:
		v.healthy, v.worked, v.failures = true, true, 0
	case v.worked:
		v.failures++
	case now.Sub(v.began) >= (c.StartPeriod + hutch.Seconds(v.failures+1)*c.Interval).Duration():
		v.failures++
	}
	if v.failures >= c.Retries {
		v.healthy = false
	}
	if v.worked {
		return c.Interval.Duration()
	}
	return c.StartInterval.Duration()
}

func (v *verdict) status() hutch.HealthStatus {
	switch {
	case v.failures >= v.check.Retries:
		return hutch.HealthUnhealthy
	case v.healthy:
		return hutch.HealthGood
	}
	return hutch.HealthStarting
}
