package fleet

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// header carries the caller of a call from node to node. Only the door reads it; other listeners ignore it.
const header = "Hutch-Caller"

// sentCaller is a caller.Caller in transit. It leaves out what belongs to one process: the end of the token, because
// the node that the client called watches it, and the memory budget, because each node has its own.
type sentCaller struct {
	Principal *principal    `json:"principal,omitempty"`
	Owner     *caller.Owner `json:"owner,omitempty"`
	OwnOnly   bool          `json:"ownOnly,omitempty"`
	Origin    caller.Origin `json:"origin,omitzero"`
	Trace     string        `json:"trace,omitempty"`
}

type principal struct {
	ID, Name, Owner string
	Scopes          []hutch.Scope
	Limits          hutch.TokenLimits
	Network         *hutch.Network
	Registries      []string
	Metadata        string
	Expires         time.Time
}

// sealCaller writes a caller as the value of the header.
func sealCaller(c caller.Caller) (string, error) {
	p := sentCaller{Owner: c.Owner, OwnOnly: c.OwnOnly, Origin: c.Origin, Trace: c.Trace}
	if who := c.Principal; who != nil {
		p.Principal = &principal{who.ID, who.Name, who.Owner, who.Scopes, who.Limits, who.Network, who.Registries, who.Metadata, who.Expires}
	}
	b, err := json.Marshal(p)
	return base64.RawURLEncoding.EncodeToString(b), err
}

// openCaller reads the value of the header.
func openCaller(text string) (c caller.Caller, err error) {
	var p sentCaller
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil || text == "" {
		return c, hutch.Errorf(hutch.Invalid, "the call says nothing about its caller: the nodes of this fleet have versions that do not know each other; bring them to one version").Because(err)
	}
	c = caller.Caller{Owner: p.Owner, OwnOnly: p.OwnOnly, Origin: p.Origin, Trace: p.Trace}
	if who := p.Principal; who != nil {
		c.Principal = &caller.Principal{ID: who.ID, Name: who.Name, Owner: who.Owner, Scopes: who.Scopes, Limits: who.Limits, Network: who.Network, Registries: who.Registries, Metadata: who.Metadata, Expires: who.Expires}
	}
	return c, nil
}
