package sdk_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/browser"
	"hutch/internal/hutchtest/messages"
)

const typescript = "../../sdk/typescript"

// maxBundle is the largest size of the core of the TypeScript SDK, in gzipped bytes.
const maxBundle = 40 << 10

// node runs a command in a folder and returns its output. PATH has the programs of the packages there.
func node(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, env, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func try(t *testing.T, dir string, env []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	bin, err := filepath.Abs(filepath.Join(typescript, "node_modules", ".bin"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "env", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "NO_COLOR=1"), env...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// needPackages skips the test where the packages of a folder are not installed.
func needPackages(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		hutchtest.Skip(t, "the packages of %s are missing: npm ci --prefix %s", dir, strings.TrimPrefix(dir, "../../"))
	}
}

// packed builds the package as npm would publish it. It returns the folder of a program that has the package installed; the
// tests and examples are in that folder, too.
func packed(t *testing.T) string {
	t.Helper()
	needPackages(t, typescript)
	dir := t.TempDir()
	node(t, typescript, nil, "npm", "run", "--silent", "build")
	node(t, typescript, nil, "npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", dir)
	archives, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("npm pack made %q, %v", archives, err)
	}
	unpack(t, archives[0], filepath.Join(dir, "node_modules", "hutch"))
	ws, err := filepath.Abs(filepath.Join(typescript, "node_modules", "ws"))
	if err == nil {
		err = os.Symlink(ws, filepath.Join(dir, "node_modules", "ws"))
	}
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "test"), os.DirFS(filepath.Join(typescript, "test")))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// unpack unpacks an archive of npm. Its names begin with "package/".
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, strings.TrimPrefix(h.Name, "package/"))
		b, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(name), 0o755)
		}
		if err == nil {
			err = os.WriteFile(name, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTypeScript checks the package without a server: it fits the types of the API, passes its unit tests, and its core is
// small. `make lint` runs its compiler and linter.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	needPackages(t, typescript)
	t.Run("fits the types of the API", func(t *testing.T) {
		t.Parallel()
		fitsTheAPI(t)
	})
	t.Run("has a reference", func(t *testing.T) {
		if !hutchtest.Full() {
			t.Skip("make test-full has it")
		}
		t.Parallel()
		out := t.TempDir()
		node(t, typescript, nil, "typedoc", "--out", out) // a warning is an error
		for _, page := range []string{"classes/index.Hutch.html", "classes/index.Sandbox.html", "functions/cloudflare.getSandbox.html"} {
			if _, err := os.Stat(filepath.Join(out, page)); err != nil {
				t.Errorf("the reference has no %s", page)
			}
		}
	})
	dir := packed(t)
	t.Run("unit tests", func(t *testing.T) {
		t.Parallel()
		node(t, dir, nil, "node", "--test", "test/unit.test.js")
	})
	t.Run("the core is small", func(t *testing.T) {
		t.Parallel()
		var z bytes.Buffer
		w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression)
		io.WriteString(w, bundle(t, dir, "node_modules/hutch/dist/index.js"))
		w.Close()
		if z.Len() > maxBundle {
			t.Errorf("the bundle has %d gzipped bytes, of %d", z.Len(), maxBundle)
		}
		t.Logf("%d gzipped bytes", z.Len())
	})
}

// fitsTheAPI compiles the SDK with types that are generated from the present API. The committed types must be the same.
func fitsTheAPI(t *testing.T) {
	dir := t.TempDir()
	fresh := filepath.Join(dir, "src", "schema.ts")
	if err := os.CopyFS(filepath.Join(dir, "src"), os.DirFS(filepath.Join(typescript, "src"))); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(fresh)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"package.json", "tsconfig.json"} {
		b, err := os.ReadFile(filepath.Join(typescript, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	node(t, typescript, nil, "openapi-typescript", "../../api/openapi.yaml", "-o", fresh)
	if text, err := os.ReadFile(fresh); err != nil || !bytes.Equal(text, old) {
		t.Errorf("src/schema.ts is older than api/openapi.yaml, %v: npm run generate in sdk/typescript", err)
	}
	node(t, dir, nil, "tsc", "--noEmit", "-p", ".")
}

// bundle returns a module and all that it imports as one minified module. dir has the packed package.
func bundle(t *testing.T, dir, entry string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.js")
	node(t, dir, nil, "esbuild", entry, "--bundle", "--minify", "--format=esm", "--log-level=warning", "--outfile="+file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTypeScriptServer runs the package as npm would install it against a real server: the contract of the SDKs, a Worker's code, the
// examples of the README, and a short program in every JavaScript engine.
func TestTypeScriptServer(t *testing.T) {
	needPackages(t, typescript)
	dir := packed(t)
	page := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(dir, "page"))))
	t.Cleanup(page.Close)
	env := serve(t, append(messages.Flags(t), "--allow-origin", page.URL)...)
	contract, err := filepath.Abs("../../sdk/contract/cases")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("with", func(t *testing.T) {
		t.Run("contract", func(t *testing.T) {
			t.Parallel()
			t.Log(lastLines(node(t, dir, append(env, "HUTCH_CONTRACT="+contract), "node", "--test", "test/contract.js"), 9))
		})
		t.Run("cloudflare", func(t *testing.T) {
			t.Parallel()
			node(t, dir, env, "node", "--test", "test/cloudflare.js")
		})
		t.Run("readme", func(t *testing.T) {
			t.Parallel()
			readme(t, dir, env, filepath.Join(typescript, "README.md"))
		})
		t.Run("page", func(t *testing.T) {
			t.Parallel()
			readme(t, dir, env, "../../docs/typescript.md")
		})
		t.Run("screen", func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("Xtigervnc"); err != nil { // the image host needs it
				hutchtest.Skip(t, "%v", err)
			}
			readme(t, dir, env, "../../docs/screen.md")
		})
		t.Run("example", func(t *testing.T) {
			t.Parallel()
			notebook, err := filepath.Abs("../../examples/typescript/notebook.ts")
			if err != nil {
				t.Fatal(err)
			}
			node(t, dir, nil, "esbuild", notebook, "--format=esm", "--target=node22", "--log-level=error", "--outfile=notebook.mjs")
			got := node(t, dir, env, "bash", "-c", `printf 'x = 20\nprint("hi"); x + 1\nnone\n' | node notebook.mjs`)
			if want := "hi\n21\n"; !strings.HasPrefix(got, want) || !strings.Contains(got, "NameError") {
				t.Errorf("it prints %q", got)
			}
		})
		t.Run("skill", func(t *testing.T) {
			t.Parallel()
			executor, err := filepath.Abs("../../skills/hutch/templates/code-executor.ts")
			if err != nil {
				t.Fatal(err)
			}
			node(t, dir, nil, "esbuild", executor, "--format=esm", "--target=node22", "--log-level=error", "--outfile=executor.mjs")
			got := node(t, dir, env, "node", "executor.mjs")
			if !strings.Contains(got, "ok: true, text: '42\\n'") || !strings.Contains(got, "ok: false, text: 'exit 3") {
				t.Errorf("it prints %q", got)
			}
		})
		for engine, command := range engines {
			t.Run(engine, func(t *testing.T) {
				t.Parallel()
				if engine != "node" {
					needPackages(t, ".")
				}
				args := strings.Fields(command)
				args[0] = program(t, args[0])
				if got := node(t, dir, env, append(args, "test/everywhere.run.js")...); !strings.Contains(got, "ok") {
					t.Error(got)
				}
			})
		}
		t.Run("browser", func(t *testing.T) {
			t.Parallel()
			inBrowser(t, dir, page.URL, env)
		})
		t.Run("workerd", func(t *testing.T) {
			t.Parallel()
			inWorker(t, dir, env)
		})
	})
}

var engines = map[string]string{"node": "node", "bun": "bun", "deno": "deno run --allow-net --allow-env --allow-read --no-lock"}

// program returns the path of a JavaScript engine.
func program(t *testing.T, name string) string {
	if name == "node" {
		return name
	}
	file := filepath.Join("node_modules", ".bin", name)
	if name == "deno" { // the generic package depends on packages that some registries do not have
		file = filepath.Join("node_modules", "@deno", "linux-x64-glibc", "deno")
		if runtime.GOARCH != "amd64" {
			t.Skip("there is no Deno for this machine in test/sdk")
		}
	}
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// inBrowser runs the short program in a page of another origin than the server's.
func inBrowser(t *testing.T, dir, url string, env []string) {
	chromium := browser.Open(t)
	folder := filepath.Join(dir, "page")
	everywhere, err := os.ReadFile(filepath.Join(dir, "test", "everywhere.js"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"hutch.js": bundle(t, dir, "node_modules/hutch/dist/index.js"), "everywhere.js": string(everywhere), "index.html": "<!doctype html><title>Hutch</title>"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var seen string
	chromium.Page(url+"/index.html").Eval(fmt.Sprintf(`(async () => {
		try {
			const {everywhere, expected} = await import("./everywhere.js")
			const seen = await everywhere(await import("./hutch.js"), {url: %q, token: %q})
			return seen === expected ? "ok" : seen
		} catch (err) { return String(err && err.stack || err) }
	})()`, strings.TrimPrefix(env[0], "HUTCH_URL="), strings.TrimPrefix(env[1], "HUTCH_TOKEN=")), &seen)
	if seen != "ok" {
		t.Errorf("the page has seen %s", seen)
	}
}

// workerConfig configures a Worker that can reach the server of the test, on loopback.
const workerConfig = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (services = [
  (name = "worker", worker = (
    modules = [(name = "worker.js", esModule = embed "worker.js")],
    compatibilityDate = "2026-01-01",
    bindings = [(name = "url", text = %q), (name = "token", text = %q)],
  )),
  (name = "internet", network = (allow = ["local", "public", "private"])),
]);
`

// inWorker runs the Worker of the tests in the engine of Cloudflare's Workers.
func inWorker(t *testing.T, dir string, env []string) {
	needPackages(t, ".")
	if runtime.GOARCH != "amd64" {
		t.Skip("there is no workerd for this machine in test/sdk")
	}
	workerd, err := filepath.Abs("node_modules/@cloudflare/workerd-linux-64/bin/workerd")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(workerConfig, strings.TrimPrefix(env[0], "HUTCH_URL="), strings.TrimPrefix(env[1], "HUTCH_TOKEN="))
	folder := t.TempDir()
	for name, text := range map[string]string{"worker.js": bundle(t, dir, "test/worker.js"), "config.capnp": config} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(lastLines(node(t, folder, nil, workerd, "test", "config.capnp"), 5))
}

var examples = regexp.MustCompile("(?ms)^```ts\n(.*?)^```\n(?:\n?```text\n(.*?)^```)?")

// readme runs the examples of a page: its blocks of ts. A block of text after one is what it must print.
func readme(t *testing.T, dir string, env []string, page string) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := examples.FindAllStringSubmatchIndex(string(text), -1)
	if len(found) == 0 {
		t.Fatalf("%s has no examples", page)
	}
	for i, at := range found {
		if before := strings.TrimSpace(string(text[:at[0]])); strings.HasSuffix(before[strings.LastIndex(before, "\n")+1:], "-->") && strings.Contains(before[strings.LastIndex(before, "\n")+1:], "<!-- not run") {
			continue
		}
		name := fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(page), ".md"), i)
		if err := os.WriteFile(filepath.Join(dir, name+".ts"), text[at[2]:at[3]], 0o644); err != nil {
			t.Fatal(err)
		}
		node(t, dir, nil, "esbuild", name+".ts", "--format=esm", "--target=node20", "--log-level=error", "--outfile="+name+".mjs")
		out, err := try(t, dir, env, "node", name+".mjs")
		switch {
		case err != nil:
			t.Errorf("example %d of %s: %v\n%s", i+1, page, err, out)
		case at[4] >= 0 && out != string(text[at[4]:at[5]]):
			t.Errorf("example %d of %s prints\n%s\nnot\n%s", i+1, page, out, text[at[4]:at[5]])
		}
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
