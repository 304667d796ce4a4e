package build

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/buildkit/solver/pb"

	"hutch"
	"hutch/internal/secret"
)

// images are the configurations of base images, by the end of their names.
type images map[string]map[string]any

func (i images) resolve(_ context.Context, ref string) (string, []byte, error) {
	name := strings.TrimSuffix(ref[strings.LastIndex(ref, "/")+1:], ":latest")
	config, err := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux", "config": i[name], "rootfs": map[string]any{"type": "layers", "diff_ids": []string{idOf(name)}}})
	return idOf(name), config, err
}

func idOf(name string) string { return "sha256:" + digestOf(name) }

func several(line string, n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(strings.ReplaceAll(line, "%d", fmt.Sprint(i)))
	}
	return all.String()
}

func x(n int) string { return strings.Repeat("x", n) }

// Each of these Dockerfiles would make the frontend expand a few KiB to tens of MiB or more. Larger ones used all
// memory of the server.
func TestGrowth(t *testing.T) {
	t.Parallel()
	big := images{
		"big":     {"Env": []string{"X=" + x(60_000)}},
		"trigger": {"Env": []string{"X=" + x(60_000)}, "OnBuild": []string{"ENV Y=" + strings.Repeat("$X", 500)}},
		"shell":   {"Shell": []string{x(400_000)}},
		"empty":   {"Env": slices.Repeat([]string{"="}, 100_000)},
	}
	for name, text := range map[string]string{
		"a variable of the base":       "FROM big\nENV Y=" + strings.Repeat("$X", 500),
		"a trigger of the base":        "FROM trigger\n",
		"lines that seem to continue":  "FROM big\nENV A=" + x(1000) + "\nRUN x`\nENV B=" + strings.Repeat("$A", 200) + "\nRUN x`\nENV C=" + strings.Repeat("$B", 200),
		"a name made of another":       "FROM big\nENV N=a A=" + x(1000) + "\nENV ${N}b=" + strings.Repeat("$A", 200) + "\nENV C=" + strings.Repeat("$ab", 200),
		"a name that is a number":      "FROM big\nENV 1=" + x(50_000) + "\nENV A=" + strings.Repeat("$1", 500),
		"a name of other letters":      "FROM big\nENV é=" + x(50_000) + "\nENV A=" + strings.Repeat("$é", 500),
		"a name that is a dollar":      "FROM big\nENV $=" + x(50_000) + "\nENV A=" + strings.Repeat("$$", 500),
		"a dollar after an escape":     "FROM big\nENV A=" + x(50_000) + "\nENV B=" + strings.Repeat(`\$$A`, 500),
		"replacements in each other":   "FROM big\nENV A=" + x(200) + "\nENV B=${A//x/${A//x/${A//x/y}}}",
		"matches that are repeated":    "FROM big\nENV A=" + x(50_000) + "\nENV B=${A//*/" + strings.Repeat(`\$0`, 500) + "}",
		"a trigger before its value":   "FROM big AS a\nONBUILD ENV Y=" + strings.Repeat("$A", 500) + "\nENV A=" + x(50_000) + "\nFROM a\n",
		"a document of COPY":           "FROM big\nENV A=" + x(50_000) + "\nCOPY <<end /a\n" + strings.Repeat("$A\n", 500) + "end\n",
		"an environment of many steps": "FROM big\nENV A=" + x(60_000) + "\n" + strings.Repeat("RUN x\n", 900),
		"many variables":               "FROM big\nENV A=" + x(60_000) + "\n" + strings.Repeat("ENV B=$A\n", 1200),
		"a shell of many steps":        "FROM shell\n" + strings.Repeat("RUN x\n", 900),
		"the path of images without":   "FROM empty\nENV A=" + strings.Repeat("$PATH", 4000),
		"many short variables":         "FROM empty AS s0\n" + "FROM s0 AS s1\nFROM s1 AS s2\nFROM s2 AS s3\nFROM s3 AS s4\nFROM s4 AS s5\n",
		"a folder of many steps":       "FROM big\nWORKDIR /" + x(60_000) + "\n" + strings.Repeat("RUN x\n", 1200),
		"the flags of many sources":    "FROM big\nCOPY " + strings.Repeat("--exclude=abcde ", 2000) + strings.Repeat("a ", 2000) + "/x/",
		"lines":                        "FROM big\nRUN <<end\n" + strings.Repeat("\n", mostLines) + "end\n",
		"instructions":                 "FROM big\n" + strings.Repeat("CMD x\n", mostInstructions),
		"stages":                       strings.Repeat("FROM big\n", mostStages+1),
		"names to guess at":            "FROM big\n" + several("ENV A%d=\n", 3000) + several("EXPOSE $B%d1$B%d2$B%d3$B%d4$B%d5$B%d6\n", 1900),
		"the name of a variable":       "FROM big\nENV A=$" + x(mostName+1),
	} {
		_, err := parse(t.Context(), []byte(text), hutch.BuildRequest{}, big.resolve, func(string) {})
		if !errors.Is(err, hutch.Exhausted) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// Usual Dockerfiles are far from the limits.
func TestUsualDockerfiles(t *testing.T) {
	t.Parallel()
	usual := images{"debian": {"Env": []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, "OnBuild": []string{"COPY . /app"}}}
	texts := map[string]string{
		"shell": "FROM debian\nARG V=1.2.3\nENV A=${V//./_} B=${V//./-} PATH=$PATH:/opt/$V/bin\n" +
			strings.Repeat("RUN export PATH=$PATH:/x && for f in $(ls); do echo ${f//a/b} ${f%.c}; done && curl https://example.com/$V/${V//./}.tgz\n", 50) +
			strings.Repeat("ENV PATH=$PATH:$A/bin:$B/bin\n", 4),
		"stages": strings.Repeat("FROM debian\nARG V=1\nENV A=$V B=$V\nCOPY package.json package-lock.json ./\nRUN <<end\n"+strings.Repeat("echo $A $B\n", 100)+"end\n", 20),
	}
	files, err := filepath.Glob("../../templates/*/Dockerfile")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, "../../deploy/Dockerfile") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	for name, text := range texts {
		if _, err := parse(t.Context(), []byte(text), hutch.BuildRequest{}, usual.resolve, func(string) {}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The frontend requests the images of all stages at once, but resolve is called for one image at a time.
func TestImagesOfStages(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 20 {
		fmt.Fprintf(&text, "FROM image%d AS s%d\n", i, i)
	}
	text.WriteString("FROM scratch\n")
	for i := range 20 {
		fmt.Fprintf(&text, "COPY --from=s%d /a /b\n", i)
	}
	var running, calls atomic.Int32
	resolve := func(ctx context.Context, ref string) (string, []byte, error) {
		calls.Add(1)
		if running.Add(1) > 1 {
			t.Error("two images are looked up at once")
		}
		defer running.Add(-1)
		time.Sleep(time.Millisecond)
		return images{}.resolve(ctx, ref)
	}
	if _, err := parse(t.Context(), []byte(text.String()), hutch.BuildRequest{}, resolve, func(string) {}); err != nil || calls.Load() != 20 {
		t.Errorf("%d images, %v", calls.Load(), err)
	}
}

func newTestTree(t *testing.T, shared *budget) *tree {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return newTree(f, "the context of the build", limits{bytes: 1 << 20, entries: 1000, path: 4095, shared: shared})
}

func plenty() *budget { return &budget{bytes: math.MaxInt64 / 2, entries: math.MaxInt / 2} }

// What an archive contains besides the content of files is bounded, too: paths and targets of links.
func TestHostileEntries(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]tar.Header{
		"folders that only a path names": {Name: strings.Repeat("a/", 1500) + "b", Typeflag: tar.TypeReg},
		"the target of a link":           {Name: "l", Typeflag: tar.TypeSymlink, Linkname: x(5000)},
	} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		tree := newTestTree(t, plenty())
		if err := tree.read(t.Context(), &archive, reading{}); !errors.Is(err, hutch.Exhausted) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// All trees of a build stay until it ends, so they are bounded together.
func TestTreesTogether(t *testing.T) {
	t.Parallel()
	shared := &budget{bytes: 3 << 20 / 2, entries: 1500}
	one, two := newTestTree(t, shared), newTestTree(t, shared)
	fill := func(tree *tree) error {
		for i := range 1000 {
			if err := tree.add(fmt.Sprintf("f%d", i), &node{}); err != nil {
				return err
			}
		}
		return tree.keep(&node{}, strings.NewReader(x(1<<20)))
	}
	if err := fill(one); err != nil {
		t.Fatal(err)
	}
	if err := fill(two); !errors.Is(err, hutch.Exhausted) || !strings.Contains(err.Error(), "together") {
		t.Errorf("too many entries: %v", err)
	}
	two.forget(".")
	one.forget(".")
	if shared.entries != 1500 || one.names != 0 {
		t.Errorf("of 1500 entries %d are there again, and %d names", shared.entries, one.names)
	}
	if err := two.keep(&node{}, strings.NewReader(x(1<<20))); !errors.Is(err, hutch.Exhausted) || !strings.Contains(err.Error(), "prune") {
		t.Errorf("too many bytes: %v", err)
	}
}

// bomb is a tar archive of 300 bytes with bzip2. Its only entry is of an unknown type, and has 300 MiB of zeros.
const bomb = "QlpoOTFBWSZTWaUm6QoFfj7bgMmAQAB1AAAQ4AAeQAAIIABwUwmmgNMQRKINA0Gn3GuFUAVVEyBBAVVE285ttvS2oggKqiQJBkEvQ6hKlL2la3h97jGPdABAVVE/MUFZJlNZDgni3wFfjkAAwAAACCAAMIBNRkKgJakKgJcxQVkmU1kOCeLfAV+OQADAAAAIIAAwgE1GQqAlqQqAlzFBWSZTWQ4J4t8BX45AAMAAAAggADCATUZCoCWpCoCXMUFZJlNZDgni3wFfjkAAwAAACCAAMIBNRkKgJakKgJcxQVkmU1kOCeLfAV+OQADAAAAIIAAwgE1GQqAlqQqAlzFBWSZTWfBhf5MBLBlABMAAAQAACCAAMMwFKaZFApGxRQKR4u5IpwoSGYBCYiA="

func TestBomb(t *testing.T) {
	t.Parallel()
	packed, err := base64.StdEncoding.DecodeString(bomb)
	if err != nil {
		t.Fatal(err)
	}
	plain, kind, err := expand(t.Context(), bytes.NewReader(packed), int64(len(packed)), 200)
	if err != nil || kind != "bzip2" || plain == nil {
		t.Fatal(kind, err)
	}
	if err := newTestTree(t, plenty()).read(t.Context(), plain, reading{}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("it unpacks: %v", err)
	}
}

type sandboxes = Sandboxes

// noRoot are sandboxes of a runtime where no command can be root.
type noRoot struct {
	sandboxes
	destroyed []string
}

func (o *noRoot) Create(_ context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	return hutch.Sandbox{ID: req.ID, Runtime: "native"}, nil
}

func (o *noRoot) Destroy(_ context.Context, id string, _ bool) (hutch.Destruction, error) {
	o.destroyed = append(o.destroyed, id)
	return hutch.Destruction{}, nil
}

func (o *noRoot) HasRoot(string) bool { return false }

// If no command can be root, files that a command writes would not have the owner that the Dockerfile says.
func TestNoRootIsRefused(t *testing.T) {
	t.Parallel()
	boxes := &noRoot{}
	r := &run{solver: &solver{Builder: New(Options{Sandboxes: boxes}), life: t.Context()}}
	if _, err := r.sandbox(t.Context(), &pb.ExecOp{}, "image"); !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "gvisor") || len(boxes.destroyed) != 1 {
		t.Errorf("%v; destroyed %q", err, boxes.destroyed)
	}
}

// TestLinksThatLeadFar: the links of a path can lead over half a million folders, each of which is looked up below two
// thousand others. That took more than half an hour, and neither the time limit of the build nor its owner could end
// it.
func TestLinksThatLeadFar(t *testing.T) {
	t.Parallel()
	tree := newTree(nil, "a test", limits{entries: 10_000, path: 4096, shared: &budget{entries: 10_000}})
	deep := strings.TrimSuffix(strings.Repeat("a/", 2000), "/")
	for i := range mostLinks {
		target := strings.Repeat("x/../", 800) + fmt.Sprint("l", i+1)
		if err := tree.add(fmt.Sprint(deep, "/l", i), &node{mode: fs.ModeSymlink | 0o777, target: target}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	_, err := view{ctx: t.Context()}.over(tree).resolve(deep+"/l0", true)
	if took := time.Since(began); !errors.Is(err, hutch.Invalid) || took > 30*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	ended := errors.New("the build was cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ended)
	if _, err := (view{ctx: ctx}).over(tree).resolve("a", true); !errors.Is(err, ended) {
		t.Errorf("after the end of the build: %v", err)
	}
}

// TestHides: a tree hides what is below a file or a removed name of it, at any depth, and below opaque folders.
func TestHides(t *testing.T) {
	t.Parallel()
	tree := newTree(nil, "a test", limits{entries: 100, path: 4096, shared: &budget{entries: 100}})
	for _, opaque := range []bool{false, true} {
		if opaque {
			tree.opaque["o/p"] = true
		}
		for name, n := range map[string]*node{"d/e/file": {mode: 0o644}, "gone": {mode: removed}, "d/link": {mode: fs.ModeSymlink}} {
			if err := tree.add(name, n); err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range map[string]bool{
			".": false, "d": false, "d/e": false, "d/e/other": false, "d/e/file": false, "d/e/file/x/y": true, "gone": false, "gone/x": true,
			"d/link/x": true, "other/x/y/z": false, "o/p": false, "o/p/q": opaque, "o/p/q/r": opaque, "o/q": false,
		} {
			if got := tree.hides(name); got != want {
				t.Errorf("opaque %v, %s: %v", opaque, name, got)
			}
		}
	}
}

// TestLongLines: a line is cut where no secret is.
func TestLongLines(t *testing.T) {
	t.Parallel()
	const key = "correct-horse-battery"
	r := secret.NewRedactor(map[string][]string{"key": {key}})
	var got []string
	l := &logLines{run: &run{solver: &solver{out: func(e hutch.BuildEvent) error { got = append(got, r.String(e.Text)); return nil }, cut: r.Cut}}}
	for at := range 2 * len(key) {
		got = nil
		line := x(mostLine-at) + key + x(mostLine) + "\nend\n" + x(mostLine-at) + key
		for _, piece := range []int{1 << 20, 1000, 1} {
			for rest := line; rest != ""; rest = rest[min(piece, len(rest)):] {
				if err := l.take(hutch.Output{Data: []byte(rest[:min(piece, len(rest))])}); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.end(); err != nil {
				t.Fatal(err)
			}
			l.part, l.sent = nil, 0
		}
		if all := strings.Join(got, ""); strings.Count(all, "[redacted:key]") != 6 || strings.Contains(all, key[:9]) || strings.Count(all, "x") != 3*(3*mostLine-2*at) {
			t.Fatalf("%d before the cut: %d times replaced, %d bytes", at, strings.Count(all, "[redacted:key]"), len(all))
		}
		if slices.ContainsFunc(got, func(s string) bool { return len(s) > mostLine+len(key) }) {
			t.Errorf("%d before the cut there is a longer piece", at)
		}
	}
}
