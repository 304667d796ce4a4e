package fleet

import (
	"context"
	"io"
	"net/http"
	"strings"

	"hutch"
	"hutch/internal/problem"
)

// Resident returns the service that the door of this node serves.
func (f *Fleet) Resident() hutch.Service { return f.resident }

// SetState changes the state of a node.
func (d *Directory) SetState(ctx context.Context, node string, state hutch.NodeState) error {
	_, err := d.setState(ctx, node, state)
	return err
}

// Ask sends to another node a request that this version of Hutch need not know. missing is whether the answer means
// that the sandbox is not there.
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

// Resize changes the size of a snapshot in the directory.
func (d *Directory) Resize(ctx context.Context, id string, size int64) error {
	_, err := d.db.Exec(ctx, "UPDATE fleet_snapshots SET record = record || jsonb_build_object('size', $2::bigint) WHERE id = $1", id, size)
	return err
}

// LookForOldCopies makes the next round of this node check its old copies of snapshots.
func (f *Fleet) LookForOldCopies() { f.carrier.snapshots.lookNow() }

// KeyOfSnapshot returns the key of a snapshot's image in the directory.
func (d *Directory) KeyOfSnapshot(ctx context.Context, id string) (key string, err error) {
	err = d.db.QueryRow(ctx, "SELECT coalesce(image->>'key', '') FROM fleet_snapshots WHERE id = $1", id).Scan(&key)
	return key, err
}

// SetOlder makes a node look as if it ran a version without abilities, or undoes that.
func (d *Directory) SetOlder(ctx context.Context, node string, older bool) error {
	list := abilities
	if older {
		list = nil
	}
	_, err := d.db.Exec(ctx, "UPDATE fleet_nodes SET understands = jsonb_build_object('epoch', epoch, 'abilities', $2::jsonb) WHERE id = $1", node, abilitiesJSON(list))
	d.notifyNodes(ctx)
	return err
}

// SeesOlder reports whether a node looks to this node like one of an older version.
func (f *Fleet) SeesOlder(node string) bool {
	info, ok := f.node.find(node)
	return ok && info.lacks(abilities)
}

// HideTaints makes all nodes ignore the taints of a node, as nodes of older versions do.
func (d *Directory) HideTaints(ctx context.Context, node string) error {
	_, err := d.db.Exec(ctx, "UPDATE fleet_nodes SET taints = '{}' WHERE id = $1", node)
	return err
}
