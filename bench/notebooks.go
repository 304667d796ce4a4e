package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/coder/websocket"

	"hutch"
)

// notebooks compares a cell of a Jupyter kernel with a run of the same code over REST, and the start of a kernel with
// that of a sandbox with a context. Each runtime has a separate server, because clients of Jupyter cannot choose one.
func (l *lab) notebooks(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "p99", "× the REST call before it")
	for _, f := range l.runtimes {
		if err := l.notebooksOn(ctx, f, &t); err != nil {
			return t, err
		}
	}
	t.note("The aims on native are 5 ms for a cell and 20 ms for the start of a kernel from the pool.")
	return t, nil
}

func (l *lab) notebooksOn(ctx context.Context, f *figures, t *table) (err error) {
	runtime := f.runtime
	s, err := serve(ctx, l.dir, "notebooks-"+runtime, "--runtime", runtime)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	n, err := s.openNotebook(ctx)
	if err != nil {
		return err
	}
	defer n.CloseNow()
	run := func(ctx context.Context, _ int) error { return firstResult(ctx, s.rest, n.sandbox, "plain") }
	create := func(ctx context.Context, _ int) error {
		sb, err := s.rest.Create(ctx, hutch.CreateRequest{})
		if err == nil {
			_, err = s.rest.CreateContext(ctx, sb.ID, hutch.ContextRequest{})
		}
		return err
	}
	start := func(ctx context.Context, _ int) error { _, err := s.startKernel(ctx); return err }
	if err := errors.Join(run(ctx, 0), n.cell(ctx, 0)); err != nil {
		return err
	}
	for _, pair := range []struct {
		n        int
		subjects []subject
		notebook *series
	}{
		{l.calls, []subject{{runtime + ": 42 over REST", run}, {runtime + ": 42 as a cell", n.cell}}, &f.cell},
		{l.creates, []subject{{runtime + ": create and context over REST", create}, {runtime + ": start a kernel", start}}, &f.kernel},
	} {
		all, err := interleave(ctx, l.rounds, pair.n, pair.subjects)
		if err != nil {
			return err
		}
		for i, s := range pair.subjects {
			t.quantiles(s.name, all[i], all[0])
		}
		*pair.notebook = all[1]
	}
	return nil
}

// notebook is a connection to a kernel.
type notebook struct {
	*websocket.Conn
	sandbox string
}

func (s *server) startKernel(ctx context.Context) (id string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/jupyter/api/kernels?token="+token, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var kernel struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&kernel); err != nil || kernel.ID == "" {
		return "", fmt.Errorf("start of a kernel: %s, %w", resp.Status, err)
	}
	return kernel.ID, nil
}

func (s *server) openNotebook(ctx context.Context) (*notebook, error) {
	id, err := s.startKernel(ctx)
	if err != nil {
		return nil, err
	}
	conn, _, err := websocket.Dial(ctx, s.url+"/jupyter/api/kernels/"+id+"/channels?token="+token, nil)
	if err != nil {
		return nil, err
	}
	return &notebook{conn, "jupyter-" + strings.ReplaceAll(id, "-", "")[:16]}, nil
}

// cell runs a cell until the kernel is idle, as a client waits, and checks its value.
func (n *notebook) cell(ctx context.Context, _ int) error {
	const request = `{"header":{"msg_id":"cell","msg_type":"execute_request","session":"s"},"channel":"shell","content":{"code":"42","allow_stdin":false}}`
	if err := n.Write(ctx, websocket.MessageText, []byte(request)); err != nil {
		return err
	}
	found := false
	for {
		_, b, err := n.Read(ctx)
		if err != nil {
			return err
		}
		found = found || bytes.Contains(b, []byte(`"text/plain":"42"`))
		if bytes.Contains(b, []byte(`"execution_state":"idle"`)) {
			break
		}
	}
	if !found {
		return errors.New("a cell did not give 42")
	}
	return nil
}
