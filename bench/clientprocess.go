package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed clients/typescript.mjs
var typescriptProgram string

//go:embed clients/e2b.mjs
var e2bProgram string

//go:embed clients/python.py
var pythonProgram string

// goClient returns our Go client.
func goClient(s *server, name, command string) measuredClient {
	return measuredClient{name: name, round: func(ctx context.Context, n int) ([]time.Duration, error) {
		return timed(n, func() error { return runIn(ctx, s.rest, clientsBox, command) })
	}}
}

// bridgeClient returns a client of Cloudflare's bridge that writes the protocol itself.
func bridgeClient(s *server) measuredClient {
	return webClient("Cloudflare's bridge, over HTTP", s.url+"/v1/sandbox/"+clientsBox+"/exec", map[string]any{"argv": []string{program}}, `"exit_code":0`)
}

// rawClient sends our own request over a kept connection, and only looks for the exit code: no client can be faster.
func rawClient(s *server) measuredClient {
	return webClient("HTTP, without a client", s.url+"/v1/sandboxes/"+clientsBox+"/exec", map[string]any{"command": program}, `"exitCode":0`)
}

// webClient returns a client that posts a request and looks for a text in the answer.
func webClient(name, url string, request any, has string) measuredClient {
	body, _ := json.Marshal(request) // strings can be marshalled
	web := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	call := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		resp, err := web.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && !bytes.Contains(text, []byte(has)) {
			err = fmt.Errorf("an answer without %s: %d %s", has, resp.StatusCode, text)
		}
		return err
	}
	return measuredClient{
		name: name,
		round: func(ctx context.Context, n int) ([]time.Duration, error) {
			return timed(n, func() error { return call(ctx) })
		},
		close: func() error { web.CloseIdleConnections(); return nil },
	}
}

// source returns the absolute path of a file in this repository. If the file is missing, the error says how to get it.
func (l *lab) source(path, install string) (string, error) {
	path, err := filepath.Abs(filepath.Join(l.plan.bin, "..", path))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is missing, which `%s` in a checkout installs", path, install)
	}
	return path, nil
}

const installCompat = "test/compat/install"

func (l *lab) typescriptClient(ctx context.Context, s *server) (measuredClient, error) {
	compiler, err := l.source("sdk/typescript/node_modules/.bin/tsc", "npm ci --prefix sdk/typescript")
	if err != nil {
		return measuredClient{}, err
	}
	dir := filepath.Join(l.dir, "typescript")
	if _, err := os.Stat(dir); err != nil {
		cmd := exec.CommandContext(ctx, compiler, "-p", "tsconfig.build.json", "--outDir", dir)
		cmd.Dir = filepath.Join(l.plan.bin, "../sdk/typescript")
		if out, err := cmd.CombinedOutput(); err != nil {
			return measuredClient{}, fmt.Errorf("the TypeScript SDK cannot be built: %w: %s", err, out)
		}
		if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o644); err != nil {
			return measuredClient{}, err
		}
	}
	return startClient(s, "TypeScript SDK", "MODULE="+filepath.Join(dir, "index.js"), "node", "--input-type=module", "-e", typescriptProgram)
}

func (l *lab) e2bClient(_ context.Context, s *server) (measuredClient, error) {
	module, err := l.source("test/compat/node_modules/e2b/dist/index.mjs", installCompat)
	if err != nil {
		return measuredClient{}, err
	}
	c, err := startClient(s, "E2B's JavaScript SDK", "MODULE="+module, "node", "--input-type=module", "-e", e2bProgram)
	c.of = 1
	return c, err
}

func (l *lab) pythonClient(_ context.Context, s *server) (measuredClient, error) {
	python, err := l.source("test/compat/venv/bin/python", installCompat)
	if err != nil {
		return measuredClient{}, err
	}
	sdk, err := l.source("sdk/python/src", "git checkout")
	if err != nil {
		return measuredClient{}, err
	}
	return startClient(s, "Python SDK", "PYTHONPATH="+sdk, python, "-c", pythonProgram)
}

// startClient starts a program. Each line of its standard input is a number of commands, which it runs.
func startClient(s *server, name, env string, args ...string) (c measuredClient, err error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env, "BOX="+clientsBox, "PROGRAM="+program, "NO_PROXY=*", "HUTCH_URL="+s.url, "HUTCH_TOKEN="+token,
		"E2B_API_KEY="+token, "E2B_API_URL="+s.url+"/e2b", "E2B_SANDBOX_URL="+s.url, "E2B_DOMAIN=", "E2B_DEBUG=")
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return c, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return c, err
	}
	if err := cmd.Start(); err != nil {
		return c, err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	end := func() error { return errors.Join(in.Close(), cmd.Wait()) }
	answer := func() (string, error) {
		if lines.Scan() {
			return lines.Text(), nil
		}
		err := errors.Join(lines.Err(), end())
		return "", fmt.Errorf("%s ended (%v): %s", name, err, strings.TrimSpace(said.String()))
	}
	if _, err := answer(); err != nil {
		return c, err
	}
	return measuredClient{name: name, close: end, round: func(_ context.Context, n int) ([]time.Duration, error) {
		if _, err := fmt.Fprintln(in, n); err != nil {
			return nil, err
		}
		text, err := answer()
		if err != nil {
			return nil, err
		}
		return parseTimes(text, n)
	}}, nil
}

// parseTimes reads the times of n commands, in ms.
func parseTimes(text string, n int) ([]time.Duration, error) {
	var times []float64
	if err := json.Unmarshal([]byte(text), &times); err != nil || len(times) != n {
		return nil, fmt.Errorf("%d times were expected: %.200s", n, text)
	}
	took := make([]time.Duration, n)
	for i, t := range times {
		took[i] = time.Duration(t * float64(time.Millisecond))
	}
	return took, nil
}
