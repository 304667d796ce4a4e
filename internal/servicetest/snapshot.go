package servicetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"hutch"
)

// snapshotTests are tests of snapshots, forks, pauses and sleep with memory.
type snapshotTests struct{ *suite }

func (s snapshotTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"Begin":              s.beginsAsSnapshot,
		"Modes":              s.filesKeepModes,
		"Memory":             s.snapshotsHaveMemory,
		"Names":              s.snapshotNames,
		"Fork":               s.forks,
		"Shared":             s.sharesFiles,
		"Pause":              s.pauses,
		"Errors":             s.snapshotErrors,
		"Diff":               s.comparesSnapshots,
		"DiffAsleep":         s.comparesAsleep,
		"Hibernate":          s.hibernates,
		"HibernateFilesOnly": s.hibernatesFilesOnly,
	}
}

func (s snapshotTests) keep(t *testing.T, id string, req hutch.SnapshotRequest) hutch.Snapshot {
	t.Helper()
	snap, err := s.svc.Snapshot(bounded(t), id, req)
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.svc.DeleteSnapshot(ctx, snap.ID); err != nil {
			t.Errorf("delete a snapshot: %v", err)
		}
	})
	return snap
}

// beginsAsSnapshot: a sandbox starts with the state in the snapshot, under its own name. Later changes in the sandbox
// or in its original do not show in the other.
func (s snapshotTests) beginsAsSnapshot(t *testing.T) {
	parent := s.make(t, hutch.CreateRequest{Env: map[string]string{"COLOUR": "green", "SHAPE": "round"}, Network: hutch.Network{Mode: hutch.NetworkNone}}).ID
	s.run(t, parent, "echo kept > file")
	snap := s.keep(t, parent, hutch.SnapshotRequest{})
	if snap.SandboxID != parent || snap.Size <= 0 || snap.CreatedAt.IsZero() || snap.Runtime == "" {
		t.Errorf("the record is %+v", snap)
	}
	s.run(t, parent, "echo changed > file")
	for range 2 {
		sb := s.make(t, hutch.CreateRequest{Snapshot: snap.ID, Env: map[string]string{"SHAPE": "square"}})
		if sb.Network.Mode != hutch.NetworkNone {
			t.Errorf("its network is %+v", sb.Network)
		}
		if sb.Snapshot != snap.ID || sb.Parent != parent {
			t.Errorf("it began as %q of %q, want %q of %q", sb.Snapshot, sb.Parent, snap.ID, parent)
		}
		child := sb.ID
		got := s.run(t, child, "cat file; echo $SANDBOX_ID $COLOUR $SHAPE; echo child > file")
		if want := "kept\n" + child + " green square\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := s.run(t, parent, "cat file; echo $SANDBOX_ID"); got != "changed\n"+parent+"\n" {
		t.Errorf("the parent has %q", got)
	}
}

// filesKeepModes: files are unchanged, and keep their permissions.
func (s snapshotTests) filesKeepModes(t *testing.T) {
	parent := s.open(t)
	s.run(t, parent, "umask 0; mkdir all; mkdir -m 1777 sticky; echo in > all/file; mkdir fixed; echo in > fixed/file; chmod 500 fixed; echo '#!/bin/sh' > tool; chmod 4775 tool")
	snap := s.keep(t, parent, hutch.SnapshotRequest{FilesOnly: true})
	copied := s.make(t, hutch.CreateRequest{Snapshot: snap.ID, FilesOnly: true})
	child := copied.ID
	if !copied.FilesOnly {
		t.Errorf("the record of %s does not say that it began with only files", child)
	}
	if got := s.run(t, child, "stat -c %a all all/file sticky fixed tool; cat fixed/file"); got != "777\n666\n1777\n500\n4775\nin\n" {
		t.Errorf("the modes are %q", got)
	}
}

// snapshotsHaveMemory: if a snapshot has memory, programs and contexts continue in a sandbox made from it. Their random
// numbers differ from those in other sandboxes.
func (s snapshotTests) snapshotsHaveMemory(t *testing.T) {
	parent := s.open(t)
	s.python(t, parent, "import random; held = 41; random.seed(1)")
	snap := s.keep(t, parent, hutch.SnapshotRequest{})
	if !snap.Memory {
		return
	}
	numbers := map[string]bool{s.python(t, parent, "random.random()"): true}
	for range 2 {
		copied := s.make(t, hutch.CreateRequest{Snapshot: snap.ID})
		child := copied.ID
		if copied.FilesOnly {
			t.Errorf("the record of %s says that it began without memory", child)
		}
		if got := s.python(t, child, "import os; (held + 1, os.environ['SANDBOX_ID'])"); got != "(42, '"+child+"')" {
			t.Errorf("the context says %s", got)
		}
		numbers[s.python(t, child, "random.random()")] = true
	}
	if len(numbers) != 3 {
		t.Errorf("the random numbers are %v", numbers)
	}
	bare := s.make(t, hutch.CreateRequest{Snapshot: snap.ID, FilesOnly: true}).ID
	if list, err := s.svc.Contexts(bounded(t), bare); len(list) != 0 || err != nil {
		t.Errorf("with only the files there are contexts: %v, %v", list, err)
	}
}

// python runs code in the default context, and returns its result as text.
func (s snapshotTests) python(t *testing.T, id, code string) string {
	t.Helper()
	return value(s.code(t, id, hutch.RunRequest{Language: "python", Code: code}))
}

func (s snapshotTests) snapshotNames(t *testing.T) {
	id, name := s.open(t), hutch.NewID("tmpl")
	snap := s.keep(t, id, hutch.SnapshotRequest{Name: name, FilesOnly: true, TTL: 3600})
	if snap.Name != name || snap.Memory || snap.ExpiresAt == nil {
		t.Errorf("the record is %+v", snap)
	}
	_, err := s.svc.Snapshot(bounded(t), id, hutch.SnapshotRequest{Name: name})
	wantKind(t, hutch.Conflict, err, "a name twice")
	s.make(t, hutch.CreateRequest{Snapshot: name})
	list, err := s.svc.Snapshots(bounded(t))
	found := 0
	for _, v := range list {
		if v.ID == snap.ID && v.Name == name {
			found++
		}
	}
	if found != 1 || err != nil {
		t.Errorf("it is %d times in the list, %v", found, err)
	}
	for range 2 {
		if err := s.svc.DeleteSnapshot(bounded(t), name); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	_, err = s.svc.Create(bounded(t), hutch.CreateRequest{Snapshot: name})
	wantKind(t, hutch.NotFound, err, "create from a deleted snapshot")
	s.keep(t, id, hutch.SnapshotRequest{Name: name, FilesOnly: true}) // the name is free again
}

func (s snapshotTests) forks(t *testing.T) {
	parent := s.open(t)
	s.run(t, parent, "echo kept > file")
	forks, err := s.svc.Fork(bounded(t), parent, hutch.ForkRequest{Count: 3, Env: map[string]string{"ROLE": "fork"}})
	if err != nil {
		t.Fatalf("fork: %v", err)
	}
	names := map[string]bool{parent: true}
	for _, f := range forks {
		t.Cleanup(func() { s.remove(t, f.ID) })
		names[f.ID] = true
		if f.Parent != parent || f.Snapshot != "" {
			t.Errorf("the fork began as %q of %q, want no snapshot of %q", f.Snapshot, f.Parent, parent)
		}
		if got := s.run(t, f.ID, "cat file; echo $SANDBOX_ID $ROLE; rm file"); got != "kept\n"+f.ID+" fork\n" {
			t.Errorf("the fork says %q", got)
		}
	}
	if len(names) != 4 {
		t.Errorf("the sandboxes are %v", names)
	}
	if got := s.run(t, parent, "cat file"); got != "kept\n" {
		t.Errorf("the parent says %q", got)
	}
}

// sharesFiles: each copy behaves as if it had its own files, even if copies share them on disk. It can change them all,
// be copied again, and outlive the original.
func (s snapshotTests) sharesFiles(t *testing.T) {
	parent := s.open(t)
	s.run(t, parent, "mkdir -p d/e; echo one > d/file; ln d/file linked; echo two > d/e/file; head -c 5000000 /dev/urandom > large; sha256sum large > sum")
	forks, err := s.svc.Fork(bounded(t), parent, hutch.ForkRequest{Count: 3})
	if err != nil {
		t.Fatalf("fork: %v", err)
	}
	for _, f := range forks {
		t.Cleanup(func() { s.remove(t, f.ID) })
	}
	changed := forks[0].ID
	const change = `echo more >> linked; mv d moved; rm moved/e/file; cat moved/file; ls -A moved/e; sha256sum --quiet -c sum && echo x >> large; tail -c 2 large`
	if got := s.run(t, changed, change); got != "one\nmore\nx\n" {
		t.Errorf("the fork says %q", got)
	}
	again, err := s.svc.Fork(bounded(t), changed, hutch.ForkRequest{Count: 2})
	if err != nil {
		t.Fatalf("fork of a fork: %v", err)
	}
	snap := s.keep(t, forks[1].ID, hutch.SnapshotRequest{FilesOnly: true})
	late := s.make(t, hutch.CreateRequest{Snapshot: snap.ID}).ID
	if err := s.svc.DeleteSnapshot(bounded(t), snap.ID); err != nil {
		t.Fatal(err)
	}
	s.remove(t, changed)
	s.remove(t, forks[1].ID)
	for _, f := range again {
		t.Cleanup(func() { s.remove(t, f.ID) })
		if got := s.run(t, f.ID, "cat moved/file; [ moved/file -ef linked ] && echo same; ls -A moved/e; tail -c 2 large; ls"); got != "one\nmore\nsame\nx\nlarge\nlinked\nmoved\nsum\n" {
			t.Errorf("the fork of the fork says %q", got)
		}
	}
	for _, id := range []string{forks[2].ID, late, parent} {
		if got := s.run(t, id, "cat d/file d/e/file && sha256sum --quiet -c sum && ls"); got != "one\ntwo\nd\nlarge\nlinked\nsum\n" {
			t.Errorf("another says %q", got)
		}
	}
}

// diff compares a snapshot, and describes each changed file in the folder of the tests.
func (s snapshotTests) diff(t *testing.T, snapshot string, req hutch.SnapshotDiffRequest) (hutch.SnapshotDiff, map[string]string) {
	t.Helper()
	if req.Path == "" && !s.NoIsolation {
		req.Path = "/workspace"
	}
	d, err := s.svc.DiffSnapshot(bounded(t), snapshot, req)
	if err != nil {
		t.Fatalf("compare %s with %+v: %v", snapshot, req, err)
	}
	side := func(f *hutch.FileInfo) string {
		switch {
		case f == nil:
			return "-"
		case f.Type == hutch.RegularFile:
			return fmt.Sprint(f.Mode, " ", f.Size)
		}
		return string(f.Type) + f.Target
	}
	changes := map[string]string{}
	for _, f := range d.Files {
		name := strings.TrimPrefix(strings.TrimPrefix(f.Path(), "/workspace"), "/")
		changes[name] = fmt.Sprint(f.Kind, ": ", side(f.Before), " > ", side(f.After))
	}
	if n := d.Added + d.Changed + d.Deleted; n != len(changes) || d.Truncated {
		t.Errorf("%d changes in a list of %d, truncated: %t", n, len(changes), d.Truncated)
	}
	return d, changes
}

// comparesSnapshots tests the differences between two snapshots, and between a snapshot and the sandbox as it is now.
func (s snapshotTests) comparesSnapshots(t *testing.T) {
	id := s.open(t)
	s.run(t, id, `umask 22; mkdir d dir; printf 'one\ntwo\nthree\n' >text; echo same >same; echo gone >gone; ln -s here link; echo x >mode; chmod 600 mode; printf '\0a' >binary
		head -c 200000 /dev/zero >large; echo first >named; ln named other; mkfifo pipe`)
	before := s.keep(t, id, hutch.SnapshotRequest{FilesOnly: true})
	s.run(t, id, `umask 22; printf 'one\n2\nthree\n' >text; touch same; rm gone; echo new >d/added; ln -sfn there link; chmod 755 mode; printf '\0b' >binary
		echo more >>large; echo second >named; rmdir dir; echo file >dir`)
	after := s.keep(t, id, hutch.SnapshotRequest{})
	want := map[string]string{
		"text": "changed: 0644 14 > 0644 12", "gone": "deleted: 0644 5 > -", "d/added": "added: - > 0644 4", "link": "changed: symlinkhere > symlinkthere", "mode": "changed: 0600 2 > 0755 2",
		"binary": "changed: 0644 2 > 0644 2", "large": "changed: 0644 200000 > 0644 200005", "named": "changed: 0644 6 > 0644 7", "other": "changed: 0644 6 > 0644 7", "dir": "changed: directory > 0644 5",
	}
	d, got := s.diff(t, before.ID, hutch.SnapshotDiffRequest{To: after.ID})
	if !maps.Equal(got, want) || d.Snapshot != before.ID || d.To != after.ID || d.SandboxID != "" || d.Added != 1 || d.Deleted != 1 {
		t.Errorf("%s with %s, of %q: %d added, %d deleted, %v", d.Snapshot, d.To, d.SandboxID, d.Added, d.Deleted, got)
	}
	if !slices.IsSortedFunc(d.Files, func(a, b hutch.FileChange) int { return strings.Compare(a.Path(), b.Path()) }) {
		t.Errorf("the order is %+v", d.Files)
	}
	if _, got := s.diff(t, after.ID, hutch.SnapshotDiffRequest{To: before.ID}); got["gone"] != "added: - > 0644 5" || got["d/added"] != "deleted: 0644 4 > -" || len(got) != len(want) {
		t.Errorf("the other way: %v", got)
	}
	root := ""
	if !s.NoIsolation {
		root = "/workspace"
	}
	if _, got := s.diff(t, before.ID, hutch.SnapshotDiffRequest{To: after.ID, Path: root + "/d"}); len(got) != 1 || got["d/added"] == "" {
		t.Errorf("in one folder: %v", got)
	}
	for _, req := range []hutch.SnapshotDiffRequest{{To: after.ID}, {}} {
		if d, got := s.diff(t, after.ID, req); len(got) != 0 || req.To == "" && d.SandboxID != id {
			t.Errorf("with what is the same: %v, of %q", got, d.SandboxID)
		}
	}
	s.run(t, id, "echo now >text")
	for _, req := range []hutch.SnapshotDiffRequest{{}, {SandboxID: id}} {
		if _, got := s.diff(t, after.ID, req); !maps.Equal(got, map[string]string{"text": "changed: 0644 12 > 0644 4"}) {
			t.Errorf("with the sandbox now: %v", got)
		}
	}
	s.comparesText(t, before.ID, after.ID)
}

// comparesText checks the text of the changes that comparesSnapshots made.
func (s snapshotTests) comparesText(t *testing.T, before, after string) {
	t.Helper()
	d, _ := s.diff(t, before, hutch.SnapshotDiffRequest{To: after, Text: true})
	want := map[string]string{
		"text": "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n", "gone": "@@ -1 +0,0 @@\n-gone\n", "added": "@@ -0,0 +1 @@\n+new\n", "dir": "@@ -0,0 +1 @@\n+file\n",
		"binary": "binary", "large": "large", "mode": "", "link": "",
	}
	linked := 0
	for _, f := range d.Files {
		name, text := path.Base(f.Path()), f.Patch+string(f.NoPatch)
		switch expected, ok := want[name]; {
		case ok && text != expected:
			t.Errorf("the text of %s is %q, not %q", name, text, expected)
		case !ok && f.NoPatch == hutch.LinkedFile:
			linked++
		case !ok && f.Patch != "@@ -1 +1 @@\n-first\n+second\n":
			t.Errorf("the text of %s is %q", name, text)
		}
	}
	if linked == 0 || linked > 2 {
		t.Errorf("%d names of one file have no text", linked)
	}
}

// comparesAsleep: comparing does not wake a sleeping or paused sandbox, unless the request says so.
func (s snapshotTests) comparesAsleep(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "umask 22; echo before >file")
	snap := s.keep(t, id, hutch.SnapshotRequest{FilesOnly: true}).ID
	s.run(t, id, "echo after that >file")
	changed := func(req hutch.SnapshotDiffRequest) {
		t.Helper()
		if _, got := s.diff(t, snap, req); !maps.Equal(got, map[string]string{"file": "changed: 0644 7 > 0644 11"}) {
			t.Errorf("the changes are %v", got)
		}
	}
	is := func(want hutch.Status) {
		t.Helper()
		if sb, err := s.svc.Sandbox(bounded(t), id); err != nil || sb.Status != want {
			t.Errorf("it is %s (%v), not %s", sb.Status, err, want)
		}
	}
	refused := func(status hutch.Status) {
		t.Helper()
		_, err := s.svc.DiffSnapshot(bounded(t), snap, hutch.SnapshotDiffRequest{})
		wantKind(t, hutch.Conflict, err, "compare with a sandbox that is %s", status)
		is(status)
		changed(hutch.SnapshotDiffRequest{Wake: true})
		is(hutch.Running)
	}
	if _, err := s.svc.Hibernate(bounded(t), id, hutch.HibernateRequest{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	changed(hutch.SnapshotDiffRequest{})
	is(hutch.Stopped)
	changed(hutch.SnapshotDiffRequest{Wake: true})
	is(hutch.Running)
	sb, err := s.svc.Hibernate(bounded(t), id, hutch.HibernateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if sb.Status == hutch.Hibernated {
		refused(hutch.Hibernated)
	}
	if _, err := s.svc.Pause(bounded(t), id); err == nil {
		refused(hutch.Paused)
	} else if !errors.Is(err, hutch.Unsupported) {
		t.Error(err)
	}
	s.remove(t, id)
	_, err = s.svc.DiffSnapshot(bounded(t), snap, hutch.SnapshotDiffRequest{})
	wantKind(t, hutch.NotFound, err, "compare with a sandbox that is gone")
}

// pauses: a paused sandbox does not run, can be looked at, and continues when a caller uses it.
func (s snapshotTests) pauses(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: "while :; do date +%N; sleep 0.01; done"})
	paused, err := s.svc.Pause(bounded(t), id)
	if errors.Is(err, hutch.Unsupported) {
		if got := s.run(t, id, "echo on"); got != "on\n" {
			t.Errorf("it says %q", got)
		}
		return
	}
	if err != nil || !paused.Paused || paused.Status != hutch.Paused {
		t.Fatalf("pause: %+v, %v", paused, err)
	}
	sb, err := s.svc.Sandbox(bounded(t), id)
	if err != nil || !sb.Paused || len(sb.Processes) != 1 || sb.Processes[0].ID != p.ID {
		t.Errorf("it is %+v, %v", sb, err)
	}
	for status, want := range map[hutch.Status]int{hutch.Paused: 1, hutch.Running: 0} {
		list, err := s.svc.Sandboxes(bounded(t), hutch.Filter{Status: status})
		list = slices.DeleteFunc(list, func(sb hutch.Sandbox) bool { return sb.ID != id })
		if err != nil || len(list) != want {
			t.Errorf("listed as %s: %+v, %v", status, list, err)
		}
	}
	if sb, err = s.svc.Resume(bounded(t), id); err != nil || sb.Paused || sb.Status != hutch.Running {
		t.Errorf("resumed it is %+v, %v", sb, err)
	}
	if _, err := s.svc.Pause(bounded(t), id); err != nil {
		t.Fatal(err)
	}
	if got := s.run(t, id, "echo on"); got != "on\n" {
		t.Errorf("it says %q", got)
	}
	if _, err := s.svc.Pause(bounded(t), id); err != nil { // the paused sandbox is destroyed at the end of the test
		t.Fatal(err)
	}
}

// hibernates: a sandbox sleeps on request once it is no longer used, even with keepAlive, and wakes with its former
// state. On a runtime that cannot keep memory, a background process is never lost.
func (s snapshotTests) hibernates(t *testing.T) {
	id := s.open(t)
	awake := true
	if _, err := s.svc.Update(bounded(t), id, hutch.UpdateRequest{KeepAlive: &awake}); err != nil {
		t.Fatal(err)
	}
	s.run(t, id, "echo kept >file")
	p := s.start(t, id, hutch.ProcessRequest{Command: "sleep 1000"})
	sb, err := s.svc.Hibernate(bounded(t), id, hutch.HibernateRequest{})
	memory := err == nil
	if !memory {
		wantKind(t, hutch.Conflict, err, "hibernate what has a process, without memory")
		s.ends(t, p)
		using := make(chan error)
		go func() {
			_, err := s.svc.Exec(bounded(t), id, hutch.ExecRequest{Command: "sleep 0.5"}, nil)
			using <- err
		}()
		sb, err = s.svc.Hibernate(bounded(t), id, hutch.HibernateRequest{})
		if failed := <-using; failed != nil {
			t.Error(failed)
		}
	}
	if err != nil || sb.Status != hutch.Hibernated && memory || sb.Status != hutch.Stopped && !memory {
		t.Fatalf("it is %+v, %v", sb, err)
	}
	again, err := s.svc.Hibernate(bounded(t), id, hutch.HibernateRequest{})
	if err != nil || again.Status != sb.Status {
		t.Errorf("hibernated again it is %+v, %v", again, err)
	}
	if sb, err = s.svc.Resume(bounded(t), id); err != nil || sb.Status != hutch.Running || !sb.KeepAlive {
		t.Errorf("woken it is %+v, %v", sb, err)
	}
	if got := s.run(t, id, "cat file"); got != "kept\n" {
		t.Errorf("the file says %q", got)
	}
	if memory {
		if now, err := s.svc.Process(bounded(t), id, p.ID); err != nil || now.Status != hutch.ProcessRunning {
			t.Errorf("the process is %+v, %v", now, err)
		}
	}
}

// hibernatesFilesOnly: with FilesOnly, a sandbox is stopped on any runtime, even if it is paused. Its processes are
// asked to end before they are killed, and its files stay.
func (s snapshotTests) hibernatesFilesOnly(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: "trap 'echo bye >ended; exit' TERM; echo >ready; while :; do sleep 0.05; done"})
	s.run(t, id, "until [ -e ready ]; do sleep 0.05; done; echo kept >file")
	if _, err := s.svc.Pause(bounded(t), id); err != nil && !errors.Is(err, hutch.Unsupported) {
		t.Fatal(err)
	}
	filesOnly := hutch.HibernateRequest{FilesOnly: true}
	sb, err := s.svc.Hibernate(bounded(t), id, filesOnly)
	if err != nil || sb.Status != hutch.Stopped {
		t.Fatalf("it is %+v, %v", sb, err)
	}
	if again, err := s.svc.Hibernate(bounded(t), id, filesOnly); err != nil || again.Status != hutch.Stopped {
		t.Errorf("hibernated again it is %+v, %v", again, err)
	}
	if got := s.run(t, id, "cat file ended"); got != "kept\nbye\n" {
		t.Errorf("the files say %q", got)
	}
	if now, err := s.svc.Process(bounded(t), id, p.ID); err == nil && now.Status.Live() {
		t.Errorf("the process is %+v", now)
	}
}

func (s snapshotTests) snapshotErrors(t *testing.T) {
	id, gone := s.open(t), hutch.NewID("gone")
	_, err := s.svc.Snapshot(bounded(t), gone, hutch.SnapshotRequest{})
	wantKind(t, hutch.NotFound, err, "snapshot of no sandbox")
	_, err = s.svc.Fork(bounded(t), gone, hutch.ForkRequest{})
	wantKind(t, hutch.NotFound, err, "fork of no sandbox")
	_, err = s.svc.Pause(bounded(t), gone)
	wantKind(t, hutch.NotFound, err, "pause of no sandbox")
	_, err = s.svc.Hibernate(bounded(t), gone, hutch.HibernateRequest{})
	wantKind(t, hutch.NotFound, err, "hibernation of no sandbox")
	_, err = s.svc.Resume(bounded(t), gone)
	wantKind(t, hutch.NotFound, err, "resume of no sandbox")
	_, err = s.svc.Create(bounded(t), hutch.CreateRequest{Snapshot: gone})
	wantKind(t, hutch.NotFound, err, "begin as no snapshot")
	wantKind(t, hutch.Invalid, s.svc.DeleteSnapshot(bounded(t), "A/b"), "delete a bad name")
	_, err = s.svc.Snapshot(bounded(t), id, hutch.SnapshotRequest{Name: "-bad"})
	wantKind(t, hutch.Invalid, err, "a bad name")
	_, err = s.svc.Snapshot(bounded(t), id, hutch.SnapshotRequest{TTL: -1})
	wantKind(t, hutch.Invalid, err, "a past expiry")
	for _, n := range []int{-1, hutch.MaxForks + 1} {
		_, err = s.svc.Fork(bounded(t), id, hutch.ForkRequest{Count: n})
		wantKind(t, hutch.Invalid, err, "%d forks", n)
	}
	_, err = s.svc.Fork(bounded(t), id, hutch.ForkRequest{Count: hutch.MaxForks})
	wantKind(t, hutch.Exhausted, err, "forks beyond the limit")
	snap := s.keep(t, id, hutch.SnapshotRequest{FilesOnly: true})
	_, err = s.svc.DiffSnapshot(bounded(t), gone, hutch.SnapshotDiffRequest{})
	wantKind(t, hutch.NotFound, err, "compare no snapshot")
	for kind, req := range map[hutch.Kind][]hutch.SnapshotDiffRequest{
		hutch.NotFound: {{To: gone}, {SandboxID: gone}},
		hutch.Invalid:  {{To: snap.ID, SandboxID: id}, {To: "A/b"}, {SandboxID: "A/b"}, {Path: "relative"}, {Path: "/a\x00"}, {To: snap.ID, Wake: true}},
	} {
		for _, req := range req {
			_, err = s.svc.DiffSnapshot(bounded(t), snap.ID, req)
			wantKind(t, kind, err, "compare with %+v", req)
		}
	}
	_, err = s.svc.Create(bounded(t), hutch.CreateRequest{Snapshot: snap.ID, Limits: hutch.Limits{Memory: 64}})
	wantKind(t, hutch.Invalid, err, "other limits than the snapshot's")
}
