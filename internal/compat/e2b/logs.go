package e2b

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"hutch"
)

// logEntry is a line of the logs of a sandbox, made from an entry of its timeline.
type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Message   string            `json:"message"`
	Level     string            `json:"level"`
	Fields    map[string]string `json:"fields"`
}

// logLine is a line of the logs in E2B's older form.
type logLine struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

const maxLogs = 1000

// logChoice says which lines a client requests.
type logChoice struct {
	from   time.Time // start of the period, or its end if the newest lines come first
	newest bool
	limit  int
	level  int // index in levels
	search string
}

func readLogChoice(r *http.Request, start string) (q logChoice, err error) {
	v := r.URL.Query()
	ms, given, err := numberIn(r, start)
	if err != nil {
		return q, err
	}
	if given {
		q.from = time.UnixMilli(ms)
	}
	limit, given, err := numberIn(r, "limit")
	if err != nil {
		return q, err
	}
	if q.limit = maxLogs; given {
		q.limit = int(min(limit, maxLogs))
	}
	switch direction := v.Get("direction"); direction {
	case "", "forward":
	case "backward":
		q.newest = true
	default:
		return q, badQuery("direction", direction)
	}
	if q.level = slices.Index(levels, cmp.Or(v.Get("level"), levels[0])); q.level < 0 {
		return q, badQuery("level", v.Get("level"))
	}
	q.search = v.Get("search")
	return q, nil
}

// logsV1 answers in both forms.
func (s *Server) logsV1(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	entries, err := s.logEntries(r, "start")
	lines := make([]logLine, len(entries))
	for i, e := range entries {
		line, _ := json.Marshal(e)
		lines[i] = logLine{e.Timestamp, string(line)}
	}
	return http.StatusOK, map[string]any{"logs": lines, "logEntries": entries}, err
}

func (s *Server) logsV2(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	entries, err := s.logEntries(r, "cursor")
	return http.StatusOK, map[string]any{"logs": entries}, err
}

// logEntries returns the lines that a client requests, oldest first unless it requests the newest.
func (s *Server) logEntries(r *http.Request, start string) ([]logEntry, error) {
	q, err := readLogChoice(r, start)
	if err != nil {
		return nil, err
	}
	sb, err := s.find(r)
	if err != nil {
		return nil, err
	}
	if s.opt.Timelines == nil {
		return nil, hutch.Errorf(hutch.Unsupported, "this server does not have the logs of a sandbox")
	}
	entries, err := s.readTimeline(r, sb.ID, q)
	if q.newest {
		slices.Reverse(entries)
	}
	return entries, err
}

// cut keeps as many entries as the client requests, oldest first.
func (q logChoice) cut(entries []logEntry) []logEntry {
	slices.SortStableFunc(entries, func(a, b logEntry) int { return a.Timestamp.Compare(b.Timestamp) })
	if q.newest {
		return entries[max(0, len(entries)-q.limit):]
	}
	return entries[:min(len(entries), q.limit)]
}

// readTimeline reads pages of the timeline, newest first, until it has enough lines.
func (s *Server) readTimeline(r *http.Request, sandbox string, q logChoice) ([]logEntry, error) {
	ask := hutch.TimelineQuery{Limit: hutch.MaxTimeline}
	if q.newest {
		ask.Until = q.from
	} else {
		ask.Since = q.from
	}
	entries := []logEntry{}
	for {
		read, oldest := 0, int64(0)
		err := s.opt.Timelines.Timeline(r.Context(), sandbox, ask, func(e hutch.TimelineEntry) error {
			if read++; oldest == 0 || e.Cursor < oldest {
				oldest = e.Cursor
			}
			if l := logOf(e); slices.Index(levels, l.Level) >= q.level && strings.Contains(l.Message, q.search) {
				entries = append(entries, l)
			}
			return nil
		})
		entries = q.cut(entries)
		if err != nil || read < ask.Limit || q.newest && len(entries) == q.limit {
			return entries, err
		}
		ask.Before = oldest
	}
}

// logOf describes an entry in one line.
func logOf(e hutch.TimelineEntry) logEntry {
	l := logEntry{Timestamp: e.Time.UTC(), Message: e.Event, Level: "info", Fields: map[string]string{"kind": string(e.Kind), "event": e.Event, "result": e.Result}}
	if e.Target != "" {
		l.Message += " " + e.Target
	}
	if e.Error != "" {
		l.Message += ": " + e.Error
	}
	switch e.Result {
	case hutch.TimelineOK, hutch.TimelineRunning:
	case hutch.TimelineFailed, hutch.TimelineInterrupted:
		l.Level = "warn"
	default:
		l.Level = "error"
	}
	if e.ExitCode != nil {
		l.Fields["exitCode"] = strconv.Itoa(*e.ExitCode)
	}
	for name, value := range map[string]string{"limit": e.Limit, "processId": e.Process, "contextId": e.Context, "snapshotId": e.Snapshot} {
		if value != "" {
			l.Fields[name] = value
		}
	}
	return l
}
