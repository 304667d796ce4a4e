package drivertest

import (
	"errors"
	"os"
	"testing"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/wire"
)

// saved are the tests of drivers whose places can be saved.
var saved = map[string]func(*testing.T, *suite){
	"SaveAndRestore": saveAndRestore,
	"CopyAndRestore": copyAndRestore,
}

// counting is a program that holds a number in memory, and a file open that
// has no name any more.
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

// What ran goes on where it was: its memory, its files, its listeners, and its
// place in the agent's books; also where it was saved, and more than once.
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

func (p *place) save(t *testing.T, dir string) {
	t.Helper()
	if err := p.agent.Park(t.Context()); err != nil {
		t.Fatalf("park: %s", explain(err))
	}
	if err := p.Instance.(driver.Saver).Save(t.Context(), dir); err != nil {
		t.Fatalf("save: %s", explain(err))
	}
}

// A place is copied while it runs, and goes on. What is made from the copy has
// all of it, an identity of its own, and goes its own way.
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
	var copies []*place
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
		copies[i].want(t, "echo $NAME; hostname; cat /workspace/file", id+"\n"+id+"\nkept")
		copies[i].want(t, count+";"+count, "2 held\n3 held")
	}
}

// adopt gives what was restored a token and an environment of its own.
func (s *suite) adopt(t *testing.T, inst driver.Instance, id string) *place {
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
