package hibernate

import (
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
)

// Programs that print random numbers from each of their generators, as JSON. Each has drawn some before it is copied,
// so that its generators hold a state.
const (
	drawPython = `
import json, os, random, secrets, ssl, tempfile, uuid
def draw():
    d = dict(random=random.random(), system=random.SystemRandom().random(), secrets=secrets.token_hex(), urandom=os.urandom(9).hex(),
        ssl=ssl.RAND_bytes(9).hex(), uuid=str(uuid.uuid4()), temporary=tempfile.mktemp())
    try:
        import numpy
        d["numpy"] = numpy.random.random()
    except ImportError: pass
    return json.dumps(d)
draw()
`
	drawNode = `
const c = require("crypto"), { Worker } = require("worker_threads")
const worker = new Worker("const c = require('crypto'), { parentPort: p } = require('worker_threads'); p.on('message', () => p.postMessage([c.randomUUID(), c.randomInt(2**40)].join()))", { eval: true })
worker.unref()
const ask = () => new Promise((done) => { worker.once("message", done); worker.postMessage("") })
const draw = async () => JSON.stringify({
	bytes: c.randomBytes(9).toString("hex"), uuid: c.randomUUID(), int: c.randomInt(2**40), values: crypto.getRandomValues(new Uint8Array(9)).join(),
	web: crypto.randomUUID(), worker: await ask(), subtle: (await crypto.subtle.exportKey("jwk", await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, true, ["encrypt"]))).k,
	key: c.generateKeyPairSync("ed25519").publicKey.export({ format: "jwk" }).x, filled: await new Promise((d) => c.randomFill(Buffer.alloc(9), (_, b) => d(b.join()))),
})
await draw()
`
	drawJava = `
import java.io.*; import java.net.*; import java.security.SecureRandom; import java.util.UUID;
public class Main { public static void main(String[] a) throws Exception {
	SecureRandom s = new SecureRandom(); s.nextLong(); UUID.randomUUID();
	ServerSocket l = new ServerSocket(8003);
	while (true) { try (Socket c = l.accept()) {
		c.getOutputStream().write(("{\"secure\": \"" + s.nextLong() + "\", \"uuid\": \"" + UUID.randomUUID() + "\"}\n").getBytes());
	} }
} }`
	serveNode   = "require('http').createServer(async (_, r) => r.end(await draw() + '\\n')).listen(8001)"
	servePython = `
import socket
s = socket.create_server(("127.0.0.1", 8002))
while True:
    c, _ = s.accept()
    c.sendall(draw().encode() + b"\n")
    c.close()
`
	// predictable are generators that are not meant for secrets, and that cannot be seeded again from outside a
	// running program.
	predictable = "random numpy temporary"
)

// drawn holds random numbers by their source.
type drawn map[string]any

// draw asks everything in a sandbox for random numbers.
func (r room) draw(t *testing.T, id string, servers []string) drawn {
	t.Helper()
	all := drawn{}
	add := func(from, text string) {
		t.Helper()
		var d drawn
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatalf("%s gave %q: %v", from, text, err)
		}
		for name, v := range d {
			all[from+" "+name] = v
		}
	}
	for language, code := range map[string]string{"python": "print(draw())", "javascript": "console.log(await draw())"} {
		add(language+" context", r.printed(t, id, language, code))
	}
	all["javascript context Math.random"] = r.printed(t, id, "javascript", "console.log(Math.random())")
	all["bash context RANDOM"] = r.printed(t, id, "bash", "echo $RANDOM-$RANDOM-$SRANDOM")
	for _, port := range servers {
		add("server "+port, r.run(t, id, "for i in {1..600}; do (exec 3<>/dev/tcp/127.0.0.1/"+port+") 2>/dev/null && break; sleep 0.1; done; "+
			"exec 3<>/dev/tcp/127.0.0.1/"+port+"; [ "+port+" = 8001 ] && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3 | tail -n 1"))
	}
	return all
}

// printed returns what code prints in the context of its language.
func (r room) printed(t *testing.T, id, language, code string) string {
	t.Helper()
	res, err := r.RunCode(t.Context(), id, hutch.RunRequest{Language: language, Code: code, Timeout: 60}, nil)
	if err != nil || res.Error != nil || len(res.Stderr) > 0 {
		t.Fatalf("%s: %+v, %s, %v", code, res.Error, res.Stderr, err)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// Copies share no random numbers with each other and with the original: forks, restored snapshots, and copies of a
// template that waited.
func TestCopiesShareNoRandomNumbers(t *testing.T) {
	t.Parallel()
	r := room{}
	r.Engine = hutchtest.Engine(t, "gvisor", func(o *engine.Options) { r.dir, o.Pool = o.Dir, engine.Pool{Max: 2, Room: 1 << 30} })
	first, err := r.Create(t.Context(), hutch.CreateRequest{Limits: hutch.Limits{Memory: 1024}})
	if err != nil {
		t.Fatal(err)
	}
	start := func(name, command string, files ...string) {
		t.Helper()
		for i := 0; i < len(files); i += 2 {
			if _, err := r.WriteFile(t.Context(), first.ID, hutch.WriteRequest{Path: files[i]}, strings.NewReader(files[i+1])); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.StartProcess(t.Context(), first.ID, hutch.ProcessRequest{Name: name, Command: command}); err != nil {
			t.Fatal(err)
		}
	}
	r.printed(t, first.ID, "python", drawPython)
	r.printed(t, first.ID, "javascript", drawNode+"; Math.random()")
	r.printed(t, first.ID, "bash", "echo $RANDOM >/dev/null")
	servers := []string{"8001", "8002"}
	start("node", "exec node server.js", "server.js", "(async () => {"+drawNode+serveNode+"})()")
	start("python", "exec python3 server.py", "server.py", drawPython+servePython)
	if _, err := exec.LookPath("javac"); err == nil {
		start("java", "javac -J-Xmx64m Main.java && exec java -Xmx64m -cp . Main", "Main.java", drawJava)
		servers = append(servers, "8003")
	}
	r.draw(t, first.ID, servers) // everything runs
	snap, err := r.Snapshot(t.Context(), first.ID, hutch.SnapshotRequest{Name: "warm"})
	if err != nil {
		t.Fatal(err)
	}
	forks, err := r.Fork(t.Context(), first.ID, hutch.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{first.ID, forks[0].ID, forks[1].ID, r.copy(t), r.copy(t)} // after two copies the pool makes more
	waits := func(is func(hutch.PoolKind) bool) {
		t.Helper()
		r.pool(t, func(p hutch.PoolState) bool {
			return slices.ContainsFunc(p.Kinds, func(k hutch.PoolKind) bool { return k.Snapshot == snap.ID && is(k) })
		})
	}
	waits(func(k hutch.PoolKind) bool { return k.Ready > 0 })
	ids = append(ids, r.copy(t))
	waits(func(k hutch.PoolKind) bool { return k.Hits > 0 })
	seen := map[string]map[any]string{}
	for _, id := range ids {
		all := r.draw(t, id, servers)
		for _, source := range slices.Sorted(maps.Keys(all)) {
			from, name, _ := strings.Cut(source, " ")
			if from == "server" && slices.Contains(strings.Fields(predictable), name[5:]) {
				continue
			}
			if seen[source] == nil {
				seen[source] = map[any]string{}
			}
			if other, ok := seen[source][all[source]]; ok {
				t.Errorf("%s: %s and %s both say %v", source, other, id, all[source])
			}
			seen[source][all[source]] = id
		}
	}
	if len(seen) < 25 {
		t.Errorf("only %d sources were asked: %q", len(seen), slices.Sorted(maps.Keys(seen)))
	}
}
