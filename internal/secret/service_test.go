package secret_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/secret"
)

const hidden = "[redacted:TOKEN]"

func token() *secret.Redactor {
	return secret.NewRedactor(map[string][]string{"TOKEN": {value}})
}

// redacting wraps svc for a caller who has a secret.
func redacting(svc hutch.Service) *secret.RedactedService {
	return secret.Redact(svc, func(context.Context) *secret.Redactor { return token() })
}

// played is a service that plays a command or a log. It has no other verb.
type played struct {
	hutch.Service // nil
	exec          func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error)
	logs          func(context.Context, hutch.LogsRequest, func(hutch.Output) error) (int64, error)
}

func (p *played) Exec(ctx context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	return p.exec(ctx, id, req, out)
}

func (p *played) Logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	return p.logs(ctx, req, out)
}

// TestEveryVerbIsCovered calls every verb of a service whose answers have the secret in every text. Future verbs are
// covered by it, too.
func TestEveryVerbIsCovered(t *testing.T) {
	t.Parallel()
	leak := &leaks{}
	v := reflect.ValueOf(redacting(leak))
	for m := range reflect.TypeFor[hutch.Service]().Methods() {
		for _, fails := range []bool{false, true} {
			leak.fails = fails
			var seen []string
			method := v.MethodByName(m.Name)
			args := make([]reflect.Value, method.Type().NumIn())
			for i := range args {
				args[i] = argument(method.Type().In(i), &seen)
			}
			for _, got := range method.Call(args) {
				seen = append(seen, texts(got.Interface()))
			}
			if all := strings.Join(seen, "\n"); strings.Contains(all, value) {
				t.Errorf("%s tells: %s", m.Name, all)
			} else if fails && !strings.Contains(all, hidden) {
				t.Errorf("%s says nothing of what failed: %s", m.Name, all)
			}
		}
	}
}

// argument returns an argument for a verb; functions record what they are called with.
func argument(t reflect.Type, seen *[]string) reflect.Value {
	switch {
	case t == reflect.TypeFor[context.Context]():
		return reflect.ValueOf(context.Background())
	case t == reflect.TypeFor[io.Writer]():
		return reflect.ValueOf(io.Discard)
	case t == reflect.TypeFor[io.Reader]():
		return reflect.ValueOf(strings.NewReader(""))
	case t.Kind() == reflect.Func:
		return reflect.MakeFunc(t, func(args []reflect.Value) []reflect.Value {
			*seen = append(*seen, texts(args[0].Interface()))
			return []reflect.Value{reflect.Zero(t.Out(0))}
		})
	}
	return reflect.Zero(t)
}

// texts returns all texts in v, as one text.
func texts(v any) string {
	if err, ok := v.(error); ok {
		e := hutch.AsError(err)
		return fmt.Sprintf("%s %v", e.Message, e.Data)
	}
	if o, ok := v.(hutch.Output); ok {
		return string(o.Data)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b) + fmt.Sprint(v)
}

// leaks is a service whose every answer holds the secret.
type leaks struct{ fails bool }

func (l *leaks) err() error {
	if !l.fails {
		return nil
	}
	return hutch.Errorf(hutch.Conflict, "no %s", value).With("path", value)
}

// full is a value of T with the secret in every text.
func full[T any]() T {
	var v T
	stuff(reflect.ValueOf(&v).Elem())
	return v
}

func stuff(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x" + value)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		stuff(v.Elem())
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`"` + value + `"`))
		} else if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(value))
		} else {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			stuff(v.Index(0))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		item := reflect.New(v.Type().Elem()).Elem()
		stuff(item)
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), item)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				stuff(v.Field(i))
			}
		}
	}
}

func (l *leaks) Create(context.Context, hutch.CreateRequest) (hutch.Sandbox, error) {
	return full[hutch.Sandbox](), l.err()
}
func (l *leaks) Sandbox(context.Context, string) (hutch.Sandbox, error) {
	return full[hutch.Sandbox](), l.err()
}
func (l *leaks) InstanceTypes(context.Context) ([]hutch.InstanceType, error) {
	return full[[]hutch.InstanceType](), l.err()
}
func (l *leaks) Update(context.Context, string, hutch.UpdateRequest) (hutch.Sandbox, error) {
	return full[hutch.Sandbox](), l.err()
}
func (l *leaks) Sandboxes(context.Context, hutch.Filter) ([]hutch.Sandbox, error) {
	return full[[]hutch.Sandbox](), l.err()
}
func (l *leaks) Destroy(context.Context, string, bool) (hutch.Destruction, error) {
	return full[hutch.Destruction](), l.err()
}
func (l *leaks) Exec(_ context.Context, _ string, _ hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	l.print(out)
	return full[hutch.ExecResult](), l.err()
}

func (l *leaks) ResumeExec(_ context.Context, _, _ string, _ int64, out func(hutch.Output) error) (hutch.ExecResult, error) {
	l.print(out)
	return full[hutch.ExecResult](), l.err()
}
func (l *leaks) CancelExec(context.Context, string, string) error { return l.err() }

// print prints the secret in two pieces.
func (l *leaks) print(out func(hutch.Output) error) {
	for _, stream := range []hutch.Stream{hutch.Stdout, hutch.Stderr} {
		out(hutch.Output{Stream: stream, Data: []byte(value[:9]), Cursor: 9})
		out(hutch.Output{Stream: stream, Data: []byte(value[9:]), Cursor: int64(len(value))})
	}
}
func (l *leaks) StartProcess(context.Context, string, hutch.ProcessRequest) (hutch.Process, error) {
	return full[hutch.Process](), l.err()
}
func (l *leaks) Process(context.Context, string, string) (hutch.Process, error) {
	return full[hutch.Process](), l.err()
}
func (l *leaks) Processes(context.Context, string) ([]hutch.Process, error) {
	return full[[]hutch.Process](), l.err()
}
func (l *leaks) Logs(_ context.Context, _ hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	l.print(out)
	return 0, l.err()
}
func (l *leaks) Signal(context.Context, string, string, int) error { return l.err() }
func (l *leaks) Input(context.Context, string, string, io.Reader, bool) error {
	return l.err()
}
func (l *leaks) Resize(context.Context, string, string, hutch.Size) error { return l.err() }
func (l *leaks) Wait(context.Context, string, string, hutch.WaitRequest) (hutch.WaitResult, error) {
	return full[hutch.WaitResult](), l.err()
}
func (l *leaks) CleanProcesses(context.Context, string) (int, error) { return 0, l.err() }
func (l *leaks) Languages(context.Context, string) ([]hutch.Language, error) {
	return full[[]hutch.Language](), l.err()
}
func (l *leaks) CreateContext(context.Context, string, hutch.ContextRequest) (hutch.CodeContext, error) {
	return full[hutch.CodeContext](), l.err()
}
func (l *leaks) Contexts(context.Context, string) ([]hutch.CodeContext, error) {
	return full[[]hutch.CodeContext](), l.err()
}
func (l *leaks) DeleteContext(context.Context, string, string) error { return l.err() }
func (l *leaks) Interrupt(context.Context, string, string) error     { return l.err() }
func (l *leaks) RunCode(_ context.Context, _ string, _ hutch.RunRequest, out func(hutch.RunEvent) error) (hutch.RunResult, error) {
	l.print(func(o hutch.Output) error { return out(hutch.RunEvent{Output: &o}) })
	r, e := full[hutch.CodeResult](), full[hutch.CodeError]()
	r.Data["image/png"] = json.RawMessage(`"` + value + `"`)
	out(hutch.RunEvent{Result: &r})
	out(hutch.RunEvent{Error: &e})
	return full[hutch.RunResult](), l.err()
}
func (l *leaks) GitClone(context.Context, string, hutch.GitCloneRequest) (hutch.GitRepository, error) {
	return full[hutch.GitRepository](), l.err()
}
func (l *leaks) GitStatus(context.Context, string, string) (hutch.GitStatus, error) {
	return full[hutch.GitStatus](), l.err()
}
func (l *leaks) GitDiff(context.Context, string, hutch.GitDiffRequest) (string, error) {
	return value, l.err()
}
func (l *leaks) GitCommit(context.Context, string, hutch.GitCommitRequest) (hutch.GitRepository, error) {
	return full[hutch.GitRepository](), l.err()
}
func (l *leaks) Expose(context.Context, string, hutch.ExposeRequest) (hutch.Port, error) {
	return hutch.Port{Name: value, URL: value, Token: value}, l.err()
}
func (l *leaks) Network(context.Context, string) (hutch.NetworkState, error) {
	return full[hutch.NetworkState](), l.err()
}
func (l *leaks) SetNetwork(context.Context, string, hutch.Network) (hutch.NetworkState, error) {
	return full[hutch.NetworkState](), l.err()
}
func (l *leaks) Connections(context.Context, string, hutch.ConnectionQuery) (hutch.ConnectionLog, error) {
	return full[hutch.ConnectionLog](), l.err()
}
func (l *leaks) Unexpose(context.Context, string, int) error { return l.err() }
func (l *leaks) Ports(context.Context, string) ([]hutch.Port, error) {
	return []hutch.Port{{Name: value, URL: value}}, l.err()
}
func (l *leaks) ValidatePortToken(context.Context, string, int, string) (bool, error) {
	return false, l.err()
}
func (l *leaks) LinkPort(context.Context, string, int, hutch.Seconds) (hutch.PortLink, error) {
	return hutch.PortLink{URL: value}, l.err()
}
func (l *leaks) StartScreen(context.Context, string, hutch.ScreenRequest) (hutch.Screen, error) {
	return hutch.Screen{}, l.err()
}
func (l *leaks) Screen(context.Context, string) (hutch.Screen, error) { return hutch.Screen{}, l.err() }
func (l *leaks) Screenshot(context.Context, string, hutch.ScreenshotRequest) (hutch.Screenshot, error) {
	return hutch.Screenshot{}, l.err()
}
func (l *leaks) ControlScreen(context.Context, string, hutch.ControlRequest) (hutch.ControlResult, error) {
	return hutch.ControlResult{}, l.err()
}
func (l *leaks) ReadClipboard(context.Context, string) (string, error) { return value, l.err() }
func (l *leaks) WriteClipboard(context.Context, string, string) error  { return l.err() }
func (l *leaks) OpenURL(context.Context, string, string) (hutch.Process, error) {
	return full[hutch.Process](), l.err()
}
func (l *leaks) ViewScreen(context.Context, string, bool) (net.Conn, error) {
	return nil, l.err()
}
func (l *leaks) DialPort(context.Context, string, int) (net.Conn, error) { return nil, l.err() }
func (l *leaks) WatchPorts(_ context.Context, _ string, out func(hutch.PortEvent) error) error {
	return cmp.Or(out(hutch.PortEvent{URL: value}), l.err())
}
func (l *leaks) ReadFile(_ context.Context, _ string, req hutch.ReadRequest, _ io.Writer) (hutch.FileInfo, error) {
	if req.Opened != nil {
		req.Opened(full[hutch.FileInfo]())
	}
	return full[hutch.FileInfo](), l.err()
}
func (l *leaks) WriteFile(context.Context, string, hutch.WriteRequest, io.Reader) (hutch.FileInfo, error) {
	return full[hutch.FileInfo](), l.err()
}
func (l *leaks) EditFile(context.Context, string, hutch.EditRequest) (hutch.Edit, error) {
	return full[hutch.Edit](), l.err()
}
func (l *leaks) Stat(context.Context, string, string) (hutch.FileInfo, error) {
	return full[hutch.FileInfo](), l.err()
}
func (l *leaks) ListFiles(_ context.Context, _ string, _ hutch.ListRequest, out func(hutch.FileInfo) error) error {
	out(full[hutch.FileInfo]())
	return l.err()
}
func (l *leaks) SearchFiles(_ context.Context, _ string, _ hutch.SearchRequest, out func(hutch.Match) error) error {
	out(full[hutch.Match]())
	return l.err()
}
func (l *leaks) Mkdir(context.Context, string, string, bool) error                { return l.err() }
func (l *leaks) Chmod(context.Context, string, string, hutch.FileMode) error      { return l.err() }
func (l *leaks) Move(context.Context, string, string, string, bool) error         { return l.err() }
func (l *leaks) Copy(context.Context, string, string, string, bool) error         { return l.err() }
func (l *leaks) Delete(context.Context, string, string, bool) error               { return l.err() }
func (l *leaks) Pack(context.Context, string, hutch.PackRequest, io.Writer) error { return l.err() }
func (l *leaks) Unpack(context.Context, string, hutch.UnpackRequest, io.Reader) error {
	return l.err()
}
func (l *leaks) Watch(_ context.Context, _ string, _ hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	out(full[hutch.FileEvent]())
	return l.err()
}

// log is a service with a process that has printed these.
type log []hutch.Output

// of makes a log of texts: those that begin with ! are on stderr.
func of(texts ...string) (l log) {
	cursor := int64(0)
	for _, text := range texts {
		o := hutch.Output{Stream: hutch.Stdout}
		if rest, found := strings.CutPrefix(text, "!"); found {
			o.Stream, text = hutch.Stderr, rest
		}
		cursor += int64(len(text))
		o.Data, o.Cursor = []byte(text), cursor
		l = append(l, o)
	}
	return l
}

// read passes on the output after a cursor, in its pieces.
func (l log) read(_ context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	cursor := req.Cursor
	for _, o := range l {
		if skip := req.Cursor - (o.Cursor - int64(len(o.Data))); skip > 0 {
			o.Data = o.Data[min(skip, int64(len(o.Data))):]
		}
		if len(o.Data) == 0 {
			continue
		}
		if err := out(o); err != nil {
			return cursor, err
		}
		cursor = o.Cursor
	}
	return cursor, nil
}

// service has one process, p, with this log.
func (l log) service() (svc hutch.Service, req hutch.LogsRequest) {
	return redacting(&played{logs: l.read}), hutch.LogsRequest{SandboxID: "s", ProcessID: "p"}
}

// shown is the text that a reader receives, and the cursors at which the reader can stop.
type shown struct {
	text    map[hutch.Stream]string
	cursors []int64
}

func read(t *testing.T, svc hutch.Service, req hutch.LogsRequest) shown {
	t.Helper()
	s := shown{text: map[hutch.Stream]string{}}
	cursor := req.Cursor
	last, err := svc.Logs(t.Context(), req, func(o hutch.Output) error {
		if !o.Redacted && o.Cursor-int64(len(o.Data))-o.Lost != cursor {
			t.Errorf("%q ends at %d behind %d, and does not say why", o.Data, o.Cursor, cursor)
		}
		if o.Cursor < cursor {
			t.Errorf("the cursor goes back from %d to %d", cursor, o.Cursor)
		}
		cursor = o.Cursor
		s.text[o.Stream] += string(o.Data)
		s.cursors = append(s.cursors, cursor)
		return nil
	})
	if err != nil || last < cursor {
		t.Fatalf("%d behind %d, %v", last, cursor, err)
	}
	return s
}

// TestCursorsContinue: a reader that stops anywhere and continues from there sees all that follows, but never a part
// of a secret.
func TestCursorsContinue(t *testing.T) {
	t.Parallel()
	whole := "begin " + value + " middle " + value + value + " end"
	pieces := []string{"begin ", value[:5], value[5:] + " mid", "dle " + value[:20], value[20:], value, " end"}
	want := strings.ReplaceAll(whole, value, hidden)
	svc, req := of(pieces...).service()
	first := read(t, svc, req)
	if got := first.text[hutch.Stdout]; got != want {
		t.Fatalf("%q, not %q", got, want)
	}
	for cursor := range int64(len(whole) + 1) {
		req.Cursor = cursor
		got := read(t, svc, req).text[hutch.Stdout]
		rest := token().Excerpt(whole[cursor:])
		if rest != got && !strings.HasSuffix(want, got) || strings.Contains(got, value[12:]) && !strings.Contains(got, hidden) || !slices.Contains(suffixes(want, whole, cursor), got) {
			t.Errorf("from %d on: %q", cursor, got)
		}
	}
}

// suffixes returns the texts that a reader can see from a cursor on: everything after the cursor and, if it is within
// a secret, the whole marker of that secret.
func suffixes(want, whole string, cursor int64) []string {
	before := whole[:cursor]
	for at := 0; ; {
		i := strings.Index(whole[at:], value)
		if i < 0 || at+i >= int(cursor) {
			return []string{strings.ReplaceAll(whole[len(before):], value, hidden)}
		}
		if end := at + i + len(value); end > int(cursor) {
			return []string{hidden + strings.ReplaceAll(whole[end:], value, hidden)}
		}
		at += i + len(value)
	}
}

// TestStreamsDoNotHideBehindEachOther: a secret on one stream is found whatever the other stream prints meanwhile,
// and a reader that continues from any cursor misses nothing.
func TestStreamsDoNotHideBehindEachOther(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		out, errs := "out "+value+" "+value[:7]+" end", "err "+value[:12]+value+" end"
		var pieces []string
		for a, b := out, errs; a+b != ""; {
			if n := min(len(a), random.IntN(12)); n > 0 {
				pieces, a = append(pieces, a[:n]), a[n:]
			}
			if n := min(len(b), random.IntN(12)); n > 0 {
				pieces, b = append(pieces, "!"+b[:n]), b[n:]
			}
		}
		svc, req := of(pieces...).service()
		first := read(t, svc, req)
		wantOut, wantErr := token().String(out), token().String(errs)
		if first.text[hutch.Stdout] != wantOut || first.text[hutch.Stderr] != wantErr {
			t.Fatalf("%q: %q", pieces, first.text)
		}
		last := first.cursors[len(first.cursors)-1]
		if want := int64(len(out) + len(errs)); last > want {
			t.Errorf("the last cursor is %d of %d", last, want)
		}
	}
}

// TestAPromptIsNotHeldBack: the possible beginning of a secret is shown after a moment, as far as it is harmless; the
// rest of a secret is not shown even then.
func TestAPromptIsNotHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		script := func(ctx context.Context, _ hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
			cursor := int64(0)
			for _, text := range []string{"name? gh", value[2:9], value[9:] + "\nmore? ghp_"} {
				cursor += int64(len(text))
				if err := out(hutch.Output{Stream: hutch.Stdout, Data: []byte(text), Cursor: cursor}); err != nil {
					return 0, err
				}
				time.Sleep(time.Second)
			}
			return cursor, nil
		}
		s := &played{logs: script}
		_, err := redacting(s).Logs(t.Context(), hutch.LogsRequest{SandboxID: "s", ProcessID: "p"}, func(o hutch.Output) error {
			seen = append(seen, fmt.Sprintf("%v %s", o.Cursor, o.Data))
			return nil
		})
		want := []string{"6 name? ", "8 gh", "12 p_0a", "30 " + hidden, "37 \nmore? ", "41 ghp_"}
		if err != nil || !slices.Equal(seen, want) {
			t.Errorf("%q, %v", seen, err)
		}
	})
}

// TestReaderLeavesAtAPrompt: when the reader leaves, the run ends, even if no further output comes.
func TestReaderLeavesAtAPrompt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		s := &played{exec: func(ctx context.Context, _ string, _ hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
			out(hutch.Output{Stream: hutch.Stdout, Data: []byte(value[:9]), Cursor: 9})
			<-ctx.Done()
			return hutch.ExecResult{}, context.Cause(ctx)
		}}
		_, err := redacting(s).Exec(t.Context(), "s", hutch.ExecRequest{}, func(hutch.Output) error { return gone })
		if !errors.Is(err, gone) {
			t.Error(err)
		}
	})
}

// TestCutOutputCutsNoSecret: the middle of long output is left out after
// secrets were replaced.
func TestCutOutputCutsNoSecret(t *testing.T) {
	t.Parallel()
	for limit := 1; limit < 3*len(value); limit++ {
		s := &played{exec: func(_ context.Context, _ string, _ hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
			return hutch.ExecResult{}, out(hutch.Output{Stream: hutch.Stdout, Data: []byte(strings.Repeat(value, 3))})
		}}
		res, err := redacting(s).Exec(t.Context(), "s", hutch.ExecRequest{MaxOutput: limit}, nil)
		if err != nil || len(res.Stdout) > limit || strings.Contains(string(res.Stdout), value[4:8]) {
			t.Errorf("%d bytes: %q, %v", limit, res.Stdout, err)
		}
	}
}

func (l *leaks) Snapshot(context.Context, string, hutch.SnapshotRequest) (hutch.Snapshot, error) {
	return full[hutch.Snapshot](), l.err()
}

func (l *leaks) CreateTemplate(context.Context, hutch.TemplateRequest) (hutch.Snapshot, error) {
	return full[hutch.Snapshot](), l.err()
}
func (l *leaks) Snapshots(context.Context) ([]hutch.Snapshot, error) {
	return full[[]hutch.Snapshot](), l.err()
}

func (l *leaks) TagSnapshot(context.Context, string, hutch.SnapshotTag) (hutch.Snapshot, error) {
	return full[hutch.Snapshot](), l.err()
}

func (l *leaks) DiffSnapshot(context.Context, string, hutch.SnapshotDiffRequest) (hutch.SnapshotDiff, error) {
	return full[hutch.SnapshotDiff](), l.err()
}

func (l *leaks) DeleteSnapshot(context.Context, string) error { return l.err() }

func (l *leaks) Fork(context.Context, string, hutch.ForkRequest) ([]hutch.Sandbox, error) {
	return full[[]hutch.Sandbox](), l.err()
}

func (l *leaks) Pause(context.Context, string) (hutch.Sandbox, error) {
	return full[hutch.Sandbox](), l.err()
}

func (l *leaks) Hibernate(context.Context, string, hutch.HibernateRequest) (hutch.Sandbox, error) {
	return full[hutch.Sandbox](), l.err()
}

func (l *leaks) Resume(context.Context, string) (hutch.Sandbox, error) {
	return full[hutch.Sandbox](), l.err()
}

// A reader that requests the output since a time sees no part of a secret that began before that time.
func TestLogsSinceTheMiddleOfASecret(t *testing.T) {
	t.Parallel()
	whole := of("old ", value[:5], value[5:]+" new\n")
	began := time.UnixMilli(1790000000000)
	since := func(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
		if !req.Since.IsZero() {
			req.Cursor = max(req.Cursor, whole[1].Cursor)
		}
		return whole.read(ctx, req, func(o hutch.Output) error {
			o.Time = began.Add(time.Duration(o.Cursor))
			return out(o)
		})
	}
	s := &played{logs: since}
	var text string
	end, err := redacting(s).Logs(t.Context(), hutch.LogsRequest{SandboxID: "s", ProcessID: "p", Since: began, Times: true}, func(o hutch.Output) error {
		text += string(o.Data)
		if !o.Time.Equal(began.Add(time.Duration(whole[2].Cursor))) {
			t.Errorf("%q came at %v", o.Data, o.Time)
		}
		return nil
	})
	if err != nil || end != whole[2].Cursor || !strings.HasSuffix(text, " new\n") || strings.Contains(text, value[5:]) || strings.Contains(text, "old") {
		t.Errorf("%q to %d, %v", text, end, err)
	}
}
