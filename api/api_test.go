package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"hutch"
	"hutch/api"
	"hutch/internal/audit"
	"hutch/internal/auth"
	"hutch/internal/caller"
	"hutch/internal/coding"
	"hutch/internal/compat/execute"
	"hutch/internal/fakeservice"
	"hutch/internal/hutchtest/tokens"
	"hutch/internal/policy"
	"hutch/internal/problem"
	"hutch/internal/rest"
	"hutch/internal/secret"
	"hutch/internal/stream"
	"hutch/internal/watchlink"
)

// object is a part of the document.
type object = map[string]any

var parsed = sync.OnceValues(func() (doc object, err error) {
	err = json.Unmarshal(api.JSON(), &doc)
	return doc, err
})

func document(t *testing.T) object {
	t.Helper()
	doc, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// at walks down the document; a missing value is nil.
func at(v any, path ...string) any {
	for _, name := range path {
		o, _ := v.(object)
		v = o[name]
	}
	return v
}

// operation is a method of a path.
type operation struct {
	object
	method, path string
	parameters   []object
}

func (o operation) String() string { return o.method + " " + o.path }

func operations(t *testing.T) (all []operation) {
	t.Helper()
	doc := document(t)
	for path, item := range at(doc, "paths").(object) {
		for method, op := range item.(object) {
			if method == "parameters" {
				continue
			}
			o := operation{object: op.(object), method: strings.ToUpper(method), path: path}
			for _, list := range []any{at(item, "parameters"), o.object["parameters"]} {
				params, _ := list.([]any)
				for _, p := range params {
					o.parameters = append(o.parameters, resolve(t, doc, p))
				}
			}
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func resolve(t *testing.T, doc object, v any) object {
	t.Helper()
	if ref, ok := at(v, "$ref").(string); ok {
		v = at(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		if v == nil {
			t.Fatalf("%s is not there", ref)
		}
	}
	return v.(object)
}

func TestDocumentHasTheRoutesOfTheServer(t *testing.T) {
	t.Parallel()
	var described, served []string
	for _, o := range operations(t) {
		described = append(described, o.String())
	}
	for _, r := range rest.NewHandler(&fakeservice.Service{}, rest.Options{}).Routes() {
		served = append(served, r.Method+" "+r.Path)
	}
	served = append(append(served, "POST "+execute.Path), coding.Routes()...) // the daemon adds these routes
	for _, r := range served {
		if !slices.Contains(described, r) {
			t.Errorf("%s is served, and not in openapi.yaml", r)
		}
	}
	for _, r := range described {
		if !slices.Contains(served, r) {
			t.Errorf("%s is in openapi.yaml, and not served", r)
		}
	}
}

// question is what POST /execute reads. The text of a question can be left out.
type question struct {
	hutch.Question
	Text   string `json:"question,omitempty"`
	Stream bool   `json:"stream,omitempty"`
}

// types are the types that the schemas describe.
var types = map[string]any{
	"AgentEvent":           hutch.AgentEvent{},
	"AgentPrompt":          hutch.AgentPrompt{},
	"AgentRequest":         hutch.AgentRequest{},
	"AgentResult":          hutch.AgentResult{},
	"AgentTries":           hutch.AgentTries{},
	"AgentTry":             hutch.AgentTry{},
	"AgentUsage":           hutch.AgentUsage{},
	"Answer":               hutch.Answer{},
	"AnswerEvent":          hutch.AnswerEvent{},
	"AnswerOutput":         hutch.AnswerOutput{},
	"Program":              hutch.Program{},
	"Repair":               hutch.Repair{},
	"Consumption":          hutch.Consumption{},
	"ModelUsage":           hutch.ModelUsage{},
	"Question":             question{},
	"QuestionFile":         hutch.QuestionFile{},
	"Cleaned":              stream.Cleaned{},
	"CodeContext":          hutch.CodeContext{},
	"CodeError":            hutch.CodeError{},
	"CodeResult":           hutch.CodeResult{},
	"ContextRequest":       hutch.ContextRequest{},
	"CreateRequest":        hutch.CreateRequest{},
	"UpdateRequest":        hutch.UpdateRequest{},
	"Destruction":          hutch.Destruction{},
	"Edit":                 hutch.Edit{},
	"EditRequest":          hutch.EditRequest{},
	"Environment":          hutch.Environment{},
	"ExecRequest":          stream.Command{},
	"ExecResult":           hutch.ExecResult{},
	"ExposeRequest":        hutch.ExposeRequest{},
	"FileEvent":            hutch.FileEvent{},
	"FileInfo":             hutch.FileInfo{},
	"GitChange":            hutch.GitChange{},
	"GitCloneRequest":      hutch.GitCloneRequest{},
	"GitCommitRequest":     hutch.GitCommitRequest{},
	"GitRepository":        hutch.GitRepository{},
	"GitStatus":            hutch.GitStatus{},
	"Screen":               hutch.Screen{},
	"Point":                hutch.Point{},
	"ScreenRequest":        hutch.ScreenRequest{},
	"ControlRequest":       hutch.ControlRequest{},
	"ScreenAction":         hutch.ScreenAction{},
	"ControlResult":        hutch.ControlResult{},
	"Clipboard":            hutch.Clipboard{},
	"Address":              hutch.Address{},
	"Grant":                hutch.Grant{},
	"InstanceType":         hutch.InstanceType{},
	"Template":             hutch.Template{},
	"TemplateRequest":      hutch.TemplateRequest{},
	"Language":             hutch.Language{},
	"Limits":               hutch.Limits{},
	"Logs":                 stream.Logs{},
	"Match":                hutch.Match{},
	"MintedToken":          hutch.MintedToken{},
	"Network":              hutch.Network{},
	"NetworkLimits":        hutch.NetworkLimits{},
	"NetworkState":         hutch.NetworkState{},
	"Connection":           hutch.Connection{},
	"ConnectionLog":        hutch.ConnectionLog{},
	"StatsHistory":         hutch.StatsHistory{},
	"StatsSample":          hutch.StatsSample{},
	"TimelineEntry":        hutch.TimelineEntry{},
	"TimelinePage":         hutch.TimelinePage{},
	"Traffic":              hutch.Traffic{},
	"Output":               stream.Piece{},
	"Port":                 hutch.Port{},
	"Snapshot":             hutch.Snapshot{},
	"SnapshotRequest":      hutch.SnapshotRequest{},
	"SnapshotDiff":         hutch.SnapshotDiff{},
	"FileChange":           hutch.FileChange{},
	"HibernateRequest":     hutch.HibernateRequest{},
	"SnapshotTag":          hutch.SnapshotTag{},
	"ForkRequest":          hutch.ForkRequest{},
	"PortEvent":            hutch.PortEvent{},
	"Checkpoint":           hutch.Checkpoint{},
	"PortLifetime":         stream.PortLifetime{},
	"PortLink":             hutch.PortLink{},
	"TerminalLink":         hutch.TerminalLink{},
	"SharedTerminal":       hutch.SharedTerminal{},
	"PortToken":            stream.PortToken{},
	"PortValidity":         stream.PortValidity{},
	"Problem":              problem.Details{},
	"Process":              hutch.Process{},
	"ProcessRequest":       hutch.ProcessRequest{},
	"ProcessHealth":        hutch.ProcessHealth{},
	"HealthCheck":          hutch.HealthCheck{},
	"Resources":            hutch.Resources{},
	"RunRequest":           stream.Run{},
	"RunResult":            hutch.RunResult{},
	"Sandbox":              hutch.Sandbox{},
	"AuditRecord":          audit.Record{},
	"PoolState":            hutch.PoolState{},
	"Examination":          hutch.Examination{},
	"ExaminedPart":         hutch.ExaminedPart{},
	"Finding":              hutch.Finding{},
	"AuditVerification":    hutch.AuditVerification{},
	"AuditFinding":         hutch.AuditFinding{},
	"Version":              hutch.Version{},
	"PoolKind":             hutch.PoolKind{},
	"Usage":                hutch.Usage{},
	"UsageReport":          hutch.UsageReport{},
	"Stats":                hutch.Stats{},
	"StatsReport":          hutch.StatsReport{},
	"ShareRequest":         stream.Share{},
	"Backup":               hutch.Backup{},
	"BackupRequest":        hutch.BackupRequest{},
	"RestoreBackupRequest": hutch.RestoreBackupRequest{},
	"Volume":               hutch.Volume{},
	"VolumeUse":            hutch.VolumeUse{},
	"Owned":                hutch.Owned{},
	"NodeList":             hutch.NodeList{},
	"Node":                 hutch.Node{},
	"NodeRoom":             hutch.NodeRoom{},
	"NodeSandbox":          hutch.NodeSandbox{},
	"RemovedNode":          hutch.RemovedNode{},
	"SSHServer":            hutch.SSHServer{},
	"SSHKey":               hutch.SSHKey{},
	"SSHKeyRequest":        hutch.SSHKeyRequest{},
	"SSHSignRequest":       hutch.SSHSignRequest{},
	"SSHCertificate":       hutch.SSHCertificate{},
	"VolumeRequest":        hutch.VolumeRequest{},
	"VolumeBucket":         hutch.VolumeBucket{},
	"VolumeMount":          hutch.VolumeMount{},
	"Image":                hutch.Image{},
	"ImageConfig":          hutch.ImageConfig{},
	"PullRequest":          hutch.PullRequest{},
	"PushRequest":          hutch.PushRequest{},
	"CommitRequest":        hutch.CommitRequest{},
	"BuildRequest":         hutch.BuildRequest{},
	"BuildEvent":           hutch.BuildEvent{},
	"Build":                hutch.Build{},
	"BuildOutput":          hutch.BuildOutput{},
	"TagRequest":           hutch.TagRequest{},
	"PruneRequest":         hutch.PruneRequest{},
	"Pruned":               hutch.Pruned{},
	"Transfer":             hutch.Transfer{},
	"Secret":               hutch.Secret{},
	"SecretRequest":        hutch.SecretRequest{},
	"Brokering":            hutch.Brokering{},
	"HeaderRule":           hutch.HeaderRule{},
	"NetworkProxy":         hutch.NetworkProxy{},
	"Size":                 hutch.Size{},
	"Token":                hutch.Token{},
	"TokenLimits":          hutch.TokenLimits{},
	"TokenRequest":         hutch.TokenRequest{},
	"WaitRequest":          hutch.WaitRequest{},
	"WaitResult":           hutch.WaitResult{},
}

// TestSchemasHaveTheFieldsOfTheirTypes compares the schemas with the JSON of an empty value and of a full one.
func TestSchemasHaveTheFieldsOfTheirTypes(t *testing.T) {
	t.Parallel()
	described := at(document(t), "components", "schemas").(object)
	for name := range described {
		if types[name] == nil {
			t.Errorf("no type is known for the schema %s", name)
		}
	}
	for name, v := range types {
		schema := described[name]
		if schema == nil {
			t.Errorf("%T has no schema %s", v, name)
			continue
		}
		always := fields(t, reflect.New(reflect.TypeOf(v)).Elem())
		ever := maps.Clone(always)
		for _, text := range []string{"text", "\xff"} {
			full := reflect.New(reflect.TypeOf(v)).Elem()
			fill(full, text)
			maps.Copy(ever, fields(t, full))
			validate(t, name+" with everything", object{"$ref": "#/components/schemas/" + name}, full.Interface())
		}
		properties, _ := at(schema, "properties").(object)
		if got, want := sorted(properties), sorted(ever); !slices.Equal(got, want) {
			t.Errorf("the schema %s has %q, the type %q", name, got, want)
		}
		var required []string
		list, _ := at(schema, "required").([]any)
		for _, r := range list {
			required = append(required, r.(string))
		}
		slices.Sort(required)
		if want := sorted(always); !slices.Equal(required, want) {
			t.Errorf("the schema %s requires %q, the type always has %q", name, required, want)
		}
	}
}

func sorted(o object) []string { return slices.Sorted(maps.Keys(o)) }

func fields(t *testing.T, v reflect.Value) (o object) {
	t.Helper()
	b, err := json.Marshal(v.Interface())
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		t.Fatalf("%s: %v", v.Type(), err)
	}
	return o
}

// words has a valid value for each type that allows only certain values.
var words = map[reflect.Type]string{
	reflect.TypeFor[hutch.AgentEventType](): "said",
	reflect.TypeFor[hutch.Status]():         "running",
	reflect.TypeFor[hutch.Health]():         "healthy",
	reflect.TypeFor[hutch.NodeState]():      "cordoned",
	reflect.TypeFor[hutch.IdleAction]():     "stop",
	reflect.TypeFor[hutch.ProcessStatus]():  "exited",
	reflect.TypeFor[hutch.HealthStatus]():   "starting",
	reflect.TypeFor[hutch.RestartPolicy]():  "always",
	reflect.TypeFor[hutch.Stream]():         "stderr",
	reflect.TypeFor[hutch.Kind]():           "invalid",
	reflect.TypeFor[hutch.FileType]():       "file",
	reflect.TypeFor[hutch.ChangeKind]():     "changed",
	reflect.TypeFor[hutch.PatchOmission]():  "large",
	reflect.TypeFor[hutch.EventType]():      "move",
	reflect.TypeFor[hutch.Scope]():          "exec",
	reflect.TypeFor[hutch.TimelineKind]():   "file",
	reflect.TypeFor[hutch.Access]():         "write",
	reflect.TypeFor[hutch.PortAccess]():     "private",
	reflect.TypeFor[hutch.PortEventType]():  "open",
	reflect.TypeFor[hutch.PortProtocol]():   "https",
	reflect.TypeFor[hutch.NetworkMode]():    "open",
	reflect.TypeFor[hutch.Verdict]():        "denied",
	reflect.TypeFor[hutch.ScreenAct]():      "scroll",
	reflect.TypeFor[hutch.Direction]():      "down",
	reflect.TypeFor[hutch.UsageGroup]():     "image",
	reflect.TypeFor[hutch.BuildStatus]():    "built",
}

// fill sets every field of v.
func fill(v reflect.Value, text string) {
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(1, 0).UTC()
		return
	case *json.RawMessage:
		*x = json.RawMessage(`"x"`)
		return
	}
	switch v.Kind() {
	case reflect.String:
		if word, ok := words[v.Type()]; ok {
			text = word
		}
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(time.Second))
	case reflect.Uint8:
		v.SetUint(0xff)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	case reflect.Map:
		item := reflect.New(v.Type().Elem()).Elem()
		fill(item, text)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), item)
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf("any"))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), text)
			}
		}
	}
}

// validate checks the JSON of v against a schema of the document.
func validate(t *testing.T, what string, schema any, v any) {
	t.Helper()
	var instance any
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &instance)
	}
	if err == nil {
		err = resolved(t, schema).Validate(instance)
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", what, err, b)
	}
}

var schemas sync.Map // of *jsonschema.Resolved, by their text

// resolved is a schema of the document, ready for use.
func resolved(t *testing.T, schema any) *jsonschema.Resolved {
	t.Helper()
	whole := object{"allOf": []any{schema}}
	b, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if r, ok := schemas.Load(text); ok {
		return r.(*jsonschema.Resolved)
	}
	if named := referred(document(t), schema, object{}); len(named) > 0 {
		whole["$defs"] = named
		b, _ = json.Marshal(whole)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(bytes.ReplaceAll(b, []byte("#/components/schemas/"), []byte("#/$defs/")), &s); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	schemas.Store(text, r)
	return r
}

// referred adds to found all schemas of the document that part refers to, directly or through other schemas.
func referred(document object, part any, found object) object {
	switch part := part.(type) {
	case []any:
		for _, p := range part {
			referred(document, p, found)
		}
	case object:
		ref, _ := part["$ref"].(string)
		if name, ok := strings.CutPrefix(ref, "#/components/schemas/"); ok && found[name] == nil {
			found[name] = at(document, "components", "schemas", name)
			referred(document, found[name], found)
		}
		for _, p := range part {
			referred(document, p, found)
		}
	}
	return found
}

// TestExamplesWork makes the requests that the document gives as examples, and checks the answers against their
// schemas.
func TestExamplesWork(t *testing.T) {
	t.Parallel()
	srv := serve(t)
	for _, o := range operations(t) {
		t.Run(fmt.Sprint(o.object["operationId"]), func(t *testing.T) {
			values := prepare(t, srv)
			req := o.request(t, srv.URL, values)
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			o.check(t, resp, body)
		})
	}
}

// serve runs a server that has every route.
func serve(t *testing.T) *httptest.Server {
	t.Helper()
	registry, err := auth.Open(t.Context(), auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(t.Context(), &fakeservice.Service{OnFiles: fixedFiles{}}, policy.Options{Tokens: registry, Secrets: vault(t), Backups: fixedBackups{}, Images: stored{}, Volumes: folders{}, Accounts: fixedRecords{}, Owners: fixedRecords{}, Nodes: fixedRecords{}, SSH: fixedRecords{}, Pools: fixedRecords{}, Checkpoints: fixedRecords{}, Examiner: fixedRecords{}, Audit: fixedRecords{}, Timelines: fixedRecords{}, Histories: fixedRecords{}})
	if err != nil {
		t.Fatal(err)
	}
	who, err := tokens.Only("any")(t.Context(), "any")
	if err != nil {
		t.Fatal(err)
	}
	links, err := watchlink.Open(t.Context(), watchlink.Options{Processes: p, Holder: func(string) *caller.Principal { return who }})
	if err != nil {
		t.Fatal(err)
	}
	h := rest.NewHandler(p, rest.Options{Links: links, Tokens: p, Sharing: p, Secrets: p, Backups: p, Images: p, Volumes: p, Accounts: p, Owners: p, Nodes: p, SSH: p, Pools: p, Checkpoints: p, Examiner: p, Audit: p, Timelines: p, Histories: p})
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle(execute.Path, execute.NewHandler(known{}, execute.Options{}))
	agents := coding.NewHandler(newIdleAgents(t))
	mux.Handle(coding.Prefix, agents)
	mux.Handle(coding.Prefix+"/", agents)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(caller.As(r.Context(), who)))
	}))
	t.Cleanup(srv.Close)
	return srv
}

// known knows the answer to every question.
type known struct{}

func (known) Ask(_ context.Context, q hutch.Question, _ func(hutch.AnswerEvent) error) (hutch.Answer, error) {
	return hutch.Answer{Success: true, Question: q.Question, Code: q.Code, Output: "42\n", SandboxID: "sb-bwxmepxhgaii", Language: q.Language}, q.Check()
}

// idleAgents is a service in which Claude Code ends at once and has done nothing.
type idleAgents struct{ *fakeservice.Service }

func newIdleAgents(t *testing.T) idleAgents {
	t.Helper()
	s := idleAgents{&fakeservice.Service{OnFiles: fixedFiles{}, OnExec: func(_ context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		return fakeservice.Print(sandbox, req, out, hutch.Stdout, "") // an empty diff
	}}}
	if _, err := s.CreateTemplate(t.Context(), hutch.TemplateRequest{Name: "claude-code"}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (idleAgents) Secrets(context.Context) ([]hutch.Secret, error) {
	return []hutch.Secret{{Name: "ANTHROPIC_API_KEY", Brokered: &hutch.Brokering{Hosts: []string{"api.anthropic.com"}}}}, nil
}

func (s idleAgents) Processes(ctx context.Context, sandbox string) ([]hutch.Process, error) {
	list, err := s.Service.Processes(ctx, sandbox)
	for i := range list {
		list[i].Status = hutch.ProcessExited
	}
	return list, err
}

// fixedBackups has the backup that the examples use.
type fixedBackups struct{}

func (fixedBackups) Backup(_ context.Context, sandbox string, req hutch.BackupRequest) (hutch.Backup, error) {
	return hutch.Backup{ID: "bk-k3f9q2mzx7ap", SandboxID: sandbox, Dir: req.Dir, Size: 1, CreatedAt: time.Now()}, nil
}

func (s fixedBackups) Backups(ctx context.Context) ([]hutch.Backup, error) {
	one, err := s.Backup(ctx, "demo", hutch.BackupRequest{Dir: "/workspace"})
	return []hutch.Backup{one}, err
}
func (fixedBackups) RestoreBackup(context.Context, string, hutch.RestoreBackupRequest) error {
	return nil
}
func (fixedBackups) DeleteBackup(context.Context, string) error { return nil }

// stored has the image that the examples use.
type stored struct{}

func (stored) image() hutch.Image {
	return hutch.Image{ID: "sha256:4b", Names: []string{"python:3.12-slim"}, Architecture: "amd64", Layers: []string{}, PulledAt: time.Now(), UsedAt: time.Now()}
}

func (s stored) PullImage(_ context.Context, req hutch.PullRequest, _ func(hutch.Transfer) error) (hutch.Image, error) {
	return s.image(), req.Check()
}
func (s stored) LoadImages(_ context.Context, _ string, r io.Reader) ([]hutch.Image, error) {
	_, err := io.Copy(io.Discard, r)
	return []hutch.Image{s.image()}, err
}
func (s stored) CommitImage(_ context.Context, _ string, req hutch.CommitRequest) (hutch.Image, error) {
	return s.image(), req.Check()
}
func (s stored) CommitSnapshot(_ context.Context, _ string, req hutch.CommitRequest) (hutch.Image, error) {
	return s.image(), req.Check()
}
func (s stored) BuildImage(_ context.Context, req hutch.BuildRequest, r io.Reader, _ func(hutch.BuildEvent) error) (hutch.Image, error) {
	_, err := io.Copy(io.Discard, r)
	return s.image(), errors.Join(err, req.Check())
}
func (stored) build() hutch.Build {
	return hutch.Build{ID: "b-abc", Status: hutch.BuildBuilt, StartedAt: time.Now()}
}
func (s stored) Builds(context.Context) ([]hutch.Build, error) { return []hutch.Build{s.build()}, nil }
func (s stored) BuildLogs(_ context.Context, _ string, _ bool, out func(hutch.BuildEvent) error) (hutch.Build, error) {
	return s.build(), out(hutch.BuildEvent{Step: 1, State: hutch.BuildStarted, Name: "[1/1] RUN make"})
}
func (stored) DeleteBuild(context.Context, string) error { return nil }
func (stored) SaveImage(_ context.Context, _ string, w io.Writer) error {
	_, err := io.WriteString(w, "archive")
	return err
}
func (stored) PushImage(_ context.Context, req hutch.PushRequest, _ func(hutch.Transfer) error) error {
	return req.Check()
}
func (s stored) TagImage(context.Context, string, string) (hutch.Image, error) { return s.image(), nil }
func (s stored) Image(context.Context, string) (hutch.Image, error)            { return s.image(), nil }
func (s stored) Images(context.Context) ([]hutch.Image, error)                 { return []hutch.Image{s.image()}, nil }
func (stored) DeleteImage(context.Context, string) error                       { return nil }
func (stored) PruneImages(context.Context, hutch.PruneRequest) (hutch.Pruned, error) {
	return hutch.Pruned{Images: []string{}}, nil
}

// folders has the volume that the examples use.
type folders struct{}

func (folders) volume() hutch.Volume {
	return hutch.Volume{Name: "models", Quota: 4096, CreatedAt: time.Now(), SavedAt: time.Now(), Uses: []hutch.VolumeUse{}}
}

func (f folders) CreateVolume(_ context.Context, req hutch.VolumeRequest) (hutch.Volume, error) {
	return f.volume(), req.Check()
}
func (f folders) Volumes(context.Context) ([]hutch.Volume, error) {
	return []hutch.Volume{f.volume()}, nil
}
func (f folders) Volume(_ context.Context, name string) (hutch.Volume, error) {
	return f.volume(), hutch.CheckVolume(name)
}
func (folders) DeleteVolume(context.Context, string, bool) error { return nil }
func (f folders) SyncVolume(_ context.Context, name string) (hutch.Volume, error) {
	return f.volume(), hutch.CheckVolume(name)
}
func (folders) ReadVolume(_ context.Context, _, _ string, w io.Writer) error {
	_, err := io.WriteString(w, "archive")
	return err
}
func (f folders) WriteVolume(_ context.Context, _, _ string, r io.Reader) (hutch.Volume, error) {
	_, err := io.Copy(io.Discard, r)
	return f.volume(), err
}
func (f folders) SaveVolumes(context.Context, string) ([]hutch.Volume, error) {
	return []hutch.Volume{f.volume()}, nil
}

// vault has a secret of the name that the examples use.
func vault(t *testing.T) *secret.Vault {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secrets")
	key, err := secret.LoadKey(path+".key", path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := secret.Open(path, key, nil)
	if err == nil {
		_, err = v.SetSecret(t.Context(), "GITHUB_TOKEN", hutch.SecretRequest{Value: "ghp_5XJ2r7Hk"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// prepare creates the things that the examples name in their paths.
func prepare(t *testing.T, srv *httptest.Server) map[string]string {
	t.Helper()
	values := map[string]string{"id": hutch.NewID("sb"), "context": "notebook", "backup": "bk-k3f9q2mzx7ap", "build": "b-k3f9q2mzx7ap", "volume": "models", "owner": "t-k3f9q2mzx7ap", "key": "key-k3f9q2mzx7ap", "node": "node-b", "link": "wl-4b2c7d"}
	post := func(path, body string) (answer map[string]any) {
		resp, err := srv.Client().Post(srv.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d %v %v", path, resp.StatusCode, answer, err)
		}
		return answer
	}
	post("/v1/sandboxes", `{"sandboxId":"`+values["id"]+`","labels":{"team":"search"}}`)
	p := post("/v1/sandboxes/"+values["id"]+"/processes", `{"command":"cat","name":"c","terminal":{"columns":80,"rows":24}}`)
	values["session"] = fmt.Sprint(post("/agents", `{"repository":{"url":"https://example.com/repo.git"},"prompt":"x"}`)["sandboxId"])
	values["tries"] = fmt.Sprint(post("/agents/tries", `{"repository":{"url":"https://example.com/repo.git"},"prompt":"x","tries":2}`)["id"])
	values["exec"] = "x-scripted"
	values["process"] = fmt.Sprint(p["processId"])
	values["token"] = hutch.NewID("someone")
	post("/v1/tokens", `{"name":"`+values["token"]+`"}`)
	post("/v1/sandboxes/"+values["id"]+"/contexts", `{"contextId":"notebook","language":"python"}`)
	values["snapshot"] = fmt.Sprint(post("/v1/sandboxes/"+values["id"]+"/snapshots", `{"name":"python-warm"}`)["snapshotId"])
	values["name"] = "GITHUB_TOKEN"
	values["port"] = "8000"
	post("/v1/sandboxes/"+values["id"]+"/ports", `{"port":8000}`)
	return values
}

// compare checks the example of an answer against its schema and a real answer: the example must have the same kinds
// of values, and everything that a real answer always has.
func (o operation) compare(t *testing.T, content any, real []byte) {
	t.Helper()
	if strings.HasPrefix(o.path, "/v1/openapi") {
		return
	}
	example := at(content, "example")
	if example == nil {
		t.Fatalf("%s: the answer needs an example on the page, such as %s", o, real)
	}
	validate(t, "the example of the answer", at(content, "schema"), example)
	var answer any
	if err := json.Unmarshal(real, &answer); err != nil {
		t.Fatal(err)
	}
	if reflect.TypeOf(answer) != reflect.TypeOf(example) {
		t.Errorf("%s: the example is a %T, the answer a %T", o, example, answer)
	}
	ref, _ := at(content, "schema", "$ref").(string)
	if ref == "" {
		return
	}
	known, _ := at(resolve(t, document(t), at(content, "schema")), "properties").(object)
	for name := range example.(object) {
		if _, ok := known[name]; !ok {
			t.Errorf("%s: the example has %q, which %s has not", o, name, ref)
		}
	}
}

// TestExampleOfAnError: the page shows an error word for word.
func TestExampleOfAnError(t *testing.T) {
	t.Parallel()
	srv := serve(t)
	resp, err := srv.Client().Post(srv.URL+"/v1/sandboxes", "application/json", strings.NewReader(`{"limits":{"mem":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got any
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := at(document(t), "components", "responses", "Problem", "content", "application/problem+json", "example")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the server says %v, the page %v", got, want)
	}
}

// TestCurlLinesWork runs the curl lines of the page word for word, in a shell.
func TestCurlLinesWork(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no curl: apt-get install curl")
		}
		t.Skip("there is no curl: apt-get install curl")
	}
	srv := serve(t)
	for _, o := range operations(t) {
		id := fmt.Sprint(o.object["operationId"])
		line := api.Curl(id)
		if at(o.object, "responses", "101") != nil {
			if line != "" {
				t.Errorf("%s: curl does not speak WebSocket: %s", o, line)
			}
			continue
		}
		values := prepare(t, srv)
		for _, p := range o.parameters {
			if p["in"] == "path" {
				line = strings.Replace(line, "/"+fmt.Sprint(p["example"]), "/"+values[p["name"].(string)], 1)
			}
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line+" --fail -o /dev/null -m 5")
		cmd.Env = append(os.Environ(), "HUTCH_URL="+srv.URL, "HUTCH_TOKEN=any")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v: %s", o, line, err, out)
		}
	}
}

// form is a body of two parts: request, which is JSON, and a context or an archive.
func form(t *testing.T, parts object) (io.Reader, string) {
	t.Helper()
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	b, err := json.Marshal(parts["request"])
	if err != nil {
		t.Fatal(err)
	}
	err = w.WriteField("request", string(b))
	for name, content := range parts {
		if name != "request" {
			err = errors.Join(err, w.WriteField(name, content.(string)))
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return &out, w.Boundary()
}

// request returns the request that the examples of the operation describe.
func (o operation) request(t *testing.T, base string, values map[string]string) *http.Request {
	t.Helper()
	path, query, header := o.path, url.Values{}, http.Header{}
	for _, p := range o.parameters {
		name := p["name"].(string)
		example := p["example"]
		if example == nil && p["required"] == true {
			t.Errorf("%s: the parameter %s needs an example", o, name)
		}
		if example != nil {
			validate(t, name, p["schema"], example)
		}
		switch {
		case p["in"] == "path":
			path = strings.ReplaceAll(path, "{"+name+"}", values[name])
		case example == nil:
		case p["in"] == "header":
			header.Set(name, fmt.Sprint(example))
		case p["in"] == "query":
			if list, ok := example.([]any); ok {
				for _, v := range list {
					query.Add(name, fmt.Sprint(v))
				}
			} else {
				query.Set(name, fmt.Sprint(example))
			}
		}
	}
	var body io.Reader
	content, _ := at(o.object, "requestBody", "content").(object)
	for mediaType, c := range content {
		header.Set("Content-Type", mediaType)
		example := at(c, "example")
		if example == nil {
			t.Fatalf("%s: the body needs an example", o)
		}
		validate(t, "the body", at(c, "schema"), example)
		b, err := json.Marshal(example)
		if err != nil {
			t.Fatal(err)
		}
		switch mediaType {
		case "application/json":
			body = bytes.NewReader(b)
		case "multipart/form-data":
			var boundary string
			body, boundary = form(t, example.(object))
			header.Set("Content-Type", mediaType+"; boundary="+boundary)
		default:
			body = strings.NewReader(example.(string))
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), o.method, base+path+"?"+query.Encode(), body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	return req
}

// check compares an answer with the document.
func (o operation) check(t *testing.T, resp *http.Response, body []byte) {
	t.Helper()
	response := at(o.object, "responses", fmt.Sprint(resp.StatusCode))
	if at(o.object, "responses", "101") != nil { // a plain call cannot get this answer
		if resp.StatusCode != 400 {
			t.Errorf("%d without a WebSocket", resp.StatusCode)
		}
		response = at(document(t), "components", "responses", "Problem")
	}
	if response == nil {
		t.Fatalf("%d %s is not in the document", resp.StatusCode, body)
	}
	content, _ := at(response, "content").(object)
	if len(content) == 0 {
		if len(body) > 0 {
			t.Errorf("a body that the document does not have: %s", body)
		}
		return
	}
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || content[mediaType] == nil && content["*/*"] == nil {
		t.Fatalf("Content-Type %q is not in the document: %v", mediaType, err)
	}
	if strings.HasSuffix(mediaType, "json") {
		validate(t, "the answer", at(content[mediaType], "schema"), json.RawMessage(body))
		o.compare(t, content[mediaType], body)
	}
	headers, _ := at(response, "headers").(object)
	for name := range headers {
		if name != "Link" && name != "Idempotency-Replayed" && resp.Header.Get(name) == "" {
			t.Errorf("the header %s is missing", name)
		}
	}
}

// fixedRecords has a log of one record, and no usage.
type fixedRecords struct{}

func (fixedRecords) Owners(context.Context) ([]hutch.Owned, error) { return []hutch.Owned{}, nil }
func (fixedRecords) DeleteOwner(_ context.Context, owner string) (hutch.Owned, error) {
	return hutch.Owned{Owner: owner}, nil
}

var machine = hutch.Node{
	ID: "node-b", Address: "10.0.0.6:7701", Version: "0.9.0", State: hutch.NodeDraining, Alive: true, Joined: time.Unix(1, 0).UTC(), Labels: map[string]string{"zone": "a"}, Taints: map[string]string{"gpu": "yes"},
	Started: new(time.Unix(2, 0).UTC()), SeenUntil: new(time.Unix(3, 0).UTC()), Epoch: 1, Held: 1, Stuck: 1,
}

func (fixedRecords) Nodes(context.Context) (hutch.NodeList, error) {
	return hutch.NodeList{Fleet: true, Nodes: []hutch.Node{machine}}, nil
}
func (fixedRecords) Node(context.Context, string) (hutch.Node, error) {
	n := machine
	n.Sandboxes = []hutch.NodeSandbox{{SandboxID: "user-42", Owner: "t-1", Image: "host", Placed: time.Unix(1, 0).UTC(), Stays: "it has volumes"}}
	return n, nil
}
func (fixedRecords) CordonNode(context.Context, string) (hutch.Node, error)   { return machine, nil }
func (fixedRecords) UncordonNode(context.Context, string) (hutch.Node, error) { return machine, nil }
func (fixedRecords) DrainNode(context.Context, string) (hutch.Node, error)    { return machine, nil }
func (fixedRecords) RemoveNode(_ context.Context, node string, _ bool) (hutch.RemovedNode, error) {
	return hutch.RemovedNode{Node: node, Freed: 1}, nil
}

func (fixedRecords) SSHServer(context.Context) (hutch.SSHServer, error) {
	return hutch.SSHServer{Address: "hutch.example.com:2222", HostKey: "ssh-ed25519 AAAA"}, nil
}
func (fixedRecords) AddSSHKey(context.Context, hutch.SSHKeyRequest) (hutch.SSHKey, error) {
	return hutch.SSHKey{ID: "key-k3f9q2mzx7ap", CreatedAt: time.Unix(1, 0).UTC()}, nil
}
func (fixedRecords) SSHKeys(context.Context) ([]hutch.SSHKey, error) { return []hutch.SSHKey{}, nil }
func (fixedRecords) DeleteSSHKey(context.Context, string) error      { return nil }
func (fixedRecords) SignSSHKey(context.Context, hutch.SSHSignRequest) (hutch.SSHCertificate, error) {
	return hutch.SSHCertificate{Certificate: "ssh-ed25519-cert-v01@openssh.com AAAA", ExpiresAt: time.Unix(1, 0).UTC()}, nil
}

func (fixedRecords) Query(_ context.Context, _ audit.Query, out func(audit.Record) error) error {
	return out(audit.Record{Seq: 1, Phase: audit.Mark, Operation: audit.Operation{Verb: audit.AuditStart, Result: audit.OK}})
}

func (b fixedRecords) Follow(ctx context.Context, q audit.Query, out func(audit.Record) error) error {
	return b.Query(ctx, q, out)
}

func (fixedRecords) Usage(context.Context) (hutch.UsageReport, error) {
	return hutch.UsageReport{Sandboxes: []hutch.Usage{}, Owners: []hutch.Usage{{}}}, nil
}

func (fixedRecords) UsageHistory(context.Context, hutch.UsageQuery) ([]hutch.Usage, error) {
	return []hutch.Usage{{Day: "2026-11-28", Executions: 1}}, nil
}

func (fixedRecords) Stats(_ context.Context, _ hutch.StatsRequest, out func(hutch.StatsReport) error) error {
	return out(hutch.StatsReport{Time: time.Unix(1, 0).UTC(), Full: true, Sandboxes: []hutch.Stats{{SandboxID: "user-42", Status: hutch.Running, Health: hutch.Healthy, Runtime: "gvisor"}}})
}

func (fixedRecords) StatsHistory(context.Context, string, hutch.StatsQuery) (hutch.StatsHistory, error) {
	return hutch.StatsHistory{Step: 5, Samples: []hutch.StatsSample{{Time: time.Now(), CPU: 12.5, Memory: 64}}}, nil
}

func (fixedRecords) Timeline(_ context.Context, _ string, _ hutch.TimelineQuery, out func(hutch.TimelineEntry) error) error {
	return out(hutch.TimelineEntry{ID: 1, Cursor: 1, Time: time.Now(), Kind: hutch.TimelineLife, Event: "Created", Result: hutch.TimelineOK})
}

func (fixedRecords) CheckpointAll(_ context.Context, out func(hutch.Checkpoint) error) error {
	return errors.Join(out(hutch.Checkpoint{SandboxID: "user-42", Memory: true}), out(hutch.Checkpoint{Done: true}))
}

func (fixedRecords) Pool(context.Context) (hutch.PoolState, error) {
	return hutch.PoolState{Max: 64, Kinds: []hutch.PoolKind{{Runtime: "gvisor", Image: "host", Why: "they are being made"}}}, nil
}

func (fixedRecords) Examine(context.Context) (hutch.Examination, error) {
	return hutch.Examination{Parts: []hutch.ExaminedPart{{Part: "native", Runtime: true, Findings: []hutch.Finding{{Name: "cgroups", Level: "error", Detail: "there are none", Fix: "mount them"}}}}}, nil
}

func (fixedRecords) VerifyAudit(context.Context, string) (hutch.AuditVerification, error) {
	return hutch.AuditVerification{Lines: 1, First: 1, Last: 1, Head: "1:00", Notes: []string{}, Findings: []hutch.AuditFinding{{File: "x", What: "gone"}}}, nil
}

// fixedFiles has files that are always the same.
type fixedFiles struct{}

var entry = hutch.FileInfo{Path: "/workspace/main.go", Name: "main.go", Type: hutch.RegularFile, Size: 4, Mode: 0o644, Modified: time.Unix(1, 0).UTC()}

func (fixedFiles) ReadFile(_ context.Context, _ string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	if req.Opened != nil {
		req.Opened(entry)
	}
	_, err := io.WriteString(w, "text")
	return entry, err
}

func (fixedFiles) WriteFile(_ context.Context, _ string, _ hutch.WriteRequest, r io.Reader) (hutch.FileInfo, error) {
	_, err := io.Copy(io.Discard, r)
	return entry, err
}

func (fixedFiles) EditFile(context.Context, string, hutch.EditRequest) (hutch.Edit, error) {
	return hutch.Edit{File: entry, Replacements: 1, Line: 1}, nil
}

func (fixedFiles) Stat(context.Context, string, string) (hutch.FileInfo, error) { return entry, nil }

func (fixedFiles) ListFiles(_ context.Context, _ string, _ hutch.ListRequest, out func(hutch.FileInfo) error) error {
	return out(entry)
}

func (fixedFiles) SearchFiles(_ context.Context, _ string, _ hutch.SearchRequest, out func(hutch.Match) error) error {
	return out(hutch.Match{Path: entry.Path, Line: 1, Column: 1, Text: "func main"})
}

func (fixedFiles) Mkdir(context.Context, string, string, bool) error                { return nil }
func (fixedFiles) Move(context.Context, string, string, string, bool) error         { return nil }
func (fixedFiles) Copy(context.Context, string, string, string, bool) error         { return nil }
func (fixedFiles) Delete(context.Context, string, string, bool) error               { return nil }
func (fixedFiles) Chmod(context.Context, string, string, hutch.FileMode) error      { return nil }
func (fixedFiles) Pack(context.Context, string, hutch.PackRequest, io.Writer) error { return nil }

func (fixedFiles) Watch(_ context.Context, _ string, _ hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	return out(hutch.FileEvent{Type: hutch.WatchReady})
}

func (fixedFiles) Unpack(_ context.Context, _ string, _ hutch.UnpackRequest, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// TestDocumentIsInOrder checks rules of style, as a linter would.
func TestDocumentIsInOrder(t *testing.T) {
	t.Parallel()
	doc := document(t)
	if doc["openapi"] != "3.1.0" {
		t.Errorf("openapi: %v", doc["openapi"])
	}
	tags := map[any]bool{}
	for _, tag := range doc["tags"].([]any) {
		tags[at(tag, "name")] = false
	}
	ids := map[any]bool{}
	for _, o := range operations(t) {
		id, list := o.object["operationId"], o.object["tags"].([]any)
		if id == nil || ids[id] || len(list) != 1 {
			t.Errorf("%s: operationId %v, tags %v: both must be there, the first for the first time, the second once", o, id, list)
		}
		ids[id] = true
		if _, ok := tags[list[0]]; !ok {
			t.Errorf("%s: the tag %s is not declared", o, list[0])
		}
		tags[list[0]] = true
		if summary, _ := o.object["summary"].(string); !strings.HasSuffix(summary, ".") {
			t.Errorf("%s: the summary %q is not a sentence", o, summary)
		}
		if at(o.object, "responses", "default") == nil {
			t.Errorf("%s: how does it fail?", o)
		}
		var names []string
		for _, p := range o.parameters {
			if p["in"] == "path" {
				names = append(names, "{"+p["name"].(string)+"}")
			}
		}
		if want := regexp.MustCompile(`{\w+}`).FindAllString(o.path, -1); !slices.Equal(names, want) {
			t.Errorf("%s: has the parameters %v", o, names)
		}
	}
	for tag, used := range tags {
		if !used {
			t.Errorf("the tag %v is not used", tag)
		}
	}
	used := map[string]bool{}
	for _, ref := range regexp.MustCompile(`"#/components/[^"]+"`).FindAllString(string(api.JSON()), -1) {
		path := strings.TrimPrefix(strings.Trim(ref, `"`), "#/")
		used[path] = true
		if at(doc, strings.Split(path, "/")...) == nil {
			t.Errorf("%s is not there", ref)
		}
	}
	ofEvents := []string{"AgentEvent", "AnswerEvent", "Checkpoint", "CodeError", "FileEvent", "PortEvent", "Transfer"}
	for kind, items := range doc["components"].(object) {
		for name := range items.(object) {
			if path := "components/" + kind + "/" + name; kind != "securitySchemes" && !used[path] && !slices.Contains(ofEvents, name) {
				t.Errorf("%s is not used", path)
			}
		}
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	h := rest.NewHandler(&fakeservice.Service{}, rest.Options{})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/docs", nil))
	page := w.Body.String()
	for _, o := range operations(t) {
		if !strings.Contains(page, fmt.Sprintf(`id="%s"`, o.object["operationId"])) {
			t.Errorf("%s is not on the page", o)
		}
	}
	for _, bad := range []string{"<script", "src=", "<link", "url(", "@import", "ZgotmplZ", "style=", "onclick"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	if !strings.Contains(page, "<style>"+api.Style()+"</style>") {
		t.Error("the page has another style than the one that its policy allows")
	}
	if policy := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") {
		t.Errorf("Content-Security-Policy: %s", policy)
	}
}
