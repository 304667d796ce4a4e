// Package daemon provides the server as a Go value: Open starts its parts one after another, Serve answers requests,
// Close ends the parts in the opposite order. Sandboxes outlive a daemon, and the next daemon with the same data folder
// finds them.
//
// The parts and their order are the list in Daemon.open. A step that begins
// something pushes its end onto the undo stack, so a failed Open leaves nothing
// behind.
//
// A process can have several daemons, each with its own data folder and address: a daemon has no state anywhere else.
package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/ask"
	"hutch/internal/audit"
	"hutch/internal/auth"
	"hutch/internal/authority"
	"hutch/internal/backup"
	"hutch/internal/broker"
	"hutch/internal/build"
	"hutch/internal/compat/e2b"
	"hutch/internal/compat/librechat"
	"hutch/internal/console"
	"hutch/internal/conversation"
	"hutch/internal/driver"
	"hutch/internal/engine"
	"hutch/internal/fleet"
	"hutch/internal/images"
	"hutch/internal/listen"
	"hutch/internal/metrics"
	"hutch/internal/policy"
	"hutch/internal/quota"
	"hutch/internal/secret"
	"hutch/internal/sshkeys"
	"hutch/internal/store"
	"hutch/internal/timeline"
	"hutch/internal/volume"
	"hutch/internal/watchlink"
)

// Daemon is a server whose parts are open.
type Daemon struct {
	cfg Config
	log *slog.Logger
	dir string // the server's own folder in the data folder

	token      string // the local token
	freshToken bool   // this start made the local token

	store          *store.Store
	vault          *secret.Vault
	authority      *authority.Authority
	broker         *broker.Broker
	watched        chan struct{} // closed when the observers are ready
	people         *auth.Issuer  // issuer that identifies people; nil for none
	tokens         *auth.Registry
	requests       *quota.Meter
	operations     *quota.Meter
	runtimes       []driver.Driver
	images         *images.Images
	builder        *build.Builder
	engine         *engine.Engine
	redacted       *secret.RedactedService     // around the engine
	identity       *fleet.Identity             // identity as a node; nil for none
	fleet          *fleet.Fleet                // nil for none
	joined         atomic.Pointer[fleet.Fleet] // same as fleet, for background work that starts before fleet is set
	backups        *backup.Backups
	volumes        *volume.Store
	questions      *ask.Engine
	policy         *policy.Policy
	e2b            *e2b.Server // nil for none
	e2bPorts       *ports      // nil for none
	endE2B         func()      // ends the calls of E2B's services; nil for none
	talks          *conversation.Server
	console        *console.Handler // nil for none
	links          *watchlink.Links
	tls            *tls.Config // nil for none
	audit          *audit.Log
	timeline       *timeline.Timelines
	history        hutch.Histories // nil on a server of conversations
	metrics        *metrics.Metrics
	traffic        *metrics.Traffic
	answers        *metrics.Answers
	observers      audit.Observers
	listener       *listen.Gate
	libreChat      *librechat.Verifier // nil for none
	ragflow        *listen.Gate        // for RAGFlow without a token; nil for none
	sshKeys        *sshkeys.Registry
	sshHost        ssh.Signer   // the server's key
	ssh            *listen.Gate // nil for none
	untrustedProxy sync.Once    // for the log line about an untrusted proxy

	life context.Context // done when the daemon has to end
	end  context.CancelCauseFunc
	undo []func() error // newest last

	storeReady, runtimeReady check
}

// Open starts a daemon: afterwards it listens, and Serve answers. If ctx ends before that, Open returns an error.
func Open(ctx context.Context, cfg Config) (*Daemon, error) {
	d := &Daemon{cfg: cfg.withDefaults()}
	d.vault = secret.Given(cfg.Secrets.Given)
	d.log = d.newLog()
	d.life, d.end = context.WithCancelCause(context.Background())
	d.storeReady = check{every: time.Second, do: d.checkStore}
	d.runtimeReady = check{every: time.Minute, do: d.checkRuntime}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Daemon) open(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"open the data folder", d.openFolder},
		{"read which node this is", d.readIdentity},
		{"open the store", d.openStore},
		{"open the secrets", d.openSecrets},
		{"set up brokering", d.openBroker},
		{"open the audit log", d.openAudit},
		{"open the timelines", d.openTimelines},
		{"read the tokens", d.openTokens},
		{"read what tokens have used", d.openMeters},
		{"read the key of LibreChat", d.openLibreChat},
		{"set up TLS", d.openTLS},
		{"listen", d.listen},
		{"listen for RAGFlow", d.listenRAGFlow},
		{"listen for SSH", d.listenSSH},
		{"look for runtimes", d.findRuntimes},
		{"open the images", d.openImages},
		{"open the volumes", d.openVolumes},
		{"start the engine", d.startEngine},
		{"remove unused images", d.keepImagesSwept},
		{"end broken builds", d.sweepBuilds},
		{"continue the history of use", d.openHistory},
		{"open the metrics and traces", d.openMonitors},
		{"join the fleet", d.openFleet},
		{"open the backups", d.openBackups},
		{"open the questions", d.openQuestions},
		{"read what is shared", d.openPolicy},
		{"open E2B's API", d.openE2B},
		{"open the conversations", d.openConversations},
		{"open the console", d.openConsole},
		{"read the links to terminals", d.openLinks},
		{"compile ahead", d.warmCompilers},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

var errClosed = errors.New("the daemon is closed")

// Close ends the parts that Open started, the last one first, once Serve has returned. It waits for background work.
func (d *Daemon) Close() error {
	d.end(errClosed)
	var errs []error
	for len(d.undo) > 0 {
		last := len(d.undo) - 1
		errs = append(errs, d.undo[last]())
		d.undo = d.undo[:last]
	}
	return errors.Join(errs...)
}

// onClose puts do on the undo stack. do ends what a step of Open has begun.
func (d *Daemon) onClose(do func() error) { d.undo = append(d.undo, do) }

// runs runs background work until Close.
func (d *Daemon) runs(do func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { do(ctx) })
	d.onClose(func() error { cancel(); wg.Wait(); return nil })
}

// Token returns the local token, and whether this start made it.
func (d *Daemon) Token() (token string, fresh bool) { return d.token, d.freshToken }

// Log returns the daemon's log.
func (d *Daemon) Log() *slog.Logger { return d.log }

// Runtimes returns the names of the runtimes, the default one first.
func (d *Daemon) Runtimes() []string {
	names := make([]string, len(d.runtimes))
	for i, r := range d.runtimes {
		names[i] = r.Name()
	}
	return names
}
