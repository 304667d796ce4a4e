package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/headtail"
)

const (
	// toolTime is when the SDK gives up on a call. bashTime is how long a command can take; it is shorter, so that the
	// agent still gets the command's output.
	toolTime = 120 * time.Second
	bashTime = 115 * time.Second
	// shellIdle is how long the shell waits for the next command, in seconds.
	shellIdle = 30 * 24 * 3600

	maxFile  = 256 << 10 // bytes of a file that the tool read returns
	maxFound = 200       // paths that the tool glob returns
)

type bashInput struct {
	Command   string `json:"command"`
	Restart   bool   `json:"restart"`
	TimeoutMs int64  `json:"timeout_ms"`
}

// runBash runs a command in the shell of the session. Its state outlives the call, the work item and this worker.
func runBash(ctx context.Context, s *session, in bashInput) (string, error) {
	if in.Restart {
		if err := s.svc.DeleteContext(ctx, s.sandbox, shell); err != nil && hutch.KindOf(err) != hutch.NotFound {
			return "", err
		}
		if in.Command == "" {
			return "the shell was restarted", nil
		}
	}
	if in.Command == "" {
		return "", errors.New("bash: command is required")
	}
	if _, err := s.svc.CreateContext(ctx, s.sandbox, hutch.ContextRequest{ID: shell, Language: "bash", Dir: workDir, IdleTimeout: shellIdle}); err != nil {
		return "", err
	}
	limit := bashLimit(ctx, in.TimeoutMs)
	out := headtail.Ends{Limit: maxText / 2}
	res, err := s.svc.RunCode(ctx, s.sandbox, hutch.RunRequest{ContextID: shell, Code: merged(in.Command), Timeout: hutch.InSeconds(limit), StreamOnly: true}, func(e hutch.RunEvent) error {
		if e.Output != nil {
			out.Add(e.Output.Data)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return bashResult(res, string(out.Bytes()), out.Cut(), limit)
}

// bashLimit returns how long a command can take: as long as the agent requests, but less than the SDK's time limit for
// the call. Creating or waking the sandbox has used a part of that time.
func bashLimit(ctx context.Context, asked int64) time.Duration {
	limit := bashTime
	if asked > 0 && asked < bashTime.Milliseconds() {
		limit = time.Duration(asked) * time.Millisecond
	}
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, (time.Until(end) - toolTime + bashTime).Truncate(time.Second))
	}
	return max(limit, time.Millisecond)
}

// merged sends both outputs of a command through one pipe, which keeps their order.
func merged(command string) string { return "{ " + command + "\n} 2>&1" }

// bashResult returns the text about a command that the agent reads.
func bashResult(res hutch.RunResult, text string, cut bool, limit time.Duration) (string, error) {
	if cut {
		text += "\n[the middle of the output was left out: write long output to a file, and read parts of it]"
	}
	switch {
	case res.TimedOut:
		return "", fmt.Errorf("%s\n[killed at its time limit of %v; the shell keeps its state. Start long programs in the background]", text, limit)
	case res.Limit != "":
		return "", fmt.Errorf("%s\n[the sandbox reached its limit of %s]", text, res.Limit)
	case len(res.Denied) > 0:
		text += "\n[the network of this sandbox does not allow: " + strings.Join(res.Denied, ", ") + "]"
	}
	if res.ExitCode != 0 {
		return "", fmt.Errorf("%s\nexit code: %d", text, res.ExitCode)
	}
	return text, nil
}

type readInput struct {
	Path  string `json:"file_path"`
	Range []int  `json:"view_range"`
}

func runRead(ctx context.Context, s *session, in readInput) (string, error) {
	req := hutch.ReadRequest{Path: in.Path, Length: maxFile + 1}
	switch {
	case in.Path == "":
		return "", errors.New("read: file_path is required")
	case len(in.Range) == 2:
		req = hutch.ReadRequest{Path: in.Path, FirstLine: max(in.Range[0], 1), LastLine: max(in.Range[1], 0)}
	case len(in.Range) != 0:
		return "", errors.New("read: view_range is [first line, last line]")
	}
	var b limited
	info, err := s.svc.ReadFile(ctx, s.sandbox, req, &b)
	switch {
	case errors.Is(err, errTooLong) || err == nil && b.Len() > maxFile:
		return "", fmt.Errorf("read: %s has %d bytes, and this tool reads %d: give a view_range, or use bash with head, tail or sed", in.Path, info.Size, maxFile)
	case err != nil:
		return "", err
	case isBinary(b.Bytes()):
		return "", fmt.Errorf("read: %s is not text: it has %d bytes; use bash with file or xxd", in.Path, info.Size)
	}
	return b.String(), nil
}

var errTooLong = errors.New("too long")

// limited keeps a little more than the longest file, and then fails.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxFile+(64<<10) {
		return 0, errTooLong
	}
	return l.Buffer.Write(p)
}

type writeInput struct {
	Path    string `json:"file_path"`
	Content string `json:"content"`
}

func runWrite(ctx context.Context, s *session, in writeInput) (string, error) {
	if in.Path == "" {
		return "", errors.New("write: file_path is required")
	}
	if _, err := s.svc.WriteFile(ctx, s.sandbox, hutch.WriteRequest{Path: in.Path, Parents: true}, strings.NewReader(in.Content)); err != nil {
		return "", err
	}
	return fmt.Sprintf("wrote %d bytes to %s", len(in.Content), in.Path), nil
}

type editInput struct {
	Path string `json:"file_path"`
	Old  string `json:"old_string"`
	New  string `json:"new_string"`
	All  bool   `json:"replace_all"`
}

func runEdit(ctx context.Context, s *session, in editInput) (string, error) {
	switch {
	case in.Path == "":
		return "", errors.New("edit: file_path is required")
	case in.Old == "":
		return "", errors.New("edit: old_string is required")
	}
	done, err := s.svc.EditFile(ctx, s.sandbox, hutch.EditRequest{Path: in.Path, Old: in.Old, New: in.New, All: in.All})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("edited %s: %d replacements", in.Path, done.Replacements), nil
}

type findInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

// runGlob lists paths, the newest first. A pattern without a slash is for the folder itself, as in a shell.
func runGlob(ctx context.Context, s *session, in findInput) (string, error) {
	dir, pattern := cmp.Or(in.Path, "."), in.Pattern
	switch {
	case pattern == "":
		return "", errors.New("glob: pattern is required")
	case slices.Contains(strings.Split(pattern, "/"), ".."):
		return "", fmt.Errorf("glob: the pattern %q has a part \"..\": give the folder as path", pattern)
	case path.IsAbs(pattern):
		dir, pattern = "/", strings.TrimLeft(pattern, "/")
	}
	req := hutch.ListRequest{Path: dir, Glob: pattern, Hidden: strings.HasPrefix(pattern, ".") || strings.Contains(pattern, "/.")}
	if !strings.Contains(pattern, "/") {
		req.Depth = 1
	}
	var found []hutch.FileInfo
	err := s.svc.ListFiles(ctx, s.sandbox, req, func(f hutch.FileInfo) error {
		found = append(found, f)
		return nil
	})
	if err != nil && !errors.Is(err, hutch.Exhausted) {
		return "", err
	}
	slices.SortStableFunc(found, func(a, b hutch.FileInfo) int { return b.Modified.Compare(a.Modified) })
	var text strings.Builder
	for _, f := range found[:min(len(found), maxFound)] {
		fmt.Fprintln(&text, f.Path)
	}
	return listed(text.String(), err != nil || len(found) > maxFound), nil
}

// runGrep lists lines that match.
func runGrep(ctx context.Context, s *session, in findInput) (string, error) {
	if in.Pattern == "" {
		return "", errors.New("grep: pattern is required")
	}
	var text strings.Builder
	full := errors.New("full")
	err := s.svc.SearchFiles(ctx, s.sandbox, hutch.SearchRequest{Path: cmp.Or(in.Path, "."), Pattern: in.Pattern}, func(m hutch.Match) error {
		if text.Len()+len(m.Path)+len(m.Text) > maxText-200 {
			return full
		}
		fmt.Fprintf(&text, "%s:%d:%s\n", m.Path, m.Line, strings.TrimRight(m.Text, "\r\n"))
		return nil
	})
	cut := errors.Is(err, full) || errors.Is(err, hutch.Exhausted)
	if err != nil && !cut {
		return "", err
	}
	return listed(text.String(), cut), nil
}

// listed returns the text of a list.
func listed(text string, cut bool) string {
	switch {
	case text == "":
		return "no matches"
	case cut:
		return text + "[there is more: narrow the pattern or the path]"
	}
	return strings.TrimSuffix(text, "\n")
}
