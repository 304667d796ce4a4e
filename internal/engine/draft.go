package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strconv"
	"time"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/caller"
	"hutch/internal/ceiling"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/instance"
	"hutch/internal/snapshots"
	"hutch/internal/store"
)

// drafter turns requests into the records of new sandboxes. It only makes records; it starts nothing.
type drafter struct {
	opt     Options
	drivers *instance.Maker
	secrets secretUses
	hidden  hiddenNetworks
	volumes *volumes
	table   *table
}

// draft turns a request into the record of a new sandbox, and returns its driver.
func (dr drafter) draft(ctx context.Context, req hutch.CreateRequest) (store.Record, driver.Driver, error) {
	if req.NormalizeID {
		req.ID = hutch.NormalizeID(req.ID)
	}
	if req.ID == "" {
		req.ID = hutch.NewID("sb")
	}
	if err := cmp.Or(req.Check(), dr.checkLimits(req.Limits)); err != nil {
		return store.Record{}, nil, err
	}
	d, err := dr.drivers.Driver(req.Runtime)
	if err != nil {
		return store.Record{}, nil, err
	}
	network, err := dr.requestedNetwork(ctx, req.Network)
	if err != nil {
		return store.Record{}, nil, err
	}
	owner, _ := caller.OwnerOf(ctx)
	v := dr.draftSandbox(nameOf(ctx, req.ID), req, d)
	rec := store.Record{Sandbox: v, Key: v.ID, Env: dr.environmentOf(v.ID, req.Env), Secrets: req.Secrets, Token: rand.Text(), Most: owner.MaxSandboxes}
	if err := cmp.Or(dr.secrets.check(&rec), dr.volumes.check(v.Owner, v.Volumes)); err != nil {
		return store.Record{}, nil, err
	}
	if v.Owner != "" { // another owner can have a sandbox with this id
		rec.Key = hutch.NewID("o")
	}
	return rec, d, dr.hidden.keep(&rec, network)
}

// requestedNetwork returns the complete network of a new sandbox, whose links the caller can all use.
func (dr drafter) requestedNetwork(ctx context.Context, n hutch.Network) (hutch.Network, error) {
	network, err := dr.networkFor(ctx, n)
	if err == nil {
		network, err = network.Completed(hutch.Network{})
	}
	if err == nil {
		err = dr.checkLinks(ctx, network.Links)
	}
	return network, err
}

// draftSandbox returns a sandbox that is being created now. The engine and the driver supply what the request leaves
// out.
func (dr drafter) draftSandbox(name box.Name, req hutch.CreateRequest, d driver.Driver) hutch.Sandbox {
	now := time.Now()
	v := hutch.Sandbox{
		ID: name.ID, Owner: name.Owner, Status: hutch.Creating, Image: req.Image, User: req.User, Runtime: d.Name(), InstanceType: req.InstanceType,
		CreatedAt: now.UTC(), LastUsedAt: now, KeepAlive: req.KeepAlive,
		SleepAfter: req.SleepAfter, OnIdle: req.OnIdle,
		Limits: fillLimits(req.Limits, dr.opt.MaxLimits, d.Defaults()), Labels: req.Labels, Volumes: req.Volumes,
		NodeSelector: req.NodeSelector, Tolerations: req.Tolerations,
	}
	if v.Image == "" {
		v.Image = image.HostName
	}
	if v.SleepAfter == 0 {
		v.SleepAfter = hutch.InSeconds(dr.opt.SleepAfter)
	}
	if v.OnIdle == "" {
		v.OnIdle = hutch.IdleHibernate
	}
	if req.Timeout > 0 {
		end := now.Add(req.Timeout.Duration())
		v.ExpiresAt = &end
	}
	return v
}

// environmentOf returns the variables of a sandbox's programs.
func (dr drafter) environmentOf(id string, requested map[string]string) map[string]string {
	env := map[string]string{}
	maps.Copy(env, dr.opt.Env)
	maps.Copy(env, requested)
	env["SANDBOX_ID"] = id
	env["SANDBOX_TIMEOUT"] = strconv.FormatFloat(dr.opt.ExecTimeout.Seconds(), 'f', -1, 64)
	return env
}

// draftFrom makes the record of a sandbox that starts from a snapshot, which callers see as shown. Settings that cannot
// differ from those of the snapshot are taken from the snapshot.
func (dr drafter) draftFrom(ctx context.Context, snap *snapshots.Snapshot, shown hutch.Snapshot, req hutch.CreateRequest) (store.Record, driver.Driver, error) {
	v, was := snap.Snapshot, snap.Record
	if req.Image != "" && req.Image != v.Image || req.User != "" && req.User != was.Sandbox.User || req.Runtime != "" && req.Runtime != v.Runtime && v.Memory && !req.FilesOnly || req.Limits != (hutch.Limits{}) && req.Limits != v.Limits || req.InstanceType != "" && req.InstanceType != was.Sandbox.InstanceType {
		return store.Record{}, nil, hutch.Errorf(hutch.Invalid, "image, user, runtime, limits and instance type of a sandbox that begins as a snapshot are the snapshot's: leave them out")
	}
	req.Image, req.User, req.Limits, req.InstanceType = v.Image, was.Sandbox.User, v.Limits, was.Sandbox.InstanceType
	if req.Runtime == "" {
		req.Runtime = v.Runtime
	}
	env := maps.Clone(was.Env)
	maps.Copy(env, req.Env)
	req.Env = env
	if v.Owner == nameOf(ctx, "").Owner { // another owner's snapshot brings neither its secrets nor its network
		req.Secrets = append(slices.Clone(was.Secrets), req.Secrets...)
		req.Network = dr.inherited(ctx, req.Network, was.Sandbox.Network)
	}
	t := v.Template
	if t != nil {
		req.Labels = merged(t.Labels, req.Labels)
		req.Volumes = t.WithVolumes(req.Volumes)
	}
	rec, d, err := dr.draft(ctx, req)
	rec.Sandbox.FilesOnly = req.FilesOnly || !v.Memory
	if rec.Sandbox.Parent = v.SandboxID; req.Snapshot != "" || req.Template != "" { // a fork's snapshot is not kept
		rec.Sandbox.Snapshot = v.ID
	}
	if rec.Sandbox.Template, rec.Template = was.Sandbox.Template, was.Template; t != nil {
		rec.Sandbox.Template, rec.Template = askedName(shown, cmp.Or(req.Template, req.Snapshot)), v.ID
	}
	return rec, d, err
}

// askedName returns the name with which a caller requested a snapshot, or its oldest name if the caller gave the id.
func askedName(v hutch.Snapshot, asked string) string {
	if v.HasName(asked) {
		return hutch.TemplateName(asked)
	}
	return v.Name
}

// merged returns the entries of a and b; those of b win.
func merged(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// networkFor returns the network of a sandbox whose creator requests n.
func (dr drafter) networkFor(ctx context.Context, n hutch.Network) (hutch.Network, error) {
	owner, _ := caller.OwnerOf(ctx)
	return ceiling.Give(owner.Network, n, dr.opt.Network)
}

// checkLinks refuses links to sandboxes that the caller does not have. What the caller has can change, so each use of a
// link checks it again.
func (dr drafter) checkLinks(ctx context.Context, links hutch.NetworkLinks) error {
	for _, l := range links {
		if _, err := dr.table.find(ctx, l.Sandbox); err != nil {
			return err
		}
	}
	return nil
}

// inherited returns the network of a copy: the network of the request or, if it has none, the network of the original,
// without links to sandboxes that no longer exist.
func (dr drafter) inherited(ctx context.Context, asked, first hutch.Network) hutch.Network {
	n := ceiling.Fill(asked, first)
	if len(n.Links) == 0 {
		n.Links = slices.DeleteFunc(slices.Clone(first.Links), func(l hutch.NetworkLink) bool { return dr.checkLinks(ctx, hutch.NetworkLinks{l}) != nil })
	}
	return n
}
