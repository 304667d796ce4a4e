package fleet

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"hutch"
	"hutch/internal/travel"
)

// Holder says where a sandbox is.
type Holder struct {
	Name
	Node   string    `json:"node"`
	Placed time.Time `json:"placed"`
	About  About     `json:"about,omitzero"`
	Awake  bool      `json:"awake"`
	// Stays is why the sandbox cannot leave a node that is drained, or cannot wake on another one.
	Stays string `json:"stays,omitempty"`
	// Here is false until the node has fetched the sandbox from the bucket.
	Here bool `json:"here"`
	// Fetcher is the node that reads the bucket's image of a sandbox whose node is away; empty for none.
	Fetcher string `json:"-"`
	// Image is the image of a sleeping sandbox in the bucket; nil for none.
	Image *travel.Image `json:"-"`
	// Checkpoint is the image in the bucket of an earlier state; nil for none.
	Checkpoint *travel.Image `json:"-"`
	// Away says that only the bucket has the sandbox: no node has it, or its node is away. If the sandbox was awake
	// there, the node has been away so long that the sandbox continues from its checkpoint on another node.
	Away bool `json:"-"`
	// InBucket says that the bucket has an image of the sandbox, so that the sandbox outlives its node.
	InBucket bool `json:"inBucket"`

	memory int64 // reserved while it is awake
	cpu    float64
}

// inBucket returns the newest image of a sandbox; nil for none.
func (h Holder) inBucket() *travel.Image {
	if h.Image == nil {
		return h.Checkpoint
	}
	return h.Image
}

// comesTo reports whether node is to fetch the sandbox from the bucket.
func (h Holder) comesTo(node string) bool {
	if h.Here {
		return h.Away && h.Fetcher == node
	}
	return h.Node == node
}

// About is the data about a sandbox that the directory keeps to show the sandbox while its node is away, and to choose
// nodes for it.
type About struct {
	Image   string            `json:"image,omitempty"`
	Runtime string            `json:"runtime,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Limits  hutch.Limits      `json:"limits,omitzero"`

	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Tolerations  map[string]string `json:"tolerations,omitempty"`
}

// holder returns the holder of a sandbox; ok is false if no node holds it.
func (d *Directory) holder(ctx context.Context, n Name) (h Holder, ok bool, err error) {
	list, err := d.holders(ctx, "h.owner = $1 AND h.id = $2", n.Owner, n.ID)
	if err != nil || len(list) == 0 {
		return h, false, err
	}
	return list[0], true, nil
}

// mostOfLabel bounds the number of sandboxes that are searched for a label.
const mostOfLabel = 100

var likeEscapes = strings.NewReplacer(`\`, `\\`, "_", `\_`, "%", `\%`)

// ofLabel lists sandboxes of any owner that only the bucket has, and that by their ids can have a port with the label.
func (d *Directory) ofLabel(ctx context.Context, label string) ([]Holder, error) {
	ids, beginnings := hutch.LabelIDs(label)
	for i, b := range beginnings {
		beginnings[i] = likeEscapes.Replace(b) + "%"
	}
	list, err := d.holders(ctx, "(h.id = ANY ($1) OR h.id LIKE ANY ($2)) AND "+isAway, ids, beginnings)
	return list[:min(len(list), mostOfLabel)], err
}

const holderColumns = "h.owner, h.id, h.node, h.placed, h.awake, h.here, h.fetcher, h.stays, h.image, h.checkpoint, " + isAway + ", h.about, h.memory, h.cpu"

func scanHolder(row pgx.CollectableRow) (h Holder, err error) {
	var about, image, checkpoint []byte
	if err = row.Scan(&h.Owner, &h.ID, &h.Node, &h.Placed, &h.Awake, &h.Here, &h.Fetcher, &h.Stays, &image, &checkpoint, &h.Away, &about, &h.memory, &h.cpu); err == nil {
		err = json.Unmarshal(about, &h.About)
	}
	if err == nil && image != nil {
		h.InBucket, err = true, json.Unmarshal(image, &h.Image)
	}
	if err == nil && checkpoint != nil {
		err = json.Unmarshal(checkpoint, &h.Checkpoint)
	}
	return h, err
}

// heldBy lists the sandboxes of some nodes and those that are only in the bucket. owner is nil for all owners.
func (d *Directory) heldBy(ctx context.Context, nodes []string, owner *string) ([]Holder, error) {
	return d.holders(ctx, "(h.node = ANY ($1) OR "+isAway+") AND ($2::text IS NULL OR h.owner = $2)", nodes, owner)
}

// heldOn returns the sandboxes that are on a node by the directory. The value is true if they have been there for
// longer than after. If the node itself lacks such a sandbox, the sandbox was destroyed or never created.
func (d *Directory) heldOn(ctx context.Context, node string, after time.Duration) (map[Name]bool, error) {
	rows, err := d.db.Query(ctx, "SELECT owner, id, placed < now() - $2::interval FROM fleet_holders WHERE node = $1 AND here", node, after)
	if err != nil {
		return nil, databaseError(err)
	}
	held := map[Name]bool{}
	var n Name
	var long bool
	_, err = pgx.ForEachRow(rows, []any{&n.Owner, &n.ID, &long}, func() error { held[n] = long; return nil })
	return held, databaseError(err)
}

// recordIsOn reports whether the store has the record of a sandbox on a node. It returns true if the store is in
// another database.
func (d *Directory) recordIsOn(ctx context.Context, node string, name Name) (is bool, err error) {
	err = pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		there, err := hasRecords(ctx, tx)
		if is = !there; err != nil || !there {
			return err
		}
		return tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM hutch.sandboxes WHERE owner = $1 AND sandbox = $2 AND node = $3)", name.Owner, name.ID, node).Scan(&is)
	})
	return is, databaseError(err)
}

// entry is a sandbox that a node reports.
type entry struct {
	Name
	Memory int64
	CPU    float64
	Awake  bool
	About  About
}

// adopt records sandboxes that a node reports and for which no create made a row: copies of a sandbox, and sandboxes
// that are older than the fleet. It returns the names of the sandboxes that another node holds.
func (d *Directory) adopt(ctx context.Context, node string, list []entry) (taken []Name, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	err = d.change(ctx, node, func(tx pgx.Tx) error {
		taken = nil
		for _, e := range list {
			about, err := json.Marshal(e.About)
			if err != nil {
				return err
			}
			var at string
			err = tx.QueryRow(ctx, `
				INSERT INTO fleet_holders AS h (owner, id, node, memory, cpu, awake, about) VALUES ($1, $2, $3, $4, $5, $6, $7)
				ON CONFLICT (owner, id) DO UPDATE SET awake = CASE WHEN h.node = $3 THEN $6 ELSE h.awake END,
					image = CASE WHEN h.node = $3 AND $6 THEN NULL ELSE h.image END RETURNING node`,
				e.Owner, e.ID, node, e.Memory, e.CPU, e.Awake, about).Scan(&at)
			if err != nil {
				return err
			}
			if at != node {
				taken = append(taken, e.Name)
			}
		}
		return nil
	})
	return taken, err
}

// free removes sandboxes that a node no longer has from the directory.
func (d *Directory) free(ctx context.Context, node string, list ...Name) error {
	if len(list) == 0 {
		return nil
	}
	owners, ids := split(list)
	return d.change(ctx, node, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM fleet_holders h USING unnest($2::text[], $3::text[]) AS u(owner, id)
			WHERE h.owner = u.owner AND h.id = u.id AND h.node = $1 AND h.here`, node, owners, ids)
		return err
	})
}

// noteAwake records which sandboxes of a node have fallen asleep, and which are awake.
func (d *Directory) noteAwake(ctx context.Context, node string, list []entry) error {
	if len(list) == 0 {
		return nil
	}
	names := make([]Name, len(list))
	awake := make([]bool, len(list))
	for i, e := range list {
		names[i], awake[i] = e.Name, e.Awake
	}
	owners, ids := split(names)
	return d.change(ctx, node, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE fleet_holders h SET awake = u.awake, image = CASE WHEN u.awake THEN NULL ELSE h.image END FROM unnest($2::text[], $3::text[], $4::bool[]) AS u(owner, id, awake)
			WHERE h.owner = u.owner AND h.id = u.id AND h.node = $1 AND h.here`, node, owners, ids, awake)
		return err
	})
}

func split(list []Name) (owners, ids []string) {
	for _, n := range list {
		owners, ids = append(owners, n.Owner), append(ids, n.ID)
	}
	return owners, ids
}

// change changes which sandboxes a node holds, and recounts its reservations. It locks the node's row first, as place
// does.
func (d *Directory) change(ctx context.Context, node string, do func(pgx.Tx) error) error {
	return databaseError(pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT 1 FROM fleet_nodes WHERE id = $1 FOR UPDATE", node); err != nil {
			return err
		}
		if err := do(tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			UPDATE fleet_nodes SET (promised_memory, promised_cpu, promised) =
				(SELECT coalesce(sum(memory), 0), coalesce(sum(cpu), 0), count(*) FROM fleet_holders WHERE node = $1 AND awake)
			WHERE id = $1`, node)
		return err
	}))
}

// Held lists the sandboxes that a node holds, oldest first.
func (d *Directory) Held(ctx context.Context, node string) ([]Holder, error) {
	return d.holders(ctx, "h.node = $1 AND h.here", node)
}
