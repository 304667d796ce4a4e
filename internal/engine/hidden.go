package engine

import (
	"encoding/json"
	"fmt"

	"hutch"
	"hutch/internal/store"
)

// hiddenNetworks keep the hidden values of networks, encrypted, in the records of sandboxes: the values of header
// rules, and the passwords of proxies. Everyone who can see a sandbox can read the network in its record, so that
// network lacks these values. The values live exactly as long as the record, and cannot be decrypted in the record of
// another sandbox.
type hiddenNetworks struct {
	sealer *store.Sealer // nil if this server cannot keep hidden values
}

// keep stores a network in a record.
func (h hiddenNetworks) keep(rec *store.Record, n hutch.Network) error {
	rec.Sandbox.Network, rec.HiddenNetwork = n.Shown(), nil
	if len(n.Headers) == 0 && n.Proxy == nil {
		return nil
	}
	if h.sealer == nil {
		return hutch.Errorf(hutch.Unsupported, "header rules and proxies need a server that keeps secrets: start one with hutch serve, or leave network.headers and network.proxy out").Naming(hutch.AboutField, "network")
	}
	text, err := json.Marshal(hutch.Network{Headers: n.Headers, Proxy: n.Proxy})
	if err != nil {
		return err
	}
	rec.HiddenNetwork = h.sealer.Seal(sealName(*rec), text)
	return nil
}

// whole returns the network of a record with its hidden values.
func (h hiddenNetworks) whole(rec store.Record) (hutch.Network, error) {
	n := rec.Sandbox.Network
	if len(rec.HiddenNetwork) == 0 {
		return n, nil
	}
	if h.sealer == nil {
		return n, errHiddenKey
	}
	text, err := h.sealer.Open(sealName(rec), rec.HiddenNetwork)
	if err != nil {
		return n, errHiddenKey.Because(err)
	}
	var hidden hutch.Network
	err = json.Unmarshal(text, &hidden)
	n.Headers, n.Proxy = hidden.Headers, hidden.Proxy
	return n, err
}

var errHiddenKey = hutch.Errorf(hutch.Denied, "the hidden values of the sandbox's network were encrypted with another key: start the server with the key of that time (--secret-key), or create the sandbox again")

// sealName identifies a sandbox by data that never change. It does not use the key of the record, which changes when
// the sandbox gets an instance of the pool, or the time of creation, which changes when the clock was set back.
func sealName(rec store.Record) string {
	return fmt.Sprintf("network of %q of %q", rec.Sandbox.ID, rec.Sandbox.Owner)
}
