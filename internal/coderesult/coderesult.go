// Package coderesult collects the result of a run of code: output, values and an error, within limits.
package coderesult

import (
	"hutch"
	"hutch/internal/headtail"
	"hutch/internal/kernel"
)

// Limits on the kept results of one run.
const (
	maxResults     = 1000
	maxResultBytes = 32 << 20
)

// Record keeps the results of a run, and passes them on.
type Record struct {
	kept    *headtail.Output
	take    func(bytes int) bool
	out     func(hutch.RunEvent) error
	results []hutch.CodeResult
	size    int
	cut     bool
	fault   *hutch.CodeError
}

// New returns a Record that keeps output in kept, and calls take before it keeps a value.
// Events go to out, which may be nil.
func New(kept *headtail.Output, take func(bytes int) bool, out func(hutch.RunEvent) error) *Record {
	return &Record{kept: kept, take: take, out: out}
}

// PassOn returns a Record that keeps nothing, and only passes events to out.
func PassOn(out func(hutch.RunEvent) error) *Record {
	return New(nil, func(int) bool { return false }, out)
}

func (r *Record) hand(e hutch.RunEvent) error {
	if r.out == nil {
		return nil
	}
	return r.out(e)
}

// Output handles output of the code.
func (r *Record) Output(o hutch.Output) error {
	r.kept.Add(o)
	return r.hand(hutch.RunEvent{Output: &o})
}

// Message handles a message of the interpreter. It drops invalid messages, because user code can send messages, too.
func (r *Record) Message(m []byte) error {
	e, err := kernel.Parse(m)
	if err != nil {
		return nil
	}
	switch {
	case e.Input != nil:
	case e.Error != nil:
		r.fault = e.Error
	case len(r.results) < maxResults && r.size+len(m) <= maxResultBytes && r.take(len(m)):
		r.results = append(r.results, *e.Result)
		r.size += len(m)
	default:
		r.cut = true
	}
	return r.hand(e)
}

// Result returns the kept result.
func (r *Record) Result() hutch.RunResult {
	res := hutch.RunResult{Results: r.results, Error: r.fault}
	res.Stdout, res.Stderr, res.Truncated = r.kept.Result()
	res.Truncated = res.Truncated || r.cut
	return res
}
