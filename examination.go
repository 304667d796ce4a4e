package hutch

import "context"

// Examiner looks at a server itself. Both methods need the scope admin.
type Examiner interface {
	// Examine reports what works on the server's machine, what does not, and how to fix it, as `hutch doctor` does.
	Examine(ctx context.Context) (Examination, error)
	// VerifyAudit reports whether the audit log is unchanged. It must still contain head, the "SEQ:HASH" of an earlier
	// report; an empty head is not checked.
	VerifyAudit(ctx context.Context, head string) (AuditVerification, error)
}

// Examination is the result of examining a server's machine.
type Examination struct {
	Parts []ExaminedPart `json:"parts"`
}

// ExaminedPart is one part of a server: a runtime, or the host image.
type ExaminedPart struct {
	Part     string    `json:"part"`
	Runtime  bool      `json:"runtime"` // the part is a runtime
	OK       bool      `json:"ok"`      // it works
	Findings []Finding `json:"findings"`
}

// Finding is the result of one check.
type Finding struct {
	Name   string `json:"name"`
	Level  string `json:"level"`  // "ok", "warning", or "error"
	Detail string `json:"detail"` // the result of the check
	Fix    string `json:"fix,omitempty"`
}

// AuditVerification is a report about the audit log.
type AuditVerification struct {
	OK    bool  `json:"ok"` // no line was changed, removed, added or moved
	Lines int64 `json:"lines"`
	First int64 `json:"first"` // number of the first line
	Last  int64 `json:"last"`
	// Head names the last line. A copy of it, kept elsewhere, shows later that the log still has all its lines.
	Head     string         `json:"head"`
	Notes    []string       `json:"notes"`    // the log's own notes about its gaps, at most 100
	Findings []AuditFinding `json:"findings"` // at most 100
}

// AuditFinding is a place where the audit log was changed.
type AuditFinding struct {
	File string `json:"file"`
	Line int64  `json:"line"` // in the file, from 1; 0 for the whole log
	What string `json:"what"`
}
