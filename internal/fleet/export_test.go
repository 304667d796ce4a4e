package fleet

import (
	"context"
	"io"
	"net/http"
	"strings"

	"hutch"
	"hutch/internal/problem"
)

// Resident is what the door of this node serves.
func (f *Fleet) Resident() hutch.Service { return f.resident }

// SetState changes the state of a node.
func (d *Directory) SetState(ctx context.Context, node string, state hutch.NodeState) error {
	_, err := d.setState(ctx, node, state)
	return err
}

// Ask sends a request to another node, as a version of this program could that has other requests. Missing is whether the
// answer means that the sandbox is not there.
func (f *Fleet) Ask(ctx context.Context, node, path, body string) (missing bool, err error) {
	p, err := f.peer(node)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+node+"."+domain+path, strings.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.http.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode == http.StatusOK {
		return false, err
	}
	err = problem.Read(resp.StatusCode, b).Err()
	return isMissing(err), err
}
