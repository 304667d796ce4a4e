package ask

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/text"
)

const (
	maxOutput = 1 << 20 // bytes of each of stdout and stderr: a program that writes more is killed
	spareTime = 5 * time.Minute
	cleanTime = 30 * time.Second
)

// leaving destroys the sandboxes of answered questions in the background, so that answers do not wait for it. At most
// cap(slots) are destroyed in the background; if there are more, their answers wait.
type leaving struct {
	slots    chan struct{}
	draining sync.Mutex
}

// maxLeaving bounds how many sandboxes are destroyed in the background at once.
const maxLeaving = 8

func newLeaving() *leaving { return &leaving{slots: make(chan struct{}, maxLeaving)} }

// run calls destroy, in the background if there is a free slot.
func (l *leaving) run(destroy func()) {
	select {
	case l.slots <- struct{}{}:
		go func() {
			defer func() { <-l.slots }()
			destroy()
		}()
	default:
		destroy()
	}
}

// drain waits until the sandboxes that are being destroyed now are gone. Each takes at most cleanTime.
func (l *leaving) drain(ctx context.Context) {
	l.draining.Lock()
	defer l.draining.Unlock()
	taken := 0
	for taken < cap(l.slots) && ctx.Err() == nil {
		select {
		case l.slots <- struct{}{}:
			taken++
		case <-ctx.Done():
		}
	}
	for range taken {
		<-l.slots
	}
}

// box is the sandbox of a question. It is created when the first program exists.
type box struct {
	svc     hutch.Service
	gone    *leaving
	q       hutch.Question
	id      string              // empty until it is created
	sandbox hutch.Sandbox       // sandbox of the conversation, if there is one already
	dir     string              // the working folder's path in the sandbox
	given   map[string]fileMark // the files before the program ran
}

// fileMark is what is known of a file before a program runs, to find out whether the program changes it.
type fileMark struct {
	size     int64
	modified time.Time
}

func newBox(svc hutch.Service, gone *leaving, q hutch.Question) *box {
	return &box{svc: svc, gone: gone, q: q, given: map[string]fileMark{}}
}

// find looks for the sandbox of the conversation, and does not wake it.
func (b *box) find(ctx context.Context) (hutch.Sandbox, error) {
	if b.q.ConversationID == "" {
		return hutch.Sandbox{}, nil
	}
	sb, err := b.svc.Sandbox(ctx, b.q.SandboxID())
	if err != nil && hutch.KindOf(err) == hutch.NotFound {
		return hutch.Sandbox{}, nil
	}
	b.sandbox = sb
	return sb, err
}

// network returns the network that the question requests. A network without a mode and rules would become the server's
// default, but a question's must be empty, so the mode is none. With links it is an allow list, because the mode none
// blocks links, too.
func (b *box) network() hutch.Network {
	n := b.q.Network
	switch {
	case n.Mode != "" || len(n.Allow) > 0:
	case len(n.Links) > 0:
		n.Mode = hutch.NetworkAllowList
	default:
		n.Mode = hutch.NetworkNone
	}
	return n
}

// open creates the sandbox, or finds the conversation's, and puts the files into it.
func (b *box) open(ctx context.Context) error {
	if b.id != "" {
		return nil
	}
	req := hutch.CreateRequest{ID: b.q.SandboxID(), Network: b.network(), Labels: map[string]string{"hutch.ask": "true"}}
	if req.ID == "" {
		req.OnIdle = hutch.IdleDestroy
		req.SleepAfter = hutch.InSeconds(defaultModelTime + spareTime)                                                                 // the sandbox waits for the model between programs
		req.Timeout = hutch.InSeconds((hutch.MaxRepairs+1)*(defaultModelTime+time.Duration(b.q.Timeout)*time.Millisecond) + spareTime) // limits its life if this server dies
	}
	sb, err := b.svc.Create(ctx, req)
	if errors.Is(err, hutch.Exhausted) {
		b.gone.drain(ctx) // sandboxes of earlier questions count toward the limit until they are destroyed
		sb, err = b.svc.Create(ctx, req)
	}
	if err != nil {
		return err
	}
	if b.sandbox.ID != "" && !b.q.Network.IsZero() { // the sandbox may have been created with another network
		if _, err := b.svc.SetNetwork(ctx, sb.ID, req.Network); err != nil {
			return err
		}
	}
	b.id, b.sandbox = sb.ID, sb
	dir, err := b.svc.Stat(ctx, b.id, ".")
	if err != nil {
		return err
	}
	b.dir = strings.TrimSuffix(dir.Path, "/") + "/"
	for _, f := range b.q.Files {
		w := hutch.WriteRequest{Path: f.Path, Parents: true}
		info, err := b.svc.WriteFile(ctx, b.id, w, bytes.NewReader(f.Content))
		if err != nil {
			return err
		}
		b.given[f.Path] = fileMark{info.Size, info.Modified}
	}
	if b.q.ConversationID != "" { // a new sandbox has no other files
		b.given, err = b.files(ctx)
	}
	return err
}

// close destroys the sandbox in the background unless a conversation keeps it. It does so even if the caller has
// disconnected.
func (b *box) close(ctx context.Context) {
	if b.id == "" || b.q.ConversationID != "" {
		return
	}
	b.gone.run(func() {
		ctx, cancel := context.WithTimeout(caller.Unmetered(context.WithoutCancel(ctx)), cleanTime)
		defer cancel()
		b.svc.Destroy(ctx, b.id, true) // if this fails, the sandbox ends with its lifetime
	})
}

// outcome is how a program ended.
type outcome struct {
	stdout, stderr string
	exitCode       int
	timedOut, full bool
	limit          string
	took           time.Duration
}

// run runs a program, and passes its output on as it arrives.
func (b *box) run(ctx context.Context, code string, out func(hutch.AnswerEvent) error) (outcome, error) {
	if err := b.open(ctx); err != nil {
		return outcome{}, err
	}
	began := time.Now()
	w := &output{out: out, take: caller.From(ctx).Budget.Take}
	req := hutch.ExecRequest{Language: b.q.Language, Command: code, Timeout: hutch.Seconds(float64(b.q.Timeout) / 1000), StreamOnly: true}
	res, err := b.svc.Exec(ctx, b.id, req, w.add)
	if w.full && ctx.Err() == nil {
		err, res.ExitCode = nil, killed
	}
	if err != nil {
		return outcome{}, err
	}
	if err := w.flush(); err != nil {
		return outcome{}, err
	}
	return outcome{
		stdout: w.text(hutch.Stdout), stderr: w.text(hutch.Stderr), exitCode: res.ExitCode, timedOut: res.TimedOut, full: w.full, limit: res.Limit, took: time.Since(began),
	}, nil
}

// problem describes the program's fault; empty if there is none.
func (o outcome) problem(timeout int64) string {
	said := strings.TrimSpace(o.stderr)
	switch {
	case o.full:
		return fmt.Sprintf("The program wrote more than %d bytes, and was killed", maxOutput)
	case o.timedOut:
		return strings.TrimSpace(fmt.Sprintf("Execution timed out after %d ms\n%s", timeout, tail(said, maxShownError)))
	case o.limit != "":
		return fmt.Sprintf("The program failed at the sandbox's %s limit", o.limit)
	case o.exitCode == 0:
		return ""
	case said == "":
		return fmt.Sprintf("The program ended with exit code %d", o.exitCode)
	}
	return said
}

// killed is the exit code of a program that SIGKILL ended.
const killed = 128 + 9

var (
	errFull   = errors.New("the program wrote too much")
	errNoRoom = hutch.Errorf(hutch.Exhausted, "the answers of this token that are under way take as much memory as it may have: wait for some").With("limit", "memory of requests").With("retryAfter", 1)
)

// output collects the program's output. Events hold whole characters: an incomplete one is held back.
type output struct {
	out            func(hutch.AnswerEvent) error
	take           func(n int) bool // charges memory to the caller
	stdout, stderr bytes.Buffer
	sent           [2]int
	full           bool
}

func (o *output) stream(s hutch.Stream) (*bytes.Buffer, *int) {
	if s == hutch.Stderr {
		return &o.stderr, &o.sent[1]
	}
	return &o.stdout, &o.sent[0]
}

func (o *output) add(piece hutch.Output) error {
	buf, sent := o.stream(piece.Stream)
	room := maxOutput - buf.Len()
	kept := piece.Data[:min(len(piece.Data), room)]
	if !o.take(2 * len(kept)) { // one copy in buf, and one as text
		return errNoRoom
	}
	buf.Write(kept)
	end := buf.Len() - text.Unfinished(buf.Bytes()[*sent:])
	if err := o.send(piece.Stream, end); err != nil {
		return err
	}
	if len(piece.Data) > room {
		o.full = true
		return errFull
	}
	return nil
}

func (o *output) send(s hutch.Stream, end int) error {
	buf, sent := o.stream(s)
	if end <= *sent {
		return nil
	}
	text := strings.ToValidUTF8(string(buf.Bytes()[*sent:end]), "\ufffd")
	*sent = end
	return o.out(hutch.AnswerEvent{Output: &hutch.AnswerOutput{Stream: s, Text: text}})
}

// flush sends the held-back bytes of characters that never became complete.
func (o *output) flush() error {
	if err := o.send(hutch.Stdout, o.stdout.Len()); err != nil {
		return err
	}
	return o.send(hutch.Stderr, o.stderr.Len())
}

func (o *output) text(s hutch.Stream) string {
	buf, _ := o.stream(s)
	return strings.ToValidUTF8(buf.String(), "\ufffd")
}

// maxListed limits how many files of the working folder are examined.
const maxListed = 5000

var errMany = errors.New("there are too many files")

// files lists the regular files of the working folder that can be results.
func (b *box) files(ctx context.Context) (map[string]fileMark, error) {
	found := map[string]fileMark{}
	err := b.svc.ListFiles(ctx, b.id, hutch.ListRequest{Path: ".", Recursive: true}, func(f hutch.FileInfo) error {
		name := strings.TrimPrefix(f.Path, b.dir)
		if f.Type != hutch.RegularFile || Hidden(name) || hutch.CheckLocalName(name) != nil {
			return nil
		}
		if len(found) >= maxListed {
			return errMany
		}
		found[name] = fileMark{f.Size, f.Modified}
		return nil
	})
	if errors.Is(err, errMany) || errors.Is(err, hutch.Exhausted) || errors.Is(err, hutch.NotFound) {
		err = nil // too many files to list, or the program removed the folder
	}
	return found, err
}

// Hidden reports whether a file belongs to a tool, and is not a result.
func Hidden(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || part == "__pycache__" || part == "node_modules" {
			return true
		}
	}
	return false
}

// outputs returns the files that programs wrote or changed, as far as an answer can hold them.
func (b *box) outputs(ctx context.Context) (list []hutch.QuestionFile, err error) {
	now, err := b.files(ctx)
	if err != nil {
		return nil, err
	}
	for name, mark := range now {
		if b.given[name] != mark {
			list = append(list, hutch.QuestionFile{Path: name, Size: mark.size})
		}
	}
	slices.SortFunc(list, func(a, b hutch.QuestionFile) int { return strings.Compare(a.Path, b.Path) })
	list = list[:min(len(list), hutch.MaxQuestionFiles)]
	room := int64(hutch.MaxQuestionBytes)
	for i := range list {
		f := &list[i]
		if f.Omitted = f.Size < 0 || f.Size > room || !caller.From(ctx).Budget.Take(int(2*f.Size)); f.Omitted {
			continue
		}
		var content bytes.Buffer
		_, err := b.svc.ReadFile(ctx, b.id, hutch.ReadRequest{Path: f.Path, Length: room}, &content)
		if errors.Is(err, hutch.NotFound) || errors.Is(err, hutch.Conflict) || errors.Is(err, hutch.Invalid) {
			f.Omitted = true // a process that is still running has changed the file
			continue
		}
		if err != nil {
			return nil, err
		}
		f.Content, f.Size = content.Bytes(), int64(content.Len())
		room -= f.Size
	}
	return list, nil
}
