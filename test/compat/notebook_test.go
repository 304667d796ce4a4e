package compat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch/internal/daemon"
	"hutch/internal/driver"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/browser"
)

// notebookChecks is how many checks notebook_client.py has.
const notebookChecks = 25

// TestNotebookClients drives kernels as Open WebUI does, and with the gateway client of jupyter_server.
func TestNotebookClients(t *testing.T) {
	t.Parallel()
	python := pythonWith(t, "jupyter_server")
	url, token := serveKernels(t)
	out := runPython(t, python, "notebook_client.py", "JUPYTER_URL="+url+"/jupyter", "JUPYTER_TOKEN="+token)
	if got := strings.Count("\n"+out, "\nok "); got != notebookChecks {
		t.Errorf("%d checks passed, want %d:\n%s", got, notebookChecks, out)
	}
}

// serveKernels starts a whole server on native.
func serveKernels(t *testing.T) (url, token string) {
	t.Helper()
	return serveE2BWith(t, func(c *daemon.Config) {
		c.Sandboxes.Drivers = func(dir string, _ *slog.Logger) ([]driver.Driver, error) {
			return []driver.Driver{hutchtest.Driver(t, "native", filepath.Join(dir, "native"))}, nil
		}
	})
}

// cells has the cells of the notebook that the test runs.
var cells = []string{
	"import os\nwho = input('Who are you? ')\nprint('Hello', who, 'from', os.uname().nodename)",
	"sales = {'North': 40, 'East': 65, 'South': 90, 'West': 55}\nsum(sales.values())",
	`class Chart(dict):
    def _repr_svg_(self):
        bars = "".join(f'<rect x="{60*i+10}" y="{100-v}" width="40" height="{v}" fill="#3572a5"/><text x="{60*i+12}" y="115" font-size="12">{k}</text>'
                       for i, (k, v) in enumerate(self.items()))
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="260" height="120">{bars}</svg>'
Chart(sales)`,
	"1 / 0",
}

// TestJupyterLab runs a notebook in JupyterLab, whose kernels are sandboxes, in a real browser. UPDATE=1 writes the picture
// of docs/chat.md.
func TestJupyterLab(t *testing.T) {
	t.Parallel()
	pythonWith(t, "jupyterlab")
	b := browser.Open(t)
	url, token := serveKernels(t)
	p := b.Page(startLab(t, url, token) + "/lab/tree/sales.ipynb?token=in-the-test")
	p.Wait("window.jupyterapp && jupyterapp.shell.currentWidget?.context?.isReady")
	p.Wait("jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'")
	p.Eval("void jupyterapp.commands.execute('notebook:run-all-cells')", nil)
	p.Wait("document.querySelector('.jp-Stdin-input')")
	p.Eval(`{const e = document.querySelector('.jp-Stdin-input'); e.focus(); e.value = 'Ann'; e.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', keyCode: 13, bubbles: true}))}`, nil)
	// JupyterLab renders only the cells in view, so the outputs are read from the notebook itself.
	const outputs = "JSON.stringify(jupyterapp.shell.currentWidget.context.model.toJSON().cells.map(c => c.outputs))"
	p.Wait(outputs + ".includes('ZeroDivisionError')")
	said := p.Text(outputs)
	for _, want := range []string{"Who are you?", "Hello Ann from", "250", "division by zero"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in the notebook: %s", want, said)
		}
	}
	p.Wait("document.querySelector('.jp-RenderedSVG, .jp-RenderedHTMLCommon svg, .jp-OutputArea-output img[src*=svg]')")
	var matches int
	p.Eval(`jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestComplete({code: 'sal', cursor_pos: 3}).then(r => r.content.matches.length)`, &matches)
	if matches != 1 {
		t.Errorf("%d names complete sal", matches)
	}
	if picture := p.Screenshot(1100, 760); os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(filepath.Join("..", "..", "docs", "chat.png"), picture, 0o644); err != nil {
			t.Error(err)
		}
	}
	p.Eval("jupyterapp.shell.currentWidget.sessionContext.shutdown()", nil)
	if got := kernelsAt(t, url, token); got != "[]" {
		t.Errorf("after its shutdown there is %s", got)
	}
}

func kernelsAt(t *testing.T, url, token string) string {
	t.Helper()
	resp, err := http.Get(url + "/jupyter/api/kernels?token=" + token)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	b.ReadFrom(resp.Body)
	return b.String()
}

// startLab starts JupyterLab in a folder with a notebook, and returns its URL.
func startLab(t *testing.T, url, token string) string {
	t.Helper()
	dir, home := hutchtest.Dir(t), hutchtest.Dir(t)
	writeNotebook(t, filepath.Join(dir, "sales.ipynb"))
	askNothing(t, home)
	lab, err := filepath.Abs(filepath.Join("venv", "bin", "jupyter-lab"))
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(lab, "--gateway-url", url+"/jupyter", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port="+port, "--ServerApp.port_retries=0",
		"--IdentityProvider.token=in-the-test", "--LabApp.expose_app_in_browser=True", "--ServerApp.root_dir="+dir)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "JUPYTER_GATEWAY_AUTH_TOKEN="+token, "HOME="+home, "JUPYTER_CONFIG_DIR="+home+"/config", "JUPYTER_DATA_DIR="+home+"/data",
		"JUPYTER_RUNTIME_DIR="+home+"/runtime", "NO_PROXY=*", "JUPYTER_PREFER_ENV_PATH=1")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait() // it was killed, so its status is known
	})
	awaitServer(t, "http://"+address+"/api")
	return "http://" + address
}

// askNothing turns off JupyterLab's checks for news and updates.
func askNothing(t *testing.T, home string) {
	t.Helper()
	file := filepath.Join(home, "config", "lab", "user-settings", "@jupyterlab", "apputils-extension", "notification.jupyterlab-settings")
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(`{"fetchNews": "false", "checkForUpdates": false}`), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

// freeAddress returns an address where nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func awaitServer(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("JupyterLab did not start")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func writeNotebook(t *testing.T, path string) {
	t.Helper()
	var list []any
	for i, code := range cells {
		list = append(list, map[string]any{"cell_type": "code", "id": fmt.Sprint("cell-", i), "metadata": map[string]any{}, "execution_count": nil, "outputs": []any{}, "source": code})
	}
	b, err := json.Marshal(map[string]any{
		"cells": list, "nbformat": 4, "nbformat_minor": 5,
		"metadata": map[string]any{"kernelspec": map[string]string{"name": "python3", "display_name": "Python 3 (Hutch)", "language": "python"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}
