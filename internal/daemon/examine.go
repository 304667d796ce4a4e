package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/datadir"
	"hutch/internal/driver"
	"hutch/internal/host"
)

// examiner examines the machine and the audit log. Both take a while, so at most one examination of each runs at a
// time, and its result is reused for a short time (fresh).
type examiner struct {
	d        *Daemon
	checking sync.Mutex
	at       time.Time
	last     hutch.Examination
	reading  sync.Mutex
}

func (d *Daemon) newExaminer() *examiner { return &examiner{d: d} }

// fresh is how long a result is reused.
const fresh = 10 * time.Second

// Examine implements hutch.Examiner.
func (e *examiner) Examine(ctx context.Context) (hutch.Examination, error) {
	e.checking.Lock()
	defer e.checking.Unlock()
	if time.Since(e.at) < fresh {
		return e.last, nil
	}
	var x hutch.Examination
	for _, runtime := range e.d.runtimes {
		x.Parts = append(x.Parts, partOf(runtime.Name(), true, host.Check(ctx, runtime)))
	}
	x.Parts = append(x.Parts, partOf("image host", false, host.CheckImage(ctx, host.Images(e.d.cfg.Data.Images(), e.d.cfg.Sandboxes.Image))))
	if err := context.Cause(ctx); err != nil {
		return hutch.Examination{}, err
	}
	e.last, e.at = x, time.Now()
	return x, nil
}

func partOf(name string, runtime bool, r driver.Report) hutch.ExaminedPart {
	p := hutch.ExaminedPart{Part: name, Runtime: runtime, OK: r.OK, Findings: []hutch.Finding{}}
	for _, f := range r.Findings {
		finding := hutch.Finding{Name: f.Name, Level: string(f.Level), Detail: f.Detail}
		if f.Level != driver.Good {
			finding.Fix = f.Fix
		}
		p.Findings = append(p.Findings, finding)
	}
	return p
}

// VerifyAudit implements hutch.Examiner.
func (e *examiner) VerifyAudit(ctx context.Context, head string) (hutch.AuditVerification, error) {
	if err := audit.CheckHead(head); err != nil {
		return hutch.AuditVerification{}, hutch.Errorf(hutch.Invalid, "%v: give what an earlier report has as head", err).Naming(hutch.AboutField, "head")
	}
	e.reading.Lock()
	defer e.reading.Unlock()
	r, err := audit.Verify(ctx, datadir.AuditLog(e.d.dir), head)
	if err != nil {
		return hutch.AuditVerification{}, err
	}
	v := hutch.AuditVerification{OK: r.OK(), Lines: r.Lines, First: r.First, Last: r.Last, Head: fmt.Sprintf("%d:%s", r.Last, r.Head), Notes: r.Notes, Findings: []hutch.AuditFinding{}}
	for _, f := range r.Findings {
		v.Findings = append(v.Findings, hutch.AuditFinding{File: filepath.Base(f.File), Line: f.Line, What: f.What})
	}
	return v, nil
}
