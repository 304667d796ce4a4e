package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Report is the result of Verify.
type Report struct {
	Lines int64 `json:"lines"`
	First int64 `json:"first"` // number of the first line
	Last  int64 `json:"last"`
	// Head is the hash of the last line. A copy of it can later prove that the log still has all these lines.
	Head string `json:"head"`
	// Notes are the log's own marks about its gaps.
	Notes    []string  `json:"notes"`    // at most 100
	Findings []Finding `json:"findings"` // at most 100
}

// OK reports whether the log is unchanged.
func (r *Report) OK() bool { return len(r.Findings) == 0 }

// Finding is a place where the log was changed.
type Finding struct {
	File string `json:"file"`
	Line int64  `json:"line"` // line number in the file, from 1; 0 for the log as a whole
	Seq  int64  `json:"seq,omitempty"`
	What string `json:"what"`
}

const maxFindings = 100

// Verify reads the log of a folder and finds lines that were changed, removed,
// inserted or moved. The log can be in use.
//
// An attacker who can write to the folder can also replace the log with a new, consistent one. head protects against
// that: it is the "SEQ:HASH" of a line that was printed earlier, and that must still be there. If head is empty, this
// is not checked.
func Verify(ctx context.Context, dir, head string) (Report, error) {
	v := verifier{Report: Report{Notes: []string{}, Findings: []Finding{}}, known: map[int64]string{}}
	if known := loadCheckpoint(dir); known.Seq > 0 {
		v.known[known.Seq] = known.Hash
	}
	if seq, hash, err := parseHead(head); err != nil {
		return Report{}, err
	} else if head != "" {
		v.known[seq] = hash
	}
	r, err := readFrom(dir, "", 0)
	if err != nil {
		return Report{}, err
	}
	defer r.Close()
	for ctx.Err() == nil {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			v.conclude()
			return v.Report, nil
		}
		if err != nil {
			return Report{}, err
		}
		v.check(r.name, line)
	}
	return Report{}, context.Cause(ctx)
}

// CheckHead checks the form of a head; an empty head is valid.
func CheckHead(head string) error {
	_, _, err := parseHead(head)
	return err
}

func parseHead(head string) (seq int64, hash string, err error) {
	if head == "" {
		return 0, "", nil
	}
	number, hash, _ := strings.Cut(head, ":")
	if seq, err = strconv.ParseInt(number, 10, 64); err != nil || len(hash) != len(digest{}) {
		return 0, "", fmt.Errorf("%.100q is not SEQ:HASH", head)
	}
	return seq, hash, nil
}

type verifier struct {
	Report
	at    Finding // position of the present line
	last  link
	hangs string           // expected target of the mark about the removed lines before the first line
	known map[int64]string // hashes of lines that must be there
}

func (v *verifier) find(format string, args ...any) {
	if len(v.Findings) < maxFindings {
		f := v.at
		f.What = fmt.Sprintf(format, args...)
		v.Findings = append(v.Findings, f)
	}
}

func (v *verifier) check(file string, line []byte) {
	if file != v.at.File {
		v.at = Finding{File: file}
	}
	v.at.Line++
	l, intact, err := parseLink(line)
	if v.at.Seq = l.seq; err != nil {
		v.find("this is not a line of an audit log")
		return
	}
	if v.Lines++; v.Lines == 1 {
		v.begin(l)
	}
	switch {
	case !intact:
		v.find("the line was changed: its hash is not that of its text")
	case l.seq > v.last.seq+1:
		v.find("the lines %d to %d are missing", v.last.seq+1, l.seq-1)
	case l.seq <= v.last.seq:
		v.find("the line is out of order, behind line %d", v.last.seq)
	case l.prev != v.last.hash:
		v.find("the line before is not the one that this was written after")
	}
	v.last = l
	v.compare(l)
	if bytes.Contains(line, []byte(`"phase":"mark"`)) {
		v.mark(line)
	}
}

// begin handles the first line. If lines were removed before it, a later mark must record them.
func (v *verifier) begin(l link) {
	v.First = l.seq
	v.last = link{seq: l.seq - 1, hash: l.prev}
	if l.seq != 1 || l.prev != origin {
		v.hangs = expired(v.last)
	}
}

// compare checks a line against hashes that are known from elsewhere.
func (v *verifier) compare(l link) {
	if hash, ok := v.known[l.seq]; ok {
		if hash != string(l.hash[:]) {
			v.find("the log was rewritten: this line had the hash %s", hash)
		}
		delete(v.known, l.seq)
	}
}

// mark evaluates a mark of the log.
func (v *verifier) mark(line []byte) {
	var rec Record
	if json.Unmarshal(line, &rec) != nil || rec.Phase != Mark {
		return
	}
	switch {
	case rec.Verb == AuditExpire && rec.Target == v.hangs:
		v.hangs = ""
	case len(v.Notes) < maxFindings && (rec.Verb == AuditTorn || rec.Verb == AuditGap || rec.Verb == AuditLost):
		v.Notes = append(v.Notes, fmt.Sprintf("line %d: %s %s", rec.Seq, rec.Verb, rec.Target))
	}
}

func (v *verifier) conclude() {
	v.Last, v.Head = v.last.seq, string(bytes.TrimRight(v.last.hash[:], "\x00"))
	v.at = Finding{File: v.at.File}
	if v.hangs != "" {
		v.find("the log begins with line %d, and no mark says that older ones were removed", v.First)
	}
	for seq := range v.known {
		switch {
		case seq >= v.First && v.Lines > 0:
			v.find("line %d was on disk, and is missing", seq)
		case v.Lines == 0:
			v.find("the log is empty, and had %d lines", seq)
		}
	}
}
