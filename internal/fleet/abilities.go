package fleet

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/caller"
)

// Nodes of two versions work together while a fleet is upgraded. A node of an older version refuses requests and fields
// that it does not know. It would silently ignore others: some facts about the caller in a header, and some facts about
// a sandbox in the directory. Each of these is an ability. A node writes its abilities to its row, and a request that
// needs an ability goes only to nodes with that ability. Add an ability for each new thing that older nodes would
// ignore.
const (
	// knowsLabels is the ability to place and keep sandboxes by nodeSelector and tolerations, and by the labels and taints of
	// nodes.
	knowsLabels = "labels"
	// knowsRegistries is the ability to keep to the registries of a token.
	knowsRegistries = "registries"
)

// abilities are the abilities of this version.
var abilities = []string{knowsLabels, knowsRegistries}

// inWords names, for errors, the fields that need an ability.
var inWords = map[string]string{knowsLabels: "nodeSelector and tolerations", knowsRegistries: "the registries of a token"}

// abilitySchema adds the abilities of nodes. They count only if they have the current epoch of the node. A node that
// starts again with an older version gets a new epoch, but the abilities of its newer version stay in its row.
const abilitySchema = `
DO $$ BEGIN
	IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'fleet_nodes'::regclass AND attname = 'understands') THEN
		ALTER TABLE fleet_nodes ADD COLUMN understands jsonb NOT NULL DEFAULT '{}';
	END IF;
END $$`

// abilitiesOf is an expression for the abilities of fleet_nodes n.
const abilitiesOf = `(CASE WHEN n.understands->'epoch' = to_jsonb(n.epoch) THEN n.understands->'abilities' ELSE '[]'::jsonb END)`

// needs returns the abilities that a node needs for a sandbox.
func (a About) needs() []string {
	if len(a.NodeSelector)+len(a.Tolerations) == 0 {
		return nil
	}
	return []string{knowsLabels}
}

// needsOf returns the abilities that a node needs for a caller whose call can bring an image.
func needsOf(c caller.Caller) []string {
	if c.Owner != nil && len(c.Owner.Registries) > 0 || c.Principal != nil && len(c.Principal.Registries) > 0 {
		return []string{knowsRegistries}
	}
	return nil
}

// lacks reports whether a node lacks one of the needed abilities.
func (n NodeInfo) lacks(needs []string) bool {
	return slices.ContainsFunc(needs, func(one string) bool { return !slices.Contains(n.abilities, one) })
}

// outdated returns the error for a request that needs abilities the node does not have.
func outdated(node string, needs []string) error {
	return hutch.Errorf(hutch.Unavailable, "the node %s has an older version of Hutch, which would ignore %s: an administrator upgrades Hutch on the node %s; then try again", node, namesOf(needs), node).
		With("node", node)
}

// namesOf returns a text with the fields that need abilities.
func namesOf(needs []string) string {
	words := make([]string, len(needs))
	for i, one := range needs {
		words[i] = inWords[one]
	}
	return hutch.JoinNames(words, "and")
}

// Create refuses fields that the node would ignore. This is also checked here because the placement may have seen a
// newer version of the node than this process knows. The error means that the request has not reached the node.
func (p *peer) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	needs := append(About{NodeSelector: req.NodeSelector, Tolerations: req.Tolerations}.needs(), needsOf(caller.From(ctx))...)
	if p.info.lacks(needs) {
		return hutch.Sandbox{}, &connectError{outdated(p.info.ID, needs)}
	}
	return p.Client.Create(ctx, req)
}

// refuse returns an error for a request to a node that would ignore something about its caller.
func (n NodeInfo) refuse(r *http.Request, c caller.Caller) error {
	if !canBringImages(r) {
		return nil
	}
	needs := needsOf(c)
	if n.lacks(needs) {
		return outdated(n.ID, needs)
	}
	return nil
}

// canBringImages reports whether a request can make a node pull or push an image: a create, a template, or a request
// about images that changes something. The image of a sandbox that exists was allowed when the sandbox was created.
func canBringImages(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodDelete:
		return false
	}
	path := r.URL.Path
	return path == "/v1/sandboxes" || path == "/v1/templates" || strings.HasPrefix(path, "/v1/images/")
}

// frontKey is the key of the context value that names the node from which a call comes.
type frontKey struct{}

func withFront(ctx context.Context, node string) context.Context {
	return context.WithValue(ctx, frontKey{}, node)
}

// refuseIgnoredTaints refuses a new sandbox that a node of an older version placed here without regard to the taints of this
// node.
func (r *resident) refuseIgnoredTaints(ctx context.Context, req hutch.CreateRequest) error {
	front, _ := ctx.Value(frontKey{}).(string)
	if front == "" {
		return nil
	}
	if info, ok := r.f.node.find(front); !ok || !info.lacks([]string{knowsLabels}) {
		return nil
	}
	for key, value := range r.f.opt.Taints {
		if got, ok := req.Tolerations[key]; !ok || got != value {
			return hutch.Errorf(hutch.Unavailable, "the node %s, which got the call, has an older version of Hutch and ignores taints, and it chose the node %s, which has some: an administrator upgrades Hutch on the node %s; until then call another node", front, r.f.node.info.ID, front).
				With("node", front)
		}
	}
	return nil
}

// abilitiesJSON returns abilities in the JSON of the database column.
func abilitiesJSON(list []string) []byte {
	b, err := json.Marshal(append([]string{}, list...))
	if err != nil {
		panic(err) // cannot happen with strings
	}
	return b
}
