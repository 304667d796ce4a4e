package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"hutch"
)

// Phase says what a line is about.
type Phase string

const (
	Begin Phase = "begin" // an operation has begun
	End   Phase = "end"   // an operation has ended
	Mark  Phase = "mark"  // an entry of the log itself
)

// Verbs of marks.
const (
	AuditStart  = "AuditStart"  // the log was opened
	AuditTorn   = "AuditTorn"   // a last line was incomplete: its bytes were set aside
	AuditGap    = "AuditGap"    // lines that were known to be on disk are missing
	AuditLost   = "AuditLost"   // this many lines could not be written
	AuditExpire = "AuditExpire" // old files were removed; the target is their last line
)

// Interrupted is the result of an operation that was in progress when the daemon was killed.
const Interrupted = "interrupted"

// Record is one line.
type Record struct {
	Seq   int64  `json:"seq"`
	Prev  string `json:"prev"`
	Phase Phase  `json:"phase"`
	Began int64  `json:"began,omitempty"` // for phase "end": the number of the operation's line of phase "begin"
	Operation
	Hash string `json:"hash"`
}

// Bounds on texts from callers, in bytes.
const (
	maxWord   = 128
	maxTarget = 256
	maxError  = 512
	// maxLine is longer than any line of the log, even with every byte escaped.
	maxLine = 32 << 10
)

// end returns the operation with its outcome.
func (op Operation) end(o Outcome, now time.Time) Operation {
	op.Sandbox = cmp.Or(op.Sandbox, o.Sandbox)
	op.Result, op.Duration = ResultOf(o.Err), now.Sub(op.Time)
	if o.Err != nil {
		op.Error = hutch.AsError(o.Err).Message
	}
	return op
}

// bounded cuts and cleans texts from callers, so that a record is one line of bounded length.
func (op Operation) bounded() Operation {
	for _, s := range []*string{&op.Token, &op.TokenName, &op.Owner, &op.Sandbox, &op.Verb, &op.Result, &op.Surface, &op.Remote, &op.Request, &op.ClientRequest, &op.Trace} {
		*s = Head(*s, maxWord)
	}
	op.Target, op.Error = Head(op.Target, maxTarget), Head(op.Error, maxError)
	op.Time = op.Time.UTC()
	return op
}

// digest is a SHA-256 in hexadecimal.
type digest [2 * sha256.Size]byte

// origin is the value of prev in the first line.
var origin = digest([]byte(strings.Repeat("0", 2*sha256.Size)))

func digestOf(b []byte) (d digest) {
	sum := sha256.Sum256(b)
	hex.Encode(d[:], sum[:])
	return d
}

// content returns the part of a line that is independent of the chain: everything after the number and the previous
// hash.
func content(phase Phase, began int64, op Operation) ([]byte, error) {
	b, err := json.Marshal(struct {
		Phase Phase `json:"phase"`
		Began int64 `json:"began,omitempty"`
		Operation
	}{phase, began, op.bounded()})
	return bytes.TrimSuffix(bytes.TrimPrefix(b, []byte("{")), []byte("}")), err
}

const (
	beforeSeq  = `{"seq":`
	beforePrev = `,"prev":"`
	beforeHash = `,"hash":"`
	lineEnd    = "\"}\n"
	tail       = len(beforeHash) + len(digest{}) + len(lineEnd)
)

// appendLine adds a line to b, and returns its hash.
func appendLine(b []byte, seq int64, prev digest, content []byte) ([]byte, digest) {
	start := len(b)
	b = strconv.AppendInt(append(b, beforeSeq...), seq, 10)
	b = append(append(b, beforePrev...), prev[:]...)
	b = append(append(b, `",`...), content...)
	hash := digestOf(b[start:])
	b = append(append(b, beforeHash...), hash[:]...)
	return append(b, lineEnd...), hash
}

// link is the part of a line that the chain needs.
type link struct {
	seq        int64
	prev, hash digest
}

var errMalformed = errors.New("this is not a line of an audit log")

// parseLink reads a line's number and hashes, and reports whether its own hash is right.
func parseLink(line []byte) (l link, intact bool, err error) {
	rest, ok := bytes.CutPrefix(line, []byte(beforeSeq))
	number, rest, ok2 := bytes.Cut(rest, []byte(beforePrev))
	l.seq, err = strconv.ParseInt(string(number), 10, 64)
	if !ok || !ok2 || err != nil || len(rest) < len(l.prev)+tail || !bytes.HasSuffix(line, []byte(lineEnd)) {
		return l, false, errMalformed
	}
	copy(l.prev[:], rest)
	body, end := line[:len(line)-tail], line[len(line)-tail:]
	if !bytes.HasPrefix(end, []byte(beforeHash)) {
		return l, false, errMalformed
	}
	copy(l.hash[:], end[len(beforeHash):])
	return l, digestOf(body) == l.hash, nil
}
