package engine_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/engine"
	"hutch/internal/hutchtest/s3"
	"hutch/internal/volume"
)

// withVolumes starts an engine with the volume "data" of 1 MiB.
func withVolumes(t *testing.T) (*bench, *volume.Store) {
	t.Helper()
	s, err := volume.Open(t.TempDir(), volume.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create("", hutch.VolumeRequest{Name: "data", Quota: 1}); err != nil {
		t.Fatal(err)
	}
	return start(t, func(o *engine.Options) { o.Volumes, o.HealthEvery = s, 50*time.Millisecond }), s
}

// mounted creates a sandbox that has the volume in a folder of its own.
func (b *bench) mounted(t *testing.T, id string, change func(*hutch.CreateRequest)) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	req := hutch.CreateRequest{ID: id, Volumes: []hutch.VolumeMount{{Name: "data", Path: dir}}}
	if change != nil {
		change(&req)
	}
	b.create(t, req)
	return dir
}

// kept returns the content of a file in the volume, without space around it.
func kept(t *testing.T, s *volume.Store, file string) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.ReadPath("", "data", file, &b); err != nil {
		return err.Error()
	}
	return b.String()
}

func (b *bench) wantKept(t *testing.T, s *volume.Store, file, text string) {
	t.Helper()
	if got := kept(t, s, file); !strings.Contains(got, text) {
		t.Errorf("the volume has %.200q, not %q", got, text)
	}
}

func TestVolumeOutlivesItsSandbox(t *testing.T) {
	b, s := withVolumes(t)
	dir := b.mounted(t, "a", nil)
	b.run(t, "a", "echo first > "+dir+"/f")
	if _, err := b.SaveVolumes(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.wantKept(t, s, "f", "first")
	b.run(t, "a", "echo second > "+dir+"/f")
	if _, err := b.Destroy(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	b.wantKept(t, s, "f", "second")
	dir = b.mounted(t, "b", nil)
	if got := b.run(t, "b", "cat "+dir+"/f"); got != "second\n" {
		t.Errorf("the next sandbox has %q", got)
	}
	b.run(t, "b", "echo third > "+dir+"/f")
	if _, err := b.Destroy(t.Context(), "b", true); err != nil {
		t.Fatal(err)
	}
	b.wantKept(t, s, "f", "third")
}

func TestOneSandboxWritesToAVolume(t *testing.T) {
	b, s := withVolumes(t)
	dir := b.mounted(t, "a", func(r *hutch.CreateRequest) { r.SleepAfter, r.OnIdle = 0.1, hutch.IdleStop })
	b.run(t, "a", "echo first > "+dir+"/f")
	refused := func(when string) {
		t.Helper()
		_, err := b.Create(t.Context(), hutch.CreateRequest{ID: "b", Volumes: []hutch.VolumeMount{{Name: "data", Path: "/b"}}})
		if hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("%s, another writer: %v", when, err)
		}
	}
	refused("awake")
	b.until(t, "a", hutch.Stopped)
	b.wantKept(t, s, "f", "first") // saved before it slept
	refused("asleep")
	b.end(t)
	b.boot(t)
	refused("after a restart")
	read := b.mounted(t, "r", func(r *hutch.CreateRequest) { r.Volumes[0].ReadOnly = true })
	if got := b.run(t, "r", "cat "+read+"/f; stat -c %a "+read+" "+read+"/f"); got != "first\n555\n444\n" {
		t.Errorf("a reader has %q", got)
	}
	uses := b.VolumeUses("")["data"]
	if len(uses) != 2 || uses[0].SandboxID != "a" || !uses[1].ReadOnly {
		t.Errorf("uses: %+v", uses)
	}
	if uses := b.VolumeUses("bob"); len(uses) != 0 {
		t.Errorf("bob sees %+v", uses)
	}
	if _, err := b.Destroy(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	b.mounted(t, "b", nil)
	b.run(t, "r", "chmod -R u+w "+read+"; echo of the reader > "+read+"/f")
	if _, err := b.Destroy(t.Context(), "r", true); err != nil {
		t.Fatal(err)
	}
	b.wantKept(t, s, "f", "first")
}

// A volume that cannot be saved keeps its sandbox awake, and keeps it from being destroyed without force.
func TestVolumeOverItsQuota(t *testing.T) {
	b, s := withVolumes(t)
	dir := b.mounted(t, "a", func(r *hutch.CreateRequest) { r.SleepAfter, r.OnIdle = 0.1, hutch.IdleStop })
	b.run(t, "a", "echo first > "+dir+"/f")
	if _, err := b.SaveVolumes(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.run(t, "a", "head -c 2000000 /dev/zero > "+dir+"/big; echo second > "+dir+"/f")
	if _, err := b.SaveVolumes(t.Context(), "a"); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("saved: %v", err)
	}
	if _, err := b.Destroy(t.Context(), "a", false); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("destroyed: %v", err)
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if sb, err := b.Sandbox(t.Context(), "a"); err != nil || sb.Status != hutch.Running {
			t.Fatalf("it is %s, %v", sb.Status, err)
		}
	}
	b.wantKept(t, s, "f", "first")
	if v, err := s.Find("", "data"); err != nil || !strings.Contains(v.Problem, "1 MiB") {
		t.Errorf("the record says %q, %v", v.Problem, err)
	}
	b.run(t, "a", "rm "+dir+"/big")
	b.until(t, "a", hutch.Stopped)
	b.wantKept(t, s, "f", "second")
	if _, err := b.Destroy(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
}

func TestForceDestroysWhatCannotBeSaved(t *testing.T) {
	b, s := withVolumes(t)
	dir := b.mounted(t, "a", nil)
	b.run(t, "a", "rmdir "+dir+"; ln -s /etc "+dir)
	if _, err := b.Destroy(t.Context(), "a", false); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a link in place of the folder: %v", err)
	}
	if _, err := b.Destroy(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	if v, _ := s.Find("", "data"); v.Version != 0 {
		t.Errorf("what a link leads to was saved: %+v", v)
	}
}

func TestCreateWithAVolumeIsAllOrNothing(t *testing.T) {
	b, _ := withVolumes(t)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link") // like /mnt/data on the host image: no save would find a folder there
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		mount hutch.VolumeMount
		want  hutch.Kind
	}{
		"a link":            {hutch.VolumeMount{Name: "data", Path: link}, hutch.Conflict},
		"no such volume":    {hutch.VolumeMount{Name: "none", Path: full + "/x"}, hutch.NotFound},
		"files already":     {hutch.VolumeMount{Name: "data", Path: full}, hutch.Conflict},
		"a file":            {hutch.VolumeMount{Name: "data", Path: full + "/f"}, hutch.Conflict},
		"the whole":         {hutch.VolumeMount{Name: "data", Path: "/"}, hutch.Invalid},
		"proc":              {hutch.VolumeMount{Name: "data", Path: "/proc/self"}, hutch.Invalid},
		"the agent's":       {hutch.VolumeMount{Name: "data", Path: "/.hutch/run"}, hutch.Invalid},
		"dots":              {hutch.VolumeMount{Name: "data", Path: "/tmp/../proc"}, hutch.Invalid},
		"not absolute":      {hutch.VolumeMount{Name: "data", Path: "data"}, hutch.Invalid},
		"no name":           {hutch.VolumeMount{Name: "../x", Path: "/tmp/x"}, hutch.Invalid},
		"in the devices":    {hutch.VolumeMount{Name: "data", Path: "/dev/shm/x"}, hutch.Invalid},
		"a zero byte":       {hutch.VolumeMount{Name: "data", Path: "/tmp/\x00"}, hutch.Invalid},
		"slash at the end":  {hutch.VolumeMount{Name: "data", Path: "/tmp/x/"}, hutch.Invalid},
		"control files too": {hutch.VolumeMount{Name: "data", Path: "/sys/fs/cgroup"}, hutch.Invalid},
	} {
		if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "a", Volumes: []hutch.VolumeMount{c.mount}}); hutch.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if _, err := b.Sandbox(t.Context(), "a"); hutch.KindOf(err) != hutch.NotFound {
			t.Fatalf("%s: there is a sandbox: %v", name, err)
		}
	}
	two := []hutch.VolumeMount{{Name: "data", Path: "/tmp/a"}, {Name: "other", Path: "/tmp/a/b"}}
	for _, list := range [][]hutch.VolumeMount{two, {two[0], two[0]}, make([]hutch.VolumeMount, 17)} {
		if _, err := b.Create(t.Context(), hutch.CreateRequest{Volumes: list}); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%v: %v", list, err)
		}
	}
	b.mounted(t, "a", nil) // nothing holds the volume
}

// stuck is a store in which saves of one owner do not end by themselves.
type stuck struct {
	*volume.Store
	owner string
}

func (s stuck) Save(ctx context.Context, owner, name string, pack func(io.Writer) error) error {
	if owner == s.owner {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return s.Store.Save(ctx, owner, name, pack)
}

// A slow save delays neither the saves of other owners nor the sleep of their sandboxes.
func TestOwnersDoNotWaitForSaves(t *testing.T) {
	var s *volume.Store
	b := start(t, func(o *engine.Options) {
		var err error
		if s, err = volume.Open(t.TempDir(), volume.Options{}); err != nil {
			t.Fatal(err)
		}
		o.Volumes, o.SaveEvery = stuck{s, "ada"}, 10*time.Millisecond
	})
	dirs := map[string]string{}
	for _, owner := range []string{"ada", "bob"} { // ada's sandbox is the older one
		dirs[owner] = filepath.Join(t.TempDir(), "data")
		if _, err := s.Create(owner, hutch.VolumeRequest{Name: "data"}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Create(as(t, owner), hutch.CreateRequest{ID: "a", Volumes: []hutch.VolumeMount{{Name: "data", Path: dirs[owner]}}}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond) // ada's save is under way
	b.runAs(t, "bob", "a", "echo first > "+dirs["bob"]+"/f")
	soon(t, "bob's volume is saved", func() bool {
		v, err := s.Find("bob", "data")
		return err == nil && v.Entries == 1
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- b.SleepAll(ctx) }()
	soon(t, "bob's sandbox sleeps", func() bool {
		sb, err := b.Sandbox(as(t, "bob"), "a")
		return err == nil && sb.Status == hutch.Stopped
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("ada's sandbox sleeps, unsaved")
	}
}

// A save in the background ends when a caller wants the lifecycle lock, so that no caller waits for a slow save.
func TestSaveGivesWay(t *testing.T) {
	b := start(t, func(o *engine.Options) {
		s, err := volume.Open(t.TempDir(), volume.Options{})
		if err == nil {
			_, err = s.Create("ada", hutch.VolumeRequest{Name: "data"})
		}
		if err != nil {
			t.Fatal(err)
		}
		o.Volumes, o.SaveEvery = stuck{s, "ada"}, 10*time.Millisecond
	})
	ada := as(t, "ada")
	if _, err := b.Create(ada, hutch.CreateRequest{ID: "a", Volumes: []hutch.VolumeMount{{Name: "data", Path: filepath.Join(t.TempDir(), "data")}}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // a save that never ends is under way
	ctx, cancel := context.WithTimeout(ada, 20*time.Second)
	defer cancel()
	keep := true
	if _, err := b.Update(ctx, "a", hutch.UpdateRequest{KeepAlive: &keep}); err != nil {
		t.Errorf("an update waits for the save: %v", err)
	}
}

// together is a store whose saves end only when another save is under way.
type together struct {
	*volume.Store
	met chan struct{}
}

func (s together) Save(context.Context, string, string, func(io.Writer) error) error {
	select {
	case s.met <- struct{}{}:
	case <-s.met:
	case <-time.After(10 * time.Second):
		return hutch.Errorf(hutch.Timeout, "alone")
	}
	return nil
}

// An engine that destroys its sandboxes at its end saves them in parallel.
func TestDestroyOnExitIsNotSerial(t *testing.T) {
	s, err := volume.Open(t.TempDir(), volume.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(engine.Options{
		Dir: t.TempDir(), Drivers: []driver.Driver{fake.New(t.TempDir())}, Image: noImage, Ephemeral: true, Volumes: together{s, make(chan struct{})},
	})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := s.Create("", hutch.VolumeRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Create(t.Context(), hutch.CreateRequest{ID: name, Volumes: []hutch.VolumeMount{{Name: name, Path: filepath.Join(t.TempDir(), "data")}}}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("the saves waited for each other: %v", took)
	}
}

// A new sandbox has the content of the bucket of its volume, and what it saves is written to the bucket. A second
// sandbox that only reads changes neither the volume nor the bucket. Without its bucket, the volume cannot be in a new
// sandbox.
func TestVolumeOfABucket(t *testing.T) {
	service := s3.Start(t)
	objects := func() (list []string) {
		for o := range service.Client.ListObjects(t.Context(), "hutch", minio.ListObjectsOptions{Recursive: true}) {
			list = append(list, o.Key)
		}
		return list
	}
	put := func(key string) {
		if _, err := service.Client.PutObject(t.Context(), "hutch", key, strings.NewReader("theirs\n"), 7, minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put("d/first")
	s, err := volume.Open(t.TempDir(), volume.Options{BucketHosts: []string{service.Host}, Secret: func(_, name string) (string, error) { return s3.Key, nil }})
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, func(o *engine.Options) { o.Volumes = s })
	svc := volume.NewService(volume.ServiceOptions{Store: s, Uses: b.VolumeUses, Save: b.SaveVolumes})
	if _, err := svc.CreateVolume(t.Context(), hutch.VolumeRequest{Name: "data", Bucket: &hutch.VolumeBucket{URL: service.URL("d"), KeyID: s3.KeyID, KeySecret: "KEY"}}); err != nil {
		t.Fatal(err)
	}
	dir := b.mounted(t, "a", nil)
	if got := b.run(t, "a", "cat "+dir+"/first"); got != "theirs\n" {
		t.Errorf("it began with %q", got)
	}
	b.run(t, "a", "echo ours > "+dir+"/second")
	put("d/third")
	if _, err := svc.SaveVolumes(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.mounted(t, "r", func(r *hutch.CreateRequest) { r.Volumes[0].ReadOnly = true })
	if got := strings.Join(objects(), " "); got != "d/first d/second d/third" {
		t.Errorf("the bucket has %s", got)
	}
	if _, err := b.Destroy(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	dir = b.mounted(t, "b", nil)
	if got := b.run(t, "b", "cat "+dir+"/third "+dir+"/second"); got != "theirs\nours\n" {
		t.Errorf("the next began with %q", got)
	}
	service.End()
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "c", Volumes: []hutch.VolumeMount{{Name: "data", Path: filepath.Join(t.TempDir(), "x"), ReadOnly: true}}}); hutch.KindOf(err) != hutch.Unavailable {
		t.Errorf("created without the bucket: %v", err)
	}
	b.run(t, "b", "echo later > "+dir+"/second")
	if _, err := b.Destroy(t.Context(), "b", false); err != nil {
		t.Errorf("the save of a sandbox needs the bucket: %v", err)
	}
	if v, _ := s.Find("", "data"); !v.Unsynced {
		t.Error("the changes are forgotten")
	}
}

// soon waits until so returns true.
func soon(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// A sandbox that died starts again with the saved content of its volume.
func TestVolumeOfALostSandbox(t *testing.T) {
	b, _ := withVolumes(t)
	dir := b.mounted(t, "a", nil)
	b.run(t, "a", "echo first > "+dir+"/f")
	if _, err := b.SaveVolumes(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.driver.Kill("a")
	b.until(t, "a", hutch.Failed)
	if err := os.RemoveAll(dir); err != nil { // the fake runtime has only one file system
		t.Fatal(err)
	}
	b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true"}, nil) // reports the loss
	if got := b.run(t, "a", "cat "+dir+"/f"); got != "first\n" {
		t.Errorf("it began again with %q", got)
	}
}

// The volumes of a sandbox that was stopped without its agent, and so without a save, are saved before the sandbox is
// destroyed.
func TestStoppedWithoutItsAgent(t *testing.T) {
	b, s := withVolumes(t)
	dir := b.mounted(t, "a", nil)
	b.run(t, "a", "echo first > "+dir+"/f")
	b.end(t)
	b.driver.Break(fake.Faults{Converse: earlier})
	b.boot(t)
	b.until(t, "a", hutch.Stopped)
	b.driver.Break(fake.Faults{})
	if got := kept(t, s, "f"); !strings.Contains(got, "there is no") {
		t.Fatalf("saved without an agent: %q", got)
	}
	if _, err := b.Destroy(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	b.wantKept(t, s, "f", "first")
}

// An agent that does not answer does not delay a destroy with force, and prevents a destroy without force.
func TestSilentAgentAndVolume(t *testing.T) {
	b, _ := withVolumes(t)
	b.mounted(t, "a", nil)
	b.end(t) // with its connections
	b.driver.Break(fake.Faults{Converse: func(_ string, c net.Conn) { io.Copy(io.Discard, c) }})
	b.boot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := b.Destroy(ctx, "a", false); err == nil {
		t.Error("destroyed without a save")
	}
	began := time.Now()
	if _, err := b.Destroy(t.Context(), "a", true); err != nil || time.Since(began) > 20*time.Second {
		t.Errorf("by force: %v after %v", err, time.Since(began))
	}
}

// A sandbox of a template has the template's volumes, unless its create request names other volumes. The template has
// no files of its volumes.
func TestVolumesOfATemplate(t *testing.T) {
	b, s := withVolumes(t)
	if _, err := s.Create("", hutch.VolumeRequest{Name: "more"}); err != nil {
		t.Fatal(err)
	}
	dir := b.mounted(t, "first", nil)
	b.run(t, "first", "echo kept > "+dir+"/f")
	if _, err := b.Destroy(t.Context(), "first", false); err != nil {
		t.Fatal(err)
	}
	own, other := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "more")
	of := func(name, volume string) error {
		_, err := b.CreateTemplate(t.Context(), hutch.TemplateRequest{Name: name, FilesOnly: true, Template: hutch.Template{
			Start: "cat " + own + "/f; exec sleep 600", Volumes: []hutch.VolumeMount{{Name: volume, Path: own, ReadOnly: true}},
		}})
		return err
	}
	if err := of("bad", "none"); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("a volume that does not exist: %v", err)
	}
	if err := of("model", "data"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"one", "two"} {
		sb := b.create(t, hutch.CreateRequest{ID: id, Template: "model", Volumes: []hutch.VolumeMount{{Name: "more", Path: filepath.Join(other, id), ReadOnly: true}}})
		if got := b.run(t, id, "cat "+own+"/f"); got != "kept\n" || len(sb.Volumes) != 2 {
			t.Errorf("it has %q, and the volumes %+v", got, sb.Volumes)
		}
		b.run(t, id, "rm -rf "+own) // sandboxes of this driver share a file system
	}
	_, err := b.Create(t.Context(), hutch.CreateRequest{ID: "three", Template: "model", Volumes: []hutch.VolumeMount{{Name: "data", Path: other}}})
	if hutch.KindOf(err) != hutch.Conflict || !strings.Contains(err.Error(), "files already") {
		t.Errorf("a folder with two files: %v", err)
	}
	other = filepath.Join(t.TempDir(), "data")
	sb := b.create(t, hutch.CreateRequest{ID: "three", Template: "model", Volumes: []hutch.VolumeMount{{Name: "data", Path: other}}})
	if len(sb.Volumes) != 1 || sb.Volumes[0].Path != other || sb.Volumes[0].ReadOnly {
		t.Errorf("the create names the volume, and it has %+v", sb.Volumes)
	}
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "four", Template: "model", Volumes: []hutch.VolumeMount{{Name: "more", Path: filepath.Join(own, "in")}}}); hutch.KindOf(err) != hutch.Invalid {
		t.Errorf("a volume inside one of the template's: %v", err)
	}
}
