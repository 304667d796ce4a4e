package policy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/auth"
	"hutch/internal/caller"
	"hutch/internal/hutchtest/fakeengine"
	"hutch/internal/policy"
	"hutch/internal/quota"
	"hutch/internal/secret"
	"hutch/internal/store"
)

// nowhere fails the test when a call reaches it.
type nowhere struct {
	hutch.Service // nil, so a call panics
}

// verbs are the methods of an interface.
func verbs[T any]() []reflect.Method {
	var list []reflect.Method
	for m := range reflect.TypeFor[T]().Methods() {
		list = append(list, m)
	}
	return list
}

// call calls a method with arguments that name the sandbox, and returns its error.
func call(ctx context.Context, on any, m reflect.Method, sandbox string) error {
	f := reflect.ValueOf(on).MethodByName(m.Name)
	args := []reflect.Value{reflect.ValueOf(ctx)}
	for i := 1; i < f.Type().NumIn(); i++ {
		v := reflect.New(f.Type().In(i)).Elem()
		switch {
		case v.Kind() == reflect.String:
			v.SetString(sandbox) // the first string argument is the sandbox
		case v.Kind() == reflect.Struct && v.FieldByName("SandboxID").IsValid():
			v.FieldByName("SandboxID").SetString(sandbox)
		case v.Type() == reflect.TypeFor[hutch.CreateRequest]():
			v.FieldByName("ID").SetString(sandbox)
		}
		fill(v)
		args = append(args, v)
	}
	out := f.Call(args)
	err, _ := out[len(out)-1].Interface().(error)
	return err
}

// fill makes a request pass its Check, so that the call gets as far as the sandbox.
func fill(req reflect.Value) {
	if req.Kind() != reflect.Struct {
		return
	}
	for field, text := range map[string]string{"Command": "true", "Code": "1", "Path": "/workspace/x", "Dir": "/workspace", "Name": "x", "Text": "x", "Old": "x", "New": "y", "Message": "x"} {
		if f := req.FieldByName(field); f.IsValid() && f.Kind() == reflect.String && f.IsZero() {
			f.SetString(text)
		}
	}
}

// observer records the calls that it gets.
type observer struct {
	mu   sync.Mutex
	seen []string
}

func (o *observer) Begin(ctx context.Context, op audit.Operation) (context.Context, func(audit.Outcome), error) {
	return ctx, func(out audit.Outcome) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.seen = append(o.seen, fmt.Sprint(op.TokenName, " ", op.Verb, " ", op.Sandbox, out.Sandbox, " ", audit.ResultOf(out.Err)))
	}, nil
}

func (o *observer) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	o.seen = nil
	return seen
}

// world is a policy under test, with its tokens.
type world struct {
	*policy.Policy
	tokens *auth.Registry
	seen   *observer
}

func newWorld(t testing.TB, next hutch.Service, opt policy.Options) *world {
	t.Helper()
	tokens, err := auth.Open(t.Context(), auth.Options{Local: "root", LocalFree: true})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{tokens: tokens, seen: &observer{}}
	opt.Tokens, opt.Secrets = tokens, secret.Given(nil)
	opt.Backups, opt.Images, opt.Volumes, opt.Owners, opt.Nodes = noBackups{}, noImages{}, noVolumes{}, noOwners{}, noNodes{}
	opt.Questions, opt.Timelines, opt.Histories, opt.SSH = noQuestions{}, noTimelines{}, noHistories{}, noSSH{}
	if opt.Observer == nil {
		opt.Observer = w.seen
	}
	if w.Policy, err = policy.New(t.Context(), next, opt); err != nil {
		t.Fatal(err)
	}
	return w
}

type noSSH struct{}

func (noSSH) SSHServer(context.Context) (hutch.SSHServer, error) { return hutch.SSHServer{}, nil }
func (noSSH) AddSSHKey(context.Context, hutch.SSHKeyRequest) (hutch.SSHKey, error) {
	return hutch.SSHKey{}, nil
}
func (noSSH) SSHKeys(context.Context) ([]hutch.SSHKey, error) { return nil, nil }
func (noSSH) DeleteSSHKey(context.Context, string) error      { return nil }
func (noSSH) SignSSHKey(context.Context, hutch.SSHSignRequest) (hutch.SSHCertificate, error) {
	return hutch.SSHCertificate{}, nil
}

type noBackups struct{}

type noImages struct{}

func (noImages) PullImage(context.Context, hutch.PullRequest, func(hutch.Transfer) error) (hutch.Image, error) {
	return hutch.Image{}, nil
}
func (noImages) LoadImages(context.Context, string, io.Reader) ([]hutch.Image, error) {
	return nil, nil
}
func (noImages) CommitImage(context.Context, string, hutch.CommitRequest) (hutch.Image, error) {
	return hutch.Image{}, nil
}
func (noImages) CommitSnapshot(context.Context, string, hutch.CommitRequest) (hutch.Image, error) {
	return hutch.Image{}, nil
}
func (noImages) BuildImage(context.Context, hutch.BuildRequest, io.Reader, func(hutch.BuildEvent) error) (hutch.Image, error) {
	return hutch.Image{}, nil
}
func (noImages) Builds(context.Context) ([]hutch.Build, error) { return nil, nil }
func (noImages) BuildLogs(context.Context, string, bool, func(hutch.BuildEvent) error) (hutch.Build, error) {
	return hutch.Build{}, nil
}
func (noImages) DeleteBuild(context.Context, string) error          { return nil }
func (noImages) SaveImage(context.Context, string, io.Writer) error { return nil }
func (noImages) PushImage(context.Context, hutch.PushRequest, func(hutch.Transfer) error) error {
	return nil
}
func (noImages) TagImage(context.Context, string, string) (hutch.Image, error) {
	return hutch.Image{}, nil
}
func (noImages) Image(context.Context, string) (hutch.Image, error) { return hutch.Image{}, nil }
func (noImages) Images(context.Context) ([]hutch.Image, error)      { return nil, nil }
func (noImages) DeleteImage(context.Context, string) error          { return nil }
func (noImages) PruneImages(context.Context, hutch.PruneRequest) (hutch.Pruned, error) {
	return hutch.Pruned{}, nil
}

type noQuestions struct{}

func (noQuestions) Ask(context.Context, hutch.Question, func(hutch.AnswerEvent) error) (hutch.Answer, error) {
	return hutch.Answer{}, nil
}

type noTimelines struct{}

func (noTimelines) Timeline(context.Context, string, hutch.TimelineQuery, func(hutch.TimelineEntry) error) error {
	return nil
}

type noHistories struct{}

func (noHistories) StatsHistory(context.Context, string, hutch.StatsQuery) (hutch.StatsHistory, error) {
	return hutch.StatsHistory{}, nil
}

type noOwners struct{}

func (noOwners) Owners(context.Context) ([]hutch.Owned, error)            { return nil, nil }
func (noOwners) DeleteOwner(context.Context, string) (hutch.Owned, error) { return hutch.Owned{}, nil }

type noNodes struct{}

func (noNodes) Nodes(context.Context) (hutch.NodeList, error) { return hutch.NodeList{}, nil }
func (noNodes) Node(context.Context, string) (hutch.Node, error) {
	return hutch.Node{}, nil
}
func (noNodes) CordonNode(context.Context, string) (hutch.Node, error)   { return hutch.Node{}, nil }
func (noNodes) UncordonNode(context.Context, string) (hutch.Node, error) { return hutch.Node{}, nil }
func (noNodes) DrainNode(context.Context, string) (hutch.Node, error)    { return hutch.Node{}, nil }
func (noNodes) RemoveNode(context.Context, string, bool) (hutch.RemovedNode, error) {
	return hutch.RemovedNode{}, nil
}

type noVolumes struct{}

func (noVolumes) CreateVolume(context.Context, hutch.VolumeRequest) (hutch.Volume, error) {
	return hutch.Volume{}, nil
}
func (noVolumes) Volumes(context.Context) ([]hutch.Volume, error)             { return nil, nil }
func (noVolumes) Volume(context.Context, string) (hutch.Volume, error)        { return hutch.Volume{}, nil }
func (noVolumes) DeleteVolume(context.Context, string, bool) error            { return nil }
func (noVolumes) ReadVolume(context.Context, string, string, io.Writer) error { return nil }
func (noVolumes) WriteVolume(context.Context, string, string, io.Reader) (hutch.Volume, error) {
	return hutch.Volume{}, nil
}
func (noVolumes) SaveVolumes(context.Context, string) ([]hutch.Volume, error) { return nil, nil }
func (noVolumes) SyncVolume(context.Context, string) (hutch.Volume, error) {
	return hutch.Volume{}, nil
}

func (noBackups) Backup(context.Context, string, hutch.BackupRequest) (hutch.Backup, error) {
	return hutch.Backup{}, nil
}
func (noBackups) Backups(context.Context) ([]hutch.Backup, error)                         { return nil, nil }
func (noBackups) RestoreBackup(context.Context, string, hutch.RestoreBackupRequest) error { return nil }
func (noBackups) DeleteBackup(context.Context, string) error                              { return nil }

// as returns a context of a new token.
func (w *world) as(t testing.TB, req hutch.TokenRequest) context.Context {
	t.Helper()
	minted, err := w.tokens.CreateToken(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return w.with(t, minted.Secret)
}

func (w *world) with(t testing.TB, secret string) context.Context {
	t.Helper()
	who, err := w.tokens.Check(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	return caller.As(t.Context(), who)
}

// Every verb, including future ones, is denied to a caller without a token or without the verb's scope. The denial is
// recorded, and the call reaches nothing.
func TestEveryVerbIsDenied(t *testing.T) {
	w := newWorld(t, nowhere{}, policy.Options{})
	ports := w.as(t, hutch.TokenRequest{Name: "ports", Scopes: []hutch.Scope{hutch.ScopePorts}})
	for who, ctx := range map[string]context.Context{"": t.Context(), "ports": ports} {
		for _, m := range slices.Concat(verbs[hutch.Service](), verbs[hutch.Sharing](), verbs[hutch.Tokens](), verbs[hutch.Secrets](), verbs[hutch.Backups](), verbs[hutch.Images](), verbs[hutch.Volumes](), verbs[hutch.Owners](), verbs[hutch.Nodes](), verbs[hutch.Timelines](), verbs[hutch.Histories](), verbs[hutch.Questions](), verbs[hutch.SSH]()) {
			if _, may := reflect.TypeFor[hutch.Ports]().MethodByName(m.Name); may && who == "ports" {
				continue
			}
			if err := call(ctx, w.Policy, m, "box"); !errors.Is(err, hutch.Denied) {
				t.Errorf("%q: %s: %v", who, m.Name, err)
			}
			seen := w.seen.take()
			if len(seen) != 1 || !strings.HasPrefix(seen[0], who+" "+m.Name+" ") || !strings.HasSuffix(seen[0], " denied") {
				t.Errorf("%q: %s: the observer saw %q", who, m.Name, seen)
			}
		}
	}
}

// If the observer refuses a call, the call is not made, because every call must be recorded.
func TestEveryVerbHeedsTheObserver(t *testing.T) {
	w := newWorld(t, nowhere{}, policy.Options{Observer: full{}})
	for _, m := range slices.Concat(verbs[hutch.Service](), verbs[hutch.Sharing](), verbs[hutch.Tokens](), verbs[hutch.Secrets](), verbs[hutch.Backups](), verbs[hutch.Images](), verbs[hutch.Volumes](), verbs[hutch.Owners](), verbs[hutch.Nodes](), verbs[hutch.Timelines](), verbs[hutch.Histories](), verbs[hutch.Questions](), verbs[hutch.SSH]()) {
		if err := call(w.with(t, "root"), w.Policy, m, "box"); !errors.Is(err, hutch.Unavailable) {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

type full struct{}

func (full) Begin(ctx context.Context, _ audit.Operation) (context.Context, func(audit.Outcome), error) {
	return ctx, nil, hutch.Errorf(hutch.Unavailable, "the disk is full")
}

// Each scope allows its verbs, and no others.
func TestScopes(t *testing.T) {
	may := map[hutch.Scope]string{
		hutch.ScopeRead: "Backups BuildLogs Builds Connections Contexts DiffSnapshot GitDiff GitStatus Image Images InstanceTypes Languages ListFiles Logs Network Pack Ports Process Processes ReadClipboard ReadFile ReadVolume Sandbox Sandboxes Screen Screenshot SearchFiles Snapshots Stat StatsHistory Timeline ValidatePortToken ViewScreen Volume Volumes Wait Watch WatchPorts",
		hutch.ScopeExec: "AddSSHKey Ask BuildImage BuildLogs Builds CancelExec CleanProcesses CommitImage CommitSnapshot Connections Contexts ControlScreen Create CreateContext CreateTemplate DeleteBuild DeleteContext DeleteImage DeleteSSHKey DeleteSecret DeleteSnapshot Destroy DialPort Exec Fork GitClone GitCommit Grants Hibernate Image Images Input InstanceTypes Interrupt Languages LoadImages Logs Network OpenURL Pause Ports Process Processes PruneImages PullImage PushImage " +
			"ReadClipboard Resize Resume ResumeExec RunCode SSHKeys SSHServer Sandbox Sandboxes SaveImage Screen Screenshot Secrets SetNetwork SetSecret Share SignSSHKey Signal Snapshot Snapshots StartProcess StartScreen StatsHistory TagImage TagSnapshot Timeline Unshare Update ValidatePortToken ViewScreen Volume Volumes Wait WatchPorts WriteClipboard",
		hutch.ScopeFiles: "AddSSHKey Backup Backups Builds Chmod Connections Copy CreateVolume Delete DeleteBackup DeleteSSHKey DeleteVolume DiffSnapshot EditFile GitDiff GitStatus Image Images InstanceTypes ListFiles Mkdir Move Network Pack ReadFile ReadVolume RestoreBackup SSHKeys SSHServer Sandbox Sandboxes SaveVolumes SearchFiles SignSSHKey Snapshots Stat StatsHistory SyncVolume Unpack Volume Volumes Watch WriteFile WriteVolume",
		hutch.ScopePorts: "DialPort Expose LinkPort Ports Unexpose ValidatePortToken WatchPorts",
		hutch.ScopeAdmin: "CordonNode CreateToken DeleteOwner DrainNode Node Nodes Owners RemoveNode RevokeToken RotateToken Token Tokens UncordonNode",
	}
	for _, scope := range hutch.Scopes {
		t.Run(string(scope), func(t *testing.T) {
			w := newWorld(t, fakeengine.Start(t), policy.Options{})
			ctx := w.as(t, hutch.TokenRequest{Name: "one", Scopes: []hutch.Scope{scope}})
			var allowed []string
			for _, m := range slices.Concat(verbs[hutch.Service](), verbs[hutch.Sharing](), verbs[hutch.Tokens](), verbs[hutch.Secrets](), verbs[hutch.Backups](), verbs[hutch.Images](), verbs[hutch.Volumes](), verbs[hutch.Owners](), verbs[hutch.Nodes](), verbs[hutch.Timelines](), verbs[hutch.Histories](), verbs[hutch.Questions](), verbs[hutch.SSH]()) {
				if err := call(ctx, w.Policy, m, "box"); !errors.Is(err, hutch.Denied) {
					allowed = append(allowed, m.Name)
				}
			}
			slices.Sort(allowed)
			if got := strings.Join(allowed, " "); got != may[scope] {
				t.Errorf("allowed: %s\nwant: %s", got, may[scope])
			}
		})
	}
}

// Waiting for a port makes a request to the server in the sandbox, so it needs the scope exec.
func TestWaitForPortRuns(t *testing.T) {
	w := newWorld(t, fakeengine.Start(t), policy.Options{})
	ctx := w.as(t, hutch.TokenRequest{Name: "reader", Scopes: []hutch.Scope{hutch.ScopeRead}})
	if _, err := w.Wait(ctx, "box", "pr", hutch.WaitRequest{Port: 80, Path: "/delete-all"}); !errors.Is(err, hutch.Denied) {
		t.Error(err)
	}
}

func TestOperationsAreCounted(t *testing.T) {
	meter, err := quota.Open(t.Context(), quota.Options{Window: time.Hour, What: "operations of an hour", Limit: "operationsPerHour"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, fakeengine.Start(t), policy.Options{Operations: meter})
	ctx := w.as(t, hutch.TokenRequest{Name: "few", Limits: hutch.TokenLimits{Operations: 64}})
	var mu sync.Mutex
	var wg sync.WaitGroup
	kinds := map[hutch.Kind]int{}
	for range 100 {
		wg.Go(func() {
			_, err := w.Exec(ctx, "box", hutch.ExecRequest{Command: "true"}, nil)
			mu.Lock()
			defer mu.Unlock()
			kinds[hutch.KindOf(err)]++
		})
	}
	wg.Wait()
	if kinds[hutch.NotFound] != 64 || kinds[hutch.Exhausted] != 36 {
		t.Errorf("%v", kinds)
	}
	_, err = w.Exec(ctx, "box", hutch.ExecRequest{Command: "true"}, nil)
	if e := hutch.AsError(err); e.Data["limit"] != "operationsPerHour" || e.Data["retryAfter"].(int) < 3500 {
		t.Errorf("%v %v", e, e.Data)
	}
	// A verb that frees something is never refused.
	if _, err := w.Destroy(ctx, "box", true); err != nil {
		t.Error(err)
	}
	if _, err := w.Exec(w.with(t, "root"), "box", hutch.ExecRequest{Command: "true"}, nil); !errors.Is(err, hutch.NotFound) {
		t.Errorf("the local token: %v", err)
	}
}

// For a successful call, the observer also gets the caller and the new sandbox's id.
func TestObserved(t *testing.T) {
	w := newWorld(t, fakeengine.Start(t), policy.Options{})
	ctx := w.as(t, hutch.TokenRequest{Name: "ada"})
	sb, err := w.Create(ctx, hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	w.Exec(ctx, "none", hutch.ExecRequest{Command: "true"}, nil)
	want := []string{"ada Create " + sb.ID + " ok", "ada Exec none not_found"}
	if got := w.seen.take(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestGrantsSurviveReopening(t *testing.T) {
	db, err := store.Open(t.Context(), store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	eng := fakeengine.Start(t)
	opt := policy.Options{Grants: db.Collection("grants")}
	w := newWorld(t, eng, opt)
	ada, bob := w.as(t, hutch.TokenRequest{Name: "ada"}), w.as(t, hutch.TokenRequest{Name: "bob"})
	if _, err := w.Create(ada, hutch.CreateRequest{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Share(ada, "box", "bob", hutch.ReadAccess); err != nil {
		t.Fatal(err)
	}
	again, err := policy.New(t.Context(), eng, opt)
	if err != nil {
		t.Fatal(err)
	}
	if sb, err := again.Sandbox(bob, "box"); err != nil || sb.Owner != caller.From(ada).Principal.Owner {
		t.Errorf("%+v, %v", sb, err)
	}
}
