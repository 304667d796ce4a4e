package drivertest

import (
	"context"
	"errors"
	"os"
	"testing"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/wire"
)

// saved are the tests of drivers whose instances can be saved.
var saved = map[string]func(*testing.T, *suite){
	"SaveAndRestore": saveAndRestore,
	"CopyAndRestore": copyAndRestore,
	"PreparedPlaces": preparedPlaces,
}

// counting is a program that holds a number in memory, and has an open file whose name was removed.
const counting = `python3 -c '
import socket, os, tempfile
held = tempfile.TemporaryFile("w+")
held.write("held"); held.flush()
s = socket.create_server(("127.0.0.1", 8123))
n = 0
print("ready", flush=True)
while True:
    c, _ = s.accept()
    n += 1
    held.seek(0)
    c.sendall(("%d %s" % (n, held.read())).encode())
    c.close()
'`

const count = `python3 -c 'import socket; print(socket.create_connection(("127.0.0.1", 8123)).recv(99).decode())'`

// Programs continue where they were, with their memory, files and listeners, and the agent still lists them. That also
// applies to the saved instance itself, and to repeated saves.
func saveAndRestore(t *testing.T, s *suite) {
	p := s.create(t, "one")
	job, err := p.agent.Start(t.Context(), wire.Start{ID: "job", Command: counting})
	if err != nil {
		t.Fatal(err)
	}
	p.want(t, "until (echo > /dev/tcp/127.0.0.1/8123) 2>/dev/null; do sleep 0.1; done; echo kept > /workspace/file; echo in memory > /dev/shm/file", "")
	p.want(t, count, "2 held")
	for range 2 {
		dir := s.Dir(t)
		p.save(t, dir)
		if err := p.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		inst, err := s.driver.(driver.Restorer).Restore(t.Context(), s.spec("one"), dir)
		if err != nil {
			t.Fatalf("restore: %s", explain(err))
		}
		p = own(t, inst)
		p.want(t, "cat /workspace/file /dev/shm/file", "kept\nin memory")
		list, err := p.agent.List(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != job.ID || list[0].PID != job.PID {
			t.Fatalf("processes: %+v, %v", list, err)
		}
	}
	p.want(t, count, "3 held")
	dir := s.Dir(t)
	p.save(t, dir)
	if err := p.Instance.(driver.Saver).Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.want(t, count, "4 held")
	if err := p.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	inst, err := s.driver.(driver.Restorer).RestoreFiles(t.Context(), s.spec("one"), dir)
	if err != nil {
		t.Fatalf("restore: %s", explain(err))
	}
	p = own(t, inst)
	p.want(t, "cat /workspace/file; stat -c %U /workspace/file; ls /dev/shm; (echo > /dev/tcp/127.0.0.1/8123) 2>/dev/null || echo gone", "kept\nuser\ngone")
}

func (p *instance) save(t *testing.T, dir string) {
	t.Helper()
	if err := p.agent.Park(t.Context()); err != nil {
		t.Fatalf("park: %s", explain(err))
	}
	if err := p.Instance.(driver.Saver).Save(t.Context(), dir); err != nil {
		t.Fatalf("save: %s", explain(err))
	}
}

// A running instance can be copied, and continues. The restored copy has everything that the original had, but its own
// identity, and it is independent from then on.
func copyAndRestore(t *testing.T, s *suite) {
	p := s.create(t, "parent")
	if _, err := p.agent.Start(t.Context(), wire.Start{ID: "job", Command: counting}); err != nil {
		t.Fatal(err)
	}
	p.want(t, "until (echo > /dev/tcp/127.0.0.1/8123) 2>/dev/null; do sleep 0.1; done; echo kept > /workspace/file", "")
	saver, dir := p.Instance.(driver.Saver), s.Dir(t)
	if err := errors.Join(p.agent.Park(t.Context()), saver.Copy(t.Context(), dir)); err != nil {
		t.Fatalf("copy: %s", explain(err))
	}
	p.want(t, count+"; echo changed > /workspace/file", "2 held")
	var copies []*instance
	for _, id := range []string{"one", "two"} {
		spec := s.spec(id)
		spec.Boot.Hostname = id
		inst, err := s.driver.(driver.Restorer).Restore(t.Context(), spec, dir)
		if err != nil {
			t.Fatalf("restore: %s", explain(err))
		}
		copies = append(copies, s.adopt(t, inst, id))
	}
	p.want(t, count, "3 held")
	for i, id := range []string{"one", "two"} {
		copies[i].want(t, "echo $NAME; hostname; cat /workspace/file;"+ownAddress, id+"\n"+id+"\nkept\n"+id+" 127.0.0.1")
		copies[i].want(t, count+";"+count, "2 held\n3 held")
	}
}

// adopt gives a restored instance a new token and environment.
func (s *suite) adopt(t *testing.T, inst driver.Instance, id string) *instance {
	t.Helper()
	p := own(t, inst)
	if err := p.agent.Adopt(t.Context(), wire.Identity{Hostname: id, Token: id + "-token", Env: []string{"NAME=" + id, "PATH=" + os.Getenv("PATH")}}); err != nil {
		t.Fatalf("adopt: %s", explain(err))
	}
	if _, err := p.agent.Ping(t.Context()); !errors.Is(err, hutch.Denied) {
		t.Errorf("with the token of the other: %v", err)
	}
	p.agent.Close()
	p.agent = wire.NewClient(inst.Dial, id+"-token")
	t.Cleanup(p.agent.Close)
	return p
}

// An instance that was prepared before its purpose was known works like a new one. It refuses saved state that needs
// another kind of instance.
func preparedPlaces(t *testing.T, s *suite) {
	p, d := s.create(t, "parent"), s.driver.(driver.Restorer)
	p.want(t, "echo kept > /workspace/file; echo in memory > /dev/shm/file", "")
	dir := s.Dir(t)
	if err := errors.Join(p.agent.Park(t.Context()), p.Instance.(driver.Saver).Copy(t.Context(), dir)); err != nil {
		t.Fatalf("copy: %s", explain(err))
	}
	prepare := func(id string, l hutch.Limits) driver.Vacancy {
		v, err := d.Prepare(t.Context(), driver.Spec{ID: id, Root: s.Root, Limits: l})
		if err != nil {
			t.Fatalf("prepare: %s", explain(err))
		}
		t.Cleanup(func() { v.Destroy(context.Background()) })
		return v
	}
	inst, err := prepare("one", Limits).Restore(t.Context(), dir)
	if err != nil {
		t.Fatalf("restore: %s", explain(err))
	}
	one := s.adopt(t, inst, "one")
	one.want(t, "hostname; cat /workspace/file /dev/shm/file", "one\nkept\nin memory")
	again, err := d.Recover(t.Context(), "one", inst.Handle())
	if err != nil {
		t.Fatalf("recover: %s", explain(err))
	}
	if conn, err := again.Dial(t.Context()); err != nil {
		t.Errorf("dial what was recovered: %s", explain(err))
	} else {
		conn.Close()
	}

	other := Limits
	other.PIDs++
	v := prepare("other", other)
	if _, err := v.Restore(t.Context(), dir); err == nil {
		t.Error("memory continued in an instance with other limits")
	}
	gone(t, v)
	v = prepare("other", Limits) // the name can be used again
	if _, err := v.Restore(t.Context(), s.Dir(t)); err == nil {
		t.Error("an instance continued as an empty folder")
	}
	gone(t, v)
	v = prepare("other", Limits)
	if n, err := d.Sweep(t.Context(), func(id string) bool { return id != "other" }); n != 1 || err != nil {
		t.Errorf("%d were swept, %v", n, err)
	}
	gone(t, v)
}
