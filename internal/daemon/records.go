package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/datadir"
	restore "hutch/internal/installation"
	"hutch/internal/policy"
	"hutch/internal/quota"
	"hutch/internal/secret"
)

func (d *Daemon) openFolder(context.Context) (err error) {
	if d.cfg.Data == "" {
		return hutch.Errorf(hutch.Invalid, "a daemon needs a data folder")
	}
	if err := restore.Finish(d.cfg.Data); err != nil {
		return err
	}
	name := datadir.Server
	if d.cfg.Conversations.Only {
		name = datadir.Conversation // the conversations are in a folder of their own
	}
	if d.dir, err = d.cfg.Data.Make(name); err != nil {
		return err
	}
	f, free, err := datadir.LockPatiently(d.dir)
	if err != nil {
		return err
	}
	if !free {
		return hutch.Errorf(hutch.Conflict, "another server uses the data folder %s: end it, or choose another folder with --data", d.cfg.Data)
	}
	d.onClose(f.Close)
	if d.token = d.cfg.Token; d.token == "" {
		d.token, d.freshToken, err = d.cfg.Data.Secret("token", auth.NewSecret)
	}
	return err
}

func (d *Daemon) openSecrets(ctx context.Context) (err error) {
	var v *secret.Vault
	if d.store.Shared() {
		v, err = secret.OpenShared(ctx, d.store.Collection(secretsCollection), d.cfg.Secrets.Given)
	} else {
		v, err = openVault(d.dir, d.cfg.Secrets)
	}
	if err == nil {
		d.vault = v
	}
	return err
}

// redactor returns a redactor for the log. It redacts the secrets of all owners, because the log has calls of all of
// them.
func (d *Daemon) redactor() *secret.Redactor { return d.vault.All() }

func (d *Daemon) openTokens(ctx context.Context) (err error) {
	if d.cfg.Issuer != (auth.IssuerOptions{}) {
		if d.people, err = auth.NewIssuer(d.cfg.Issuer); err != nil {
			return err
		}
	}
	d.tokens, err = auth.Open(ctx, auth.Options{
		Collection: d.store.Collection("tokens"), Local: d.token, LocalLimits: d.cfg.Limits, LocalFree: d.isPersonal(), Defaults: d.cfg.Limits, Issuer: d.people, Log: d.log,
	})
	return err
}

// isPersonal reports whether the local token belongs to one person on their own machine. The token then has no limits.
func (d *Daemon) isPersonal() bool { return d.cfg.Token == "" && OnLoopback(d.cfg.Listen) }

func (d *Daemon) openMeters(ctx context.Context) (err error) {
	meter := func(unit, limit string, window time.Duration) *quota.Meter {
		m, failed := quota.Open(ctx, quota.Options{Collection: d.store.Collection(limit), Window: window, What: unit, Limit: limit})
		if err = errors.Join(err, failed); failed == nil {
			d.onClose(func() error { return m.Close(context.Background()) })
		}
		return m
	}
	d.requests = meter("requests of a minute", "requestsPerMinute", time.Minute)
	d.operations = meter("operations of an hour", "operationsPerHour", time.Hour)
	return err
}

// mayListen refuses to listen on a network as long as no token has been set or created: opening the server to others must
// be a choice.
func (d *Daemon) mayListen(ctx context.Context) error {
	if d.cfg.Token != "" || OnLoopback(d.cfg.Listen) {
		return nil
	}
	list, err := d.tokens.Tokens(ctx)
	if err != nil || slices.ContainsFunc(list, func(t hutch.Token) bool { return t.Live(time.Now()) }) {
		return err
	}
	return hutch.Errorf(hutch.Denied, "%s can be reached from other machines, and no token was set: set SANDBOX_AUTH_TOKEN, or create a token with `hutch token create`, or listen on 127.0.0.1", d.cfg.Listen)
}

func (d *Daemon) openPolicy(ctx context.Context) (err error) {
	all := d.everywhere()
	nodes, err := d.nodes()
	if err != nil {
		return err
	}
	d.policy, err = policy.New(ctx, all.service, policy.Options{
		Network: d.cfg.Sandboxes.Network, Tokens: d.tokens, Secrets: d.vault, Backups: d.backups, Images: all.images,
		Volumes: all.volumes, Accounts: all.accounts, Owners: d.ownerVerbs(), Nodes: nodes, SSH: d.sshKeys,
		Pools: d.engine, Checkpoints: d.engine, Examiner: d.newExaminer(), Questions: d.questions, Audit: d.audit,
		Observer: d.observers, Operations: d.operations, Grants: d.store.Collection("grants"),
		Redact: func(text string) string { return d.redactor().String(text) }, Timelines: all.timelines, Histories: all.histories, Record: all.record, Log: d.log,
	})
	return err
}
