package hutch

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Timelines show what happened in sandboxes.
type Timelines interface {
	// Timeline passes entries of a sandbox's timeline to out, in the order of their cursors. With Follow it continues
	// with new entries until out fails or ctx is done. Only the owner can read a timeline, even after the sandbox was
	// destroyed. It wakes no sandbox.
	Timeline(ctx context.Context, sandbox string, q TimelineQuery, out func(TimelineEntry) error) error
}

// TimelineKind is the subject of an entry.
type TimelineKind string

const (
	TimelineLife     TimelineKind = "life"     // created, asleep, awake, dead, destroyed
	TimelineCommand  TimelineKind = "command"  // commands and background processes
	TimelineCode     TimelineKind = "code"     // code contexts
	TimelineFile     TimelineKind = "file"     // changes of files by a caller; changes by programs are not recorded
	TimelineGit      TimelineKind = "git"      // git operations of a caller
	TimelineNetwork  TimelineKind = "network"  // changes of network rules, and allowed and denied connections
	TimelinePort     TimelineKind = "port"     // exposed ports, and connections to ports
	TimelineSnapshot TimelineKind = "snapshot" // snapshots, forks, backups and images
	TimelineShare    TimelineKind = "share"    // grants
	TimelineQuestion TimelineKind = "question" // questions whose programs ran in the sandbox
)

// TimelineKinds lists all kinds.
var TimelineKinds = []TimelineKind{
	TimelineLife, TimelineCommand, TimelineCode, TimelineFile, TimelineGit, TimelineNetwork, TimelinePort, TimelineSnapshot, TimelineShare, TimelineQuestion,
}

// TimelineEntry is one event in a sandbox.
type TimelineEntry struct {
	// ID is the permanent number of the entry. It is unique among all sandboxes that the owner had under this id.
	ID int64 `json:"id"`
	// Cursor is the position of the entry. An entry that is still running moves to the end when it has ended.
	Cursor   int64        `json:"cursor"`
	Time     time.Time    `json:"time"`     // when it began
	Duration Seconds      `json:"duration"` // 0 while it is running
	Kind     TimelineKind `json:"kind"`
	// Event is the verb, as in the audit log, such as "Exec"; for events that no caller requested, it is "Created",
	// "Forked", "Woken", "Hibernated", "Stopped", "MemoryLimit", "Failed", "Destroyed"; for a background process,
	// "ProcessEnded", whose time is that of the end; for the network, "Allowed" or "Denied".
	Event string `json:"event"`
	// Target is a path, the head of a command or of code, an address, or the reason for the event.
	Target string `json:"target,omitempty"`
	// Result is "ok", "running", "interrupted" (the server ended meanwhile), "failed" (the program did), "canceled", or
	// the kind of the error.
	Result   string `json:"result"`
	Error    string `json:"error,omitempty"`
	ExitCode *int   `json:"exitCode,omitempty"` // exit code of a program that has ended
	// Limit names the limit that ended the program: "memory" or "time".
	Limit string `json:"limit,omitempty"`
	// Snapshot is the id of a snapshot that was made, or that the sandbox started from.
	Snapshot string `json:"snapshotId,omitempty"`
	// Sandboxes are the ids of the sandboxes that the call created, or of the one that this sandbox was created from.
	Sandboxes []string `json:"sandboxIds,omitempty"`
	Process   string   `json:"processId,omitempty"`
	Context   string   `json:"contextId,omitempty"`
	// Skipped is how many earlier network events were left out, because there were too many at once.
	Skipped int `json:"skipped,omitempty"`

	// Token and TokenName are id and name of the caller's token; they are empty for actions of the server or a program.
	Token     string `json:"token,omitempty"`
	TokenName string `json:"tokenName,omitempty"`
	// Surface is the API of the call: "rest", "mcp", "conversation", the name of a compatible API; empty for actions of
	// the server or a program.
	Surface string `json:"surface,omitempty"`
	Request string `json:"request,omitempty"` // id of the HTTP request, as in the audit log
}

// TimelinePage is a part of a timeline, for a client that does not follow the timeline.
type TimelinePage struct {
	Entries []TimelineEntry `json:"entries"` // never null in JSON
	Next    int64           `json:"next"`    // the cursor to continue from
}

// The results of entries that are not the kind of an error.
const (
	TimelineOK          = "ok"
	TimelineRunning     = "running"
	TimelineInterrupted = "interrupted"
	TimelineFailed      = "failed"
)

// TimelineQuery chooses entries.
type TimelineQuery struct {
	After  int64 // a cursor: only newer entries
	Before int64 // a cursor: only older entries; 0 is no bound
	ID     int64 // only the entry of that id; 0 is all
	// Since and Until bound when an entry began.
	Since, Until time.Time
	Kinds        []TimelineKind // empty means all
	Text         string         // in the event, the target, the error or the name of the token, ignoring case
	// Limit is the highest number of entries: the newest ones, or the first ones after After; default 100. With Follow
	// it limits the past entries; all new ones follow.
	Limit  int
	Follow bool
}

// MaxTimeline is the highest limit of a query, and DefaultTimeline the default.
const (
	MaxTimeline     = 1000
	DefaultTimeline = 100
)

// Check refuses a query that no server can answer.
func (q TimelineQuery) Check() error {
	switch {
	case q.After < 0 || q.Before < 0 || q.ID < 0:
		return Errorf(Invalid, "after, before and id are numbers of entries: they are not negative").Naming(AboutField, "after")
	case q.Limit < 0 || q.Limit > MaxTimeline:
		return Errorf(Invalid, "limit is %d: give 1 to %d, and continue with after", q.Limit, MaxTimeline).Naming(AboutField, "limit")
	case len(q.Text) > maxTimelineText:
		return Errorf(Invalid, "text has %d bytes: search for at most %d", len(q.Text), maxTimelineText).Naming(AboutField, "text")
	case q.Follow && (q.Before > 0 || q.ID > 0 || !q.Until.IsZero()):
		return Errorf(Invalid, "follow has no end: leave out before, id and until").Naming(AboutField, "follow")
	}
	for _, k := range q.Kinds {
		if !slices.Contains(TimelineKinds, k) {
			return Errorf(Invalid, "there is no kind %.40q: use %s", k, kindList()).Naming(AboutField, "kind")
		}
	}
	return nil
}

const maxTimelineText = 200

func kindList() string {
	names := make([]string, len(TimelineKinds))
	for i, k := range TimelineKinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

// Match reports whether an entry matches the query, apart from its limit.
func (q TimelineQuery) Match(e TimelineEntry) bool {
	return e.Cursor > q.After && (q.Before == 0 || e.Cursor < q.Before) && (q.ID == 0 || e.ID == q.ID) &&
		(q.Since.IsZero() || !e.Time.Before(q.Since)) && (q.Until.IsZero() || e.Time.Before(q.Until)) &&
		(len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind)) && (q.Text == "" || e.contains(strings.ToLower(q.Text)))
}

func (e TimelineEntry) contains(text string) bool {
	return slices.ContainsFunc([]string{e.Event, e.Target, e.Error, e.TokenName, e.Surface, e.Result}, func(s string) bool {
		return strings.Contains(strings.ToLower(s), text)
	})
}
