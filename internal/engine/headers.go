package engine

import (
	"encoding/json"
	"fmt"

	"hutch"
	"hutch/internal/store"
)

// headerValues keep the values of header rules in the records of sandboxes, encrypted. A record has the names in its
// network, for everyone who can see the sandbox, and the values only here. So they live exactly as long as the record,
// and do not open in the record of another sandbox.
type headerValues struct {
	sealer *store.Sealer // nil where no values can be kept
}

// keep makes a network the one of a record.
func (v headerValues) keep(rec *store.Record, n hutch.Network) error {
	rec.Sandbox.Network, rec.HeaderValues = n, nil
	if len(n.Headers) == 0 {
		return nil
	}
	if v.sealer == nil {
		return hutch.Errorf(hutch.Unsupported, "header rules need a server that keeps secrets: start one with hutch serve, or leave network.headers out").Naming(hutch.AboutField, "network.headers")
	}
	text, err := json.Marshal(n.Headers)
	if err != nil {
		return err
	}
	rec.Sandbox.Network.Headers, rec.HeaderValues = n.Headers.Names(), v.sealer.Seal(sealName(*rec), text)
	return nil
}

// of returns the header rules of a record with their values.
func (v headerValues) of(rec store.Record) (rules hutch.HeaderRules, err error) {
	if len(rec.HeaderValues) == 0 {
		return nil, nil
	}
	if v.sealer == nil {
		return nil, errHeaderKey
	}
	text, err := v.sealer.Open(sealName(rec), rec.HeaderValues)
	if err != nil {
		return nil, errHeaderKey.Because(err)
	}
	return rules, json.Unmarshal(text, &rules)
}

var errHeaderKey = hutch.Errorf(hutch.Denied, "the values of the sandbox's header rules were encrypted with another key: start the server with the key of that time (--secret-key), or create the sandbox again")

// sealName names a sandbox by what never changes. The key of its record does, when it gets an instance of the pool, and
// so does the time of its creation, when the clock was set back.
func sealName(rec store.Record) string {
	return fmt.Sprintf("headers of %q of %q", rec.Sandbox.ID, rec.Sandbox.Owner)
}
