package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"hutch"
	"hutch/internal/travel"
)

// cargo is an image of a sandbox or snapshot in the bucket, which a node is to fetch.
type cargo struct {
	image travel.Needs
	room  hutch.NodeRoom // capacity to reserve on the node
	// about is the sandbox that the node's labels and taints must suit; nil for no sandbox.
	about *About
	// needs are the abilities that the node needs.
	needs []string
	// only is the only node that may fetch the image; empty for any.
	only string
	// tooOld returns what the version of a node cannot do; "" if the version can fetch the image.
	tooOld func(travel.Machine) string
	// refuse returns the error for an image that no node can fetch. suits is false if no node suits the sandbox, not
	// even one that is not ready.
	refuse func(why string, suits bool) error
}

// cargo returns the requirements for a node where the sandbox can wake.
func (h Holder) cargo() cargo {
	return cargo{
		image: h.inBucket().Needs, room: hutch.NodeRoom{Memory: h.memory, CPU: h.cpu, Sandboxes: 1}, about: &h.About, needs: h.About.needs(),
		tooOld: func(m travel.Machine) string {
			if h.Here && h.Away && !m.Claims {
				return "takes nothing over from a node that is away"
			}
			return ""
		},
		refuse: func(why string, _ bool) error {
			return hutch.Errorf(hutch.Unavailable, "no node can wake the sandbox %q, which stays in the bucket: %s", h.ID, why).With("limit", nodesForSandbox)
		},
	}
}

// cargo returns the requirements for a node that can fetch the snapshot and place sandbox, if that is not nil.
func (s snapshotRow) cargo(sandbox *placement) cargo {
	c := cargo{
		image: s.Image.Needs,
		tooOld: func(m travel.Machine) string {
			if !m.Snapshots {
				return "fetches no snapshots"
			}
			return ""
		},
		refuse: func(why string, suits bool) error {
			if !suits { // no later try could succeed, so the error is final
				return sandbox.unsuitable()
			}
			return hutch.Errorf(hutch.Unavailable, "no node can use the snapshot %q, which is in the bucket: %s", s.Record.ID, why).With("limit", "nodes for the snapshot")
		},
	}
	if sandbox != nil {
		c.room = hutch.NodeRoom{Memory: sandbox.Memory, CPU: sandbox.CPU, Sandboxes: 1}
		c.about, c.needs, c.only = &sandbox.About, sandbox.needs(), sandbox.Mounts
	}
	return c
}

// nodeFor returns a node that can fetch an image: the node named in first if it can, otherwise the node with the
// smallest reservations. It never returns the node named in not; "" names none.
func (d *Directory) nodeFor(ctx context.Context, c cargo, first, not string) (string, error) {
	var about []byte
	if c.about != nil {
		var err error
		if about, err = json.Marshal(c.about); err != nil {
			return "", err
		}
	}
	rows, err := d.db.Query(ctx, `
		SELECT id, machine, $6::jsonb IS NULL OR `+suits("$6::jsonb")+`, `+abilitiesOf+` @> $8::jsonb,
			promised_memory + $1 <= memory AND promised_cpu + $2 <= cpu AND promised + $3 <= most,
			EXISTS (SELECT FROM fleet_nodes n WHERE ($7 = '' OR id = $7) AND ($6::jsonb IS NULL OR `+suits("$6::jsonb")+`))
		FROM fleet_nodes n WHERE state = 'ready' AND lease_until > now() AND id <> $5 AND ($7 = '' OR id = $7)
		ORDER BY id <> $4, greatest(promised_memory::float8 / greatest(memory, 1), promised_cpu / greatest(cpu, 0.001)), id`,
		c.room.Memory, c.room.CPU, c.room.Sandboxes, first, not, about, c.only, abilitiesJSON(c.needs))
	if err != nil {
		return "", databaseError(err)
	}
	var id, chosen string
	var text []byte
	var suitable, able, roomy bool
	suits := true
	var why []string
	_, err = pgx.ForEachRow(rows, []any{&id, &text, &suitable, &able, &roomy, &suits}, func() error {
		var m travel.Machine
		if err := json.Unmarshal(text, &m); err != nil {
			return err
		}
		lacks, tooOld := m.Lacks(c.image), c.tooOld(m)
		switch {
		case m.Builds == nil:
			why = append(why, id+": it has no --fleet-bucket")
		case tooOld != "":
			why = append(why, id+": its version of Hutch "+tooOld+": upgrade it")
		case lacks != nil:
			why = append(why, fmt.Sprintf("%s: %v", id, lacks))
		case !suitable:
			why = append(why, id+unsuitableNode)
		case !able:
			why = append(why, id+": its version of Hutch would ignore "+namesOf(c.needs)+": upgrade it")
		case !roomy:
			why = append(why, id+": it has no room")
		default:
			chosen = cmp.Or(chosen, id)
		}
		return nil
	})
	if err != nil {
		return "", databaseError(err)
	}
	if chosen == "" {
		if why == nil {
			why = []string{"no other node is ready"}
		}
		return "", c.refuse(strings.Join(why, "; "), suits)
	}
	return chosen, nil
}
