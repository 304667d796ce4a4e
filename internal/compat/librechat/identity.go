package librechat

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"path"
	"strings"

	"hutch"
)

// Person is the user of a request, from its JWT. The zero value means all people of an API key.
type Person struct{ Tenant, User string }

type personKey struct{}

// withPerson returns a context for requests of a person.
func withPerson(ctx context.Context, p Person) context.Context {
	return context.WithValue(ctx, personKey{}, p)
}

func personOf(ctx context.Context) Person {
	p, _ := ctx.Value(personKey{}).(Person)
	return p
}

// owned is the owner of a session: the user, or a skill or an agent, whose files all users of a tenant share.
type owned struct{ Kind, ID, Version string }

// The kinds of owners of sessions. Older releases of LibreChat name none, or an entity.
const (
	kindUser   = "user"
	kindSkill  = "skill"
	kindAgent  = "agent"
	kindEntity = "entity"
)

// maxResource is the longest id of a skill or an agent, in bytes.
const maxResource = 256

// check refuses an owner that no session can have.
func (o owned) check() error {
	switch {
	case o.Kind == kindUser || o.Kind == kindAgent || o.Kind == kindEntity:
		if o.Version != "" {
			return hutch.Errorf(hutch.Invalid, "version is only valid for kind skill")
		}
	case o.Kind == kindSkill:
		if o.Version == "" || len(o.Version) > maxResource {
			return hutch.Errorf(hutch.Invalid, "version is required for kind skill")
		}
	default:
		return hutch.Errorf(hutch.Invalid, "kind is %.40q: use skill, agent or user", o.Kind)
	}
	if len(o.ID) > maxResource || o.Kind != kindUser && o.ID == "" {
		return hutch.Errorf(hutch.Invalid, "id must name the %s, with at most %d bytes", o.Kind, maxResource)
	}
	return nil
}

// named returns the owner that fields of a form or of a query name.
func named(get func(string) string) (owned, error) {
	o := owned{get("kind"), get("id"), get("version")}
	if o.Kind == "" && get("entity_id") != "" {
		o = owned{Kind: kindEntity, ID: get("entity_id")}
	}
	if o.Kind == "" {
		o.Kind = kindUser
	}
	return o, o.check()
}

func namedInQuery(q url.Values) (owned, error) { return named(q.Get) }

// store is where the sessions of an owner are: a sandbox, and a folder in the sandbox's working folder.
type store struct{ sandbox, folder string }

// storeOf returns the store of an owner, as a person sees it.
func storeOf(p Person, o owned) store {
	if o.Kind == kindUser {
		return store{hashed("files", p.Tenant, p.User), "user"}
	}
	return store{hashed("shared", p.Tenant), o.Kind + "-" + hashed(o.ID, o.Version)}
}

// session returns the folder of a session.
func (s store) session(id string) string { return path.Join(s.folder, id) }

// conversationOf returns the id of the sandbox of executions with a hint.
func conversationOf(p Person, hint string) string { return hashed("runtime", p.Tenant, p.User, hint) }

var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// hashed returns an id of Hutch for a list of texts. Lists that differ have different ids.
func hashed(texts ...string) string {
	b, _ := json.Marshal(texts) // strings
	sum := sha256.Sum256(b)
	return "lc-" + lower.EncodeToString(sum[:])[:32]
}

// newSession mints the id of a session.
func newSession() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])[:21]
}

// fileID returns the id of a file in a session.
func fileID(session, name string) string {
	sum := sha256.Sum256([]byte(session + "/" + name))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:21]
}

// The limits of names.
const (
	maxName  = 256 // bytes
	maxDepth = 10  // parts
)

// checkName refuses a name of a file that is not a plain path below the working folder.
func checkName(name string) error {
	clean := name != "" && !strings.ContainsAny(name, "\x00\\") && !strings.HasPrefix(name, "/") && path.Clean(name) == name && name != "." && name != ".."
	if !clean || strings.HasPrefix(name, "../") || len(name) > maxName || strings.Count(name, "/") >= maxDepth || hutch.CheckPath(name) != nil {
		return hutch.Errorf(hutch.Invalid, "the file name %.60q cannot be used: give a relative path without .. and \\, of at most %d bytes and %d parts", name, maxName, maxDepth)
	}
	return nil
}

func cut(route string) (method, path string, ok bool) { return strings.Cut(route, " ") }
