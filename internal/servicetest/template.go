package servicetest

import (
	"context"
	"strings"
	"testing"

	"hutch"
)

// templateTests are tests of templates.
type templateTests struct{ *suite }

func (s templateTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"Ready":  s.templateIsReady,
		"From":   s.templateOfSandbox,
		"Names":  s.templateNames,
		"Tags":   s.templateTags,
		"Fails":  s.templateFails,
		"Errors": s.templateErrors,
	}
}

// template makes a template that is deleted when the test ends.
func (s templateTests) template(t *testing.T, req hutch.TemplateRequest) hutch.Snapshot {
	t.Helper()
	if req.From == "" {
		req.Runtime = s.Runtime
	}
	snap, err := s.svc.CreateTemplate(bounded(t), req)
	if err != nil {
		t.Fatalf("create a template: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.svc.DeleteSnapshot(ctx, snap.ID); err != nil {
			t.Errorf("delete a template: %v", err)
		}
	})
	return snap
}

// templateIsReady: in a sandbox of a template, the template's process is running and ready. The sandbox has the type,
// labels, environment and network of the template. There are at most as many sandboxes as the template allows. Nothing
// is left from making the template.
func (s templateTests) templateIsReady(t *testing.T) {
	name := hutch.NewID("tmpl")
	snap := s.template(t, hutch.TemplateRequest{
		Name: name + ":v1", InstanceType: "lite", Limits: hutch.Limits{CPU: 1, Memory: 512}, Env: map[string]string{"COLOUR": "green"},
		Network: hutch.Network{Mode: hutch.NetworkNone},
		Template: hutch.Template{
			Start: "echo $COLOUR is up; exec sleep 600", Ready: &hutch.WaitRequest{Text: "is up"},
			Labels: map[string]string{"team": "red", "made": "so"}, MaxSandboxes: 1,
		},
	})
	if snap.Name != name+":v1" || snap.Template == nil || snap.Template.MaxSandboxes != 1 {
		t.Errorf("the record is %+v", snap)
	}
	if _, err := s.svc.Sandbox(bounded(t), snap.SandboxID); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("the sandbox that it was made of is still there: %v", err)
	}
	sb := s.make(t, hutch.CreateRequest{Template: name + ":v1", Labels: map[string]string{"made": "here"}})
	if sb.Template != name+":v1" || sb.InstanceType != "lite" || sb.Limits.CPU != 1 || sb.Limits.Disk != 2048 || sb.Network.Mode != hutch.NetworkNone ||
		sb.Labels["team"] != "red" || sb.Labels["made"] != "here" {
		t.Errorf("the sandbox is %+v", sb)
	}
	all, err := s.svc.Processes(bounded(t), sb.ID)
	if err != nil || len(all) != 1 || !all[0].Status.Live() {
		t.Fatalf("its processes are %+v, %v", all, err)
	}
	var log strings.Builder
	if _, err := s.svc.Logs(bounded(t), hutch.LogsRequest{SandboxID: sb.ID, ProcessID: all[0].ID}, func(o hutch.Output) error {
		log.Write(o.Data)
		return nil
	}); err != nil || log.String() != "green is up\n" {
		t.Errorf("it printed %q, %v", log.String(), err)
	}
	_, err = s.svc.Create(bounded(t), hutch.CreateRequest{Image: name + ":v1"})
	wantKind(t, hutch.Exhausted, err, "one more than the template allows")
	again, err := s.svc.Create(bounded(t), hutch.CreateRequest{ID: sb.ID, Image: name + ":v1"})
	if err != nil || again.CreatedAt != sb.CreatedAt {
		t.Errorf("a create with an id that exists: %+v, %v", again, err)
	}
}

// templateOfSandbox: a template that is made from a sandbox has the state of that sandbox.
func (s templateTests) templateOfSandbox(t *testing.T) {
	id, name := s.open(t), hutch.NewID("tmpl")
	s.run(t, id, "echo kept > file")
	s.template(t, hutch.TemplateRequest{Name: name, From: id, FilesOnly: true, Template: hutch.Template{Start: "echo started > started; exec sleep 600"}})
	sb := s.make(t, hutch.CreateRequest{Image: name + ":latest"}) // the name of a template as an image
	if got := s.run(t, sb.ID, "cat file; until test -s started; do sleep 0.01; done; cat started"); got != "kept\nstarted\n" || sb.Template != name {
		t.Errorf("it has %q and is of %q", got, sb.Template)
	}
}

// templateNames: each tag is a separate name, except latest, which can be left out. A template can be replaced.
func (s templateTests) templateNames(t *testing.T) {
	id, name := s.open(t), hutch.NewID("tmpl")
	make := func(name, content string, replace bool) error {
		s.run(t, id, "echo "+content+" > file")
		_, err := s.svc.CreateTemplate(bounded(t), hutch.TemplateRequest{Name: name, From: id, FilesOnly: true, Replace: replace})
		return err
	}
	t.Cleanup(func() {
		for _, n := range []string{name, name + ":v2"} {
			s.svc.DeleteSnapshot(context.WithoutCancel(t.Context()), n)
		}
	})
	for _, step := range []struct {
		name, content string
		replace       bool
		kind          hutch.Kind
	}{{name, "one", false, ""}, {name + ":v2", "two", false, ""}, {name + ":latest", "three", false, hutch.Conflict}, {name, "four", true, ""}} {
		if err := make(step.name, step.content, step.replace); err != nil && hutch.KindOf(err) != step.kind || err == nil && step.kind != "" {
			t.Errorf("%s with %s: %v", step.name, step.content, err)
		}
	}
	for of, want := range map[string]string{name: "four\n", name + ":latest": "four\n", name + ":v2": "two\n"} {
		if got := s.run(t, s.make(t, hutch.CreateRequest{Template: of}).ID, "cat file"); got != want {
			t.Errorf("%s has %q, not %q", of, got, want)
		}
	}
	list, err := s.svc.Snapshots(bounded(t))
	n := 0
	for _, v := range list {
		if strings.HasPrefix(v.Name, name) {
			n++
		}
	}
	if n != 2 || err != nil {
		t.Errorf("there are %d templates, %v", n, err)
	}
}

// templateTags: a template can have several names. A name can be moved to another template, and a template is deleted
// with its last name.
func (s templateTests) templateTags(t *testing.T) {
	id, name := s.open(t), hutch.NewID("tmpl")
	v1 := s.template(t, hutch.TemplateRequest{Name: name + ":v1", From: id, FilesOnly: true})
	v2 := s.template(t, hutch.TemplateRequest{Name: name + ":v2", From: id, FilesOnly: true})
	tag := func(of, as string, replace bool) (hutch.Snapshot, error) {
		return s.svc.TagSnapshot(bounded(t), of, hutch.SnapshotTag{Name: as, Replace: replace})
	}
	names := func() (of1, of2 string) {
		list, err := s.svc.Snapshots(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		of1, of2 = "gone", "gone"
		for _, v := range list {
			text := strings.ReplaceAll(strings.Join(v.Names, " "), name, "N")
			switch v.ID {
			case v1.ID:
				of1 = text
			case v2.ID:
				of2 = text
			}
		}
		return of1, of2
	}
	want := func(one, two string) {
		t.Helper()
		if of1, of2 := names(); of1 != one || of2 != two {
			t.Errorf("the names are %q and %q, not %q and %q", of1, of2, one, two)
		}
	}
	for _, as := range []string{name + ":latest", name} { // the same name
		if got, err := tag(name+":v1", as, false); err != nil || got.ID != v1.ID || got.Name != name+":v1" || len(got.Names) != 2 {
			t.Fatalf("tag %s: %+v, %v", as, got, err)
		}
	}
	_, err := tag(v2.ID, name, false)
	wantKind(t, hutch.Conflict, err, "a name of another template")
	want("N:v1 N", "N:v2")
	if _, err := tag(v2.ID, name, true); err != nil {
		t.Fatal(err)
	}
	want("N:v1", "N:v2 N")
	if sb := s.make(t, hutch.CreateRequest{Image: name}); sb.Template != name {
		t.Errorf("it began as %q", sb.Template)
	}
	if err := s.svc.DeleteSnapshot(bounded(t), name+":v2"); err != nil {
		t.Fatal(err)
	}
	want("N:v1", "N")
	if _, err := tag(name, name+":v1", true); err != nil {
		t.Fatal(err)
	}
	want("gone", "N N:v1")
	if err := s.svc.DeleteSnapshot(bounded(t), v2.ID); err != nil {
		t.Fatal(err)
	}
	want("gone", "gone")
	_, err = tag(name, name+":v3", false)
	wantKind(t, hutch.NotFound, err, "tag a template that is gone")
	_, err = tag(name, "A/b", false)
	wantKind(t, hutch.Invalid, err, "a bad name")
}

// templateFails: a template that does not become ready is not kept, and the error contains what its program printed.
func (s templateTests) templateFails(t *testing.T) {
	for start, word := range map[string]string{
		"echo no such thing; exit 3": `exit code 3 before it was ready; at last it printed "no such thing"`,
		"exec sleep 600":             "was not ready in time and printed nothing",
	} {
		name := hutch.NewID("tmpl")
		_, err := s.svc.CreateTemplate(bounded(t), hutch.TemplateRequest{Name: name, Runtime: s.Runtime, Template: hutch.Template{
			Start: start, Ready: &hutch.WaitRequest{Text: "up", Timeout: 0.3}, Labels: map[string]string{"fails": "yes"},
		}})
		wantKind(t, hutch.Conflict, err, start)
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", start, err)
		}
		_, err = s.svc.Create(bounded(t), hutch.CreateRequest{Template: name})
		wantKind(t, hutch.NotFound, err, "create from what did not become a template")
	}
	all, err := s.svc.Sandboxes(bounded(t), hutch.Filter{Brief: true})
	for _, sb := range all {
		if sb.Labels["fails"] != "" || err != nil {
			t.Errorf("a sandbox is left: %+v, %v", sb, err)
		}
	}
}

func (s templateTests) templateErrors(t *testing.T) {
	id := s.open(t)
	port := &hutch.WaitRequest{Port: 80}
	for name, req := range map[string]hutch.TemplateRequest{
		"a bad name":             {Name: "A/B"},
		"a bad tag":              {Name: "a:B"},
		"two tags":               {Name: "a:b:c"},
		"no name":                {},
		"a bad sandbox":          {Name: "a", From: "A/B"},
		"a sandbox and a type":   {Name: "a", From: id, InstanceType: "lite"},
		"a sandbox and warm":     {Name: "a", From: id, Template: hutch.Template{Warm: []string{"python"}}},
		"ready without start":    {Name: "a", Template: hutch.Template{Ready: port}},
		"ready for nothing":      {Name: "a", Template: hutch.Template{Start: "x", Ready: &hutch.WaitRequest{}}},
		"ready for a bad port":   {Name: "a", Template: hutch.Template{Start: "x", Ready: &hutch.WaitRequest{Port: 70000}}},
		"a bad pattern":          {Name: "a", Template: hutch.Template{Start: "x", Ready: &hutch.WaitRequest{Pattern: "("}}},
		"start and entrypoint":   {Name: "a", Entrypoint: true, Template: hutch.Template{Start: "x"}},
		"entrypoint of no image": {Name: "a", Entrypoint: true, Runtime: s.Runtime},
		"a bad language":         {Name: "a", Template: hutch.Template{Warm: []string{"cobol"}}},
		"a bad module":           {Name: "a", Template: hutch.Template{Warm: []string{"python=a b"}}},
		"fewer than none":        {Name: "a", Template: hutch.Template{MaxSandboxes: -1}},
		"shared secrets":         {Name: "a", Shared: true, Secrets: []string{"KEY"}},
		"an unknown type":        {Name: "a", InstanceType: "huge", Runtime: s.Runtime},
		"a negative time":        {Name: "a", TTL: -1},
	} {
		_, err := s.svc.CreateTemplate(bounded(t), req)
		wantKind(t, hutch.Invalid, err, name)
	}
	_, err := s.svc.CreateTemplate(bounded(t), hutch.TemplateRequest{Name: "a", From: hutch.NewID("none")})
	wantKind(t, hutch.NotFound, err, "a template of no sandbox")
	_, err = s.svc.Create(bounded(t), hutch.CreateRequest{Template: "a", Snapshot: "b"})
	wantKind(t, hutch.Invalid, err, "a template and a snapshot")
}
