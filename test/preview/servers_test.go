package preview

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/store"
)

// All programs do the same, each in its own language and listening on its own kind of address.
var programs = []struct{ name, file, command string }{
	{"python", "server.py", "exec python3 server.py %d python"},
	{"node", "server.mjs", "exec node server.mjs %d node"},
	{"go", goServer, "exec ./server %d go"},
}

// goServer is built here, because that takes a minute in a sandbox without a cache.
const goServer = "server.go"

// build builds a program that runs in every sandbox.
func build(path string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "server")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "server")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, path)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(file)
}

func TestServers(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			b := open(t, runtime, nil)
			for i, p := range programs {
				t.Run(p.name, func(t *testing.T) {
					port := 8000 + i
					id := b.box(t, hutch.CreateRequest{ID: "web-" + p.name, Limits: hutch.Limits{Memory: 2048, Disk: 1024}})
					if p.file == goServer {
						program, err := build(filepath.Join("testdata", goServer))
						if err != nil {
							t.Fatal(err)
						}
						b.write(t, id, "server", 0o755, bytes.NewReader(program))
					}
					b.serve(t, id, p.file, fmt.Sprintf(p.command, port), port)
					look(t, b, p.name, b.expose(t, id, hutch.ExposeRequest{Port: port}))
				})
			}
		})
	}
}

// look makes every kind of request to a preview.
func look(t *testing.T, b *bed, name string, p hutch.Port) {
	web := b.web(t)
	if resp, text := get(t, web, p.URL+"/"); resp.StatusCode != 200 || !strings.Contains(text, "Hello from "+name) {
		t.Errorf("the page: %d %q", resp.StatusCode, text)
	}
	if resp, _ := get(t, web, p.URL+"/redirect"); resp.StatusCode != 302 || resp.Header.Get("Location") != "/elsewhere?a=b" {
		t.Errorf("the redirect: %d to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	if _, text := get(t, web, p.URL+"/large"); len(text) != 32<<20 || text[1<<20+7] != 7 {
		t.Errorf("the large page has %d bytes", len(text))
	}
	if _, text := get(t, web, p.URL+"/headers"); !strings.Contains(strings.ToLower(text), `["x-forwarded-proto","http"]`) && !strings.Contains(strings.ToLower(text), `["x-forwarded-proto", "http"]`) {
		t.Errorf("the headers inside: %s", text)
	} else {
		var list [][2]string
		if err := json.Unmarshal([]byte(text), &list); err != nil || !hasHost(list, p.Label()) {
			t.Errorf("the host inside: %s %v", text, err)
		}
	}
	body := bytes.Repeat([]byte("body"), 2<<20)
	resp, err := web.Post(p.URL+"/", "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if want := fmt.Sprintf("%d %x", len(body), sha256.Sum256(body)); string(text) != want {
		t.Errorf("a large body: %s, want %s", text, want)
	}
	lookAtStreams(t, b, web, p)
}

func hasHost(list [][2]string, label string) bool {
	for _, h := range list {
		if strings.EqualFold(h[0], "host") && strings.HasPrefix(h[1], label+".localhost") {
			return true
		}
	}
	return false
}

func lookAtStreams(t *testing.T, b *bed, web *http.Client, p hutch.Port) {
	resp, err := web.Get(p.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	began := time.Now()
	for r, i := bufio.NewReader(resp.Body), 0; i < 3; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		if line == fmt.Sprintf("data: %d\n", i) {
			i++
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("events were held back: three took %v", took)
	}
	c, _, err := websocket.Dial(bounded(t), strings.Replace(p.URL, "http", "ws", 1)+"/", &websocket.DialOptions{HTTPClient: web})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for range 3 {
		if err := c.Write(bounded(t), websocket.MessageText, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, msg, err := c.Read(bounded(t)); string(msg) != "echo hello" {
			t.Fatalf("the WebSocket says %q, %v", msg, err)
		}
	}
	c.Close(websocket.StatusNormalClosure, "")
}

// A preview wakes its sandbox, keeps it awake while it is used, and lets it sleep afterwards. On gVisor the server
// still runs then, on native it does not.
func TestSleepAndWake(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			b := open(t, runtime, nil)
			id := b.box(t, hutch.CreateRequest{SleepAfter: 1, OnIdle: map[string]hutch.IdleAction{"native": hutch.IdleStop}[runtime]})
			b.serve(t, id, "server.py", "exec python3 server.py 8000 python", 8000)
			p := b.expose(t, id, hutch.ExposeRequest{Port: 8000})
			web := b.web(t)
			resp, err := web.Get(p.URL + "/events")
			if err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(resp.Body)
			for began := time.Now(); time.Since(began) < 3*time.Second; {
				if _, err := r.ReadString('\n'); err != nil {
					t.Fatalf("the sandbox did not stay awake: %v", err)
				}
			}
			resp.Body.Close()
			eventually(t, "it sleeps", func() bool {
				sb, err := b.Sandbox(bounded(t), id)
				return err == nil && (sb.Status == hutch.Stopped || sb.Status == hutch.Hibernated)
			})
			want := map[string]int{"native": 502, "gvisor": 200}[runtime]
			if resp, text := get(t, web, p.URL+"/"); resp.StatusCode != want {
				t.Errorf("after waking: %d %s", resp.StatusCode, text)
			}
			if sb, err := b.Sandbox(bounded(t), id); err != nil || sb.Status != hutch.Running {
				t.Errorf("it is %s, %v", sb.Status, err)
			}
		})
	}
}

// An exposed port stays exposed after a restart of the daemon, and ends with its sandbox: a later sandbox of the same
// id has no exposed port.
func TestExposedOverRestarts(t *testing.T) {
	dir := hutchtest.Dir(t)
	s, err := store.Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	driver := hutchtest.Driver(t, "native", filepath.Join(dir, "native"))
	stay := func(o *engine.Options) { o.Store, o.Ephemeral, o.Drivers[0] = s, false, driver }
	first := open(t, "native", stay)
	id := first.box(t, hutch.CreateRequest{ID: "stays"})
	first.serve(t, id, "server.py", "exec python3 server.py 8000 python", 8000)
	p := first.expose(t, id, hutch.ExposeRequest{Port: 8000, Name: "web", Token: "tok"})
	first.Engine.Close(bounded(t))

	second := open(t, "native", stay)
	list, err := second.Ports(bounded(t), id)
	if err != nil || len(list) != 1 || list[0].Name != "web" || list[0].Label() != p.Label() || !list[0].CreatedAt.Equal(p.CreatedAt) {
		t.Fatalf("after a restart: %+v, %v", list, err)
	}
	web, url := second.web(t), list[0].URL
	if resp, text := get(t, web, url+"/"); resp.StatusCode != 200 {
		t.Errorf("after a restart: %d %s", resp.StatusCode, text)
	}
	if _, err := second.Destroy(bounded(t), id, true); err != nil {
		t.Fatal(err)
	}
	second.box(t, hutch.CreateRequest{ID: "stays"})
	if resp, _ := get(t, web, url+"/"); resp.StatusCode != 404 {
		t.Errorf("a sandbox of the same id: %d", resp.StatusCode)
	}
	if _, err := second.Destroy(bounded(t), id, true); err != nil {
		t.Fatal(err)
	}
}

// Unexposing cuts open connections, and the old URL opens nothing.
func TestUnexposeCuts(t *testing.T) {
	b := open(t, "native", nil)
	id := b.box(t, hutch.CreateRequest{})
	b.serve(t, id, "server.py", "exec python3 server.py 8000 python", 8000)
	p := b.expose(t, id, hutch.ExposeRequest{Port: 8000})
	web := b.web(t)
	for name, cut := range map[string]func(){
		"unexposed":     func() { b.Unexpose(bounded(t), id, 8000) },
		"another token": func() { b.expose(t, id, hutch.ExposeRequest{Port: 8000, Token: "new"}) },
	} {
		p = b.expose(t, id, hutch.ExposeRequest{Port: 8000, Token: p.Token})
		c, _, err := websocket.Dial(bounded(t), strings.Replace(p.URL, "http", "ws", 1)+"/", &websocket.DialOptions{HTTPClient: web})
		if err != nil {
			t.Fatal(err)
		}
		cut()
		if _, _, err := c.Read(bounded(t)); err == nil || bounded(t).Err() != nil {
			t.Errorf("%s: the WebSocket stays open", name)
		}
		c.CloseNow()
		if resp, _ := get(t, web, p.URL+"/"); resp.StatusCode != 404 {
			t.Errorf("%s: the old URL gives %d", name, resp.StatusCode)
		}
	}
}

// Two owners can have sandboxes of one id: their URLs always differ.
func TestOneLabelIsOnePort(t *testing.T) {
	b := open(t, "native", nil)
	alice := caller.WithOwner(bounded(t), caller.Owner{ID: "alice"})
	mallory := caller.WithOwner(bounded(t), caller.Owner{ID: "mallory"})
	long := strings.Repeat("long", 15)
	for _, id := range []string{"same", long} {
		if _, err := b.Create(alice, hutch.CreateRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"same", "same-t", long[:len(long)-1]} {
		if _, err := b.Create(mallory, hutch.CreateRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := b.Expose(alice, "same", hutch.ExposeRequest{Port: 80, Token: "t-u"})
	if err != nil {
		t.Fatal(err)
	}
	for id, token := range map[string]string{"same": "t-u", "same-t": "u"} {
		if _, err := b.Expose(mallory, id, hutch.ExposeRequest{Port: 80, Token: token}); !errors.Is(err, hutch.Conflict) {
			t.Errorf("%s takes %s with the token %s: %v", id, p.Label(), token, err)
		}
	}
	if got, err := b.Preview(p.Label()); err != nil || got.Owner != "alice" {
		t.Errorf("the label is %q's", got.Owner)
	}
	q, err := b.Expose(alice, long, hutch.ExposeRequest{Port: 65535})
	if err != nil || len(q.Label()) > 63 {
		t.Errorf("%q has %d bytes, %v", q.Label(), len(q.Label()), err)
	}
	r, err := b.Expose(mallory, long[:len(long)-1], hutch.ExposeRequest{Port: 65535, Token: q.Token})
	if err != nil || r.Label() == q.Label() {
		t.Errorf("two long ids become one: %q, %v", r.Label(), err)
	}
}

// Clients that connect to a server that never answers, and leave, use up nothing.
func TestHangingConnections(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			b := open(t, runtime, nil)
			id := b.box(t, hutch.CreateRequest{Limits: hutch.Limits{PIDs: 2048}}) // Python uses a thread for each
			b.serve(t, id, "server.py", "exec python3 server.py 8000 python", 8000)
			var conns []net.Conn
			for i := 0; ; i++ {
				c, err := b.DialPort(bounded(t), id, 8000)
				if errors.Is(err, hutch.Exhausted) {
					break
				}
				if err != nil || i > 600 {
					t.Fatalf("connection %d: %v", i, err)
				}
				io.WriteString(c, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
				conns = append(conns, c)
			}
			if res, err := b.Exec(bounded(t), id, hutch.ExecRequest{Command: "echo alive"}, nil); err != nil || string(res.Stdout) != "alive\n" {
				t.Errorf("a command during %d connections: %q, %v", len(conns), res.Stdout, err)
			}
			for _, c := range conns {
				c.Close()
			}
			eventually(t, "there is room again", func() bool {
				c, err := b.DialPort(bounded(t), id, 8000)
				if err == nil {
					c.Close()
				}
				return err == nil
			})
		})
	}
}
