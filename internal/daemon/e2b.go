package daemon

import (
	"context"
	"net/http"
	"strings"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/compat/e2b"
	"hutch/internal/compat/e2b/envd"
	"hutch/internal/compat/e2b/interpreter"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/preview"
)

// e2bSecret is the file with the secret from which the keys of E2B's sandboxes are made.
const e2bSecret = "e2b-secret"

// openE2B opens the API of E2B.
func (d *Daemon) openE2B(ctx context.Context) error {
	if d.cfg.Conversations.Only {
		return nil
	}
	var secret string
	err := d.share(ctx, d.cfg.Data.Path(e2bSecret), func(string) (err error) { // shared, because all nodes of a fleet serve the same sandboxes
		secret, _, err = d.cfg.Data.Secret(e2bSecret, auth.NewSecret)
		return err
	})
	if err != nil {
		return err
	}
	uploads, err := d.cfg.Data.Make("e2b-uploads")
	if err != nil {
		return err
	}
	opt := e2b.Options{
		Uploads: uploads, MaxTimeout: d.cfg.Sandboxes.MaxTimeout,
		Service: d.policy, Images: d.policy, Accounts: d.policy, Timelines: d.policy, Volumes: d.policy, Secrets: d.policy, Histories: d.everywhere().histories, Records: d.everywhere().service.Sandboxes, Principal: d.tokens.Holder, Secret: []byte(secret),
		Domain: strings.ToLower(d.cfg.E2B), Log: d.log, Services: d.e2bServices(),
	}
	if opt.Domain != "" {
		d.e2bPorts = &ports{}
		opt.Ports = d.e2bPorts
	}
	d.e2b = e2b.New(opt)
	if opt.Domain != "" {
		d.e2bPorts.Handler = d.portsOf(opt.Domain)
	}
	return nil
}

// e2bServices returns the services of E2B that this server itself implements, at fixed ports of E2B's sandboxes.
func (d *Daemon) e2bServices() seam.Handlers {
	inside := envd.New(envd.Options{Log: d.log})
	code := interpreter.New(interpreter.Options{Log: d.log, Timeout: d.cfg.Sandboxes.MaxTimeout})
	d.endE2B = func() { d.e2b.Close(); inside.Close(); code.Close() }
	return seam.Handlers{Envd: inside, Interpreter: code}
}

// ports shows the servers inside E2B's sandboxes as previews.
type ports struct{ *preview.Handler }

// e2bSandboxes finds the port for a host name by E2B's rule, and dials it as previews do.
type e2bSandboxes struct {
	preview.Sandboxes
	labels *e2b.Server
}

func (s e2bSandboxes) Preview(label string) (hutch.Preview, error) { return s.labels.Preview(label) }

func (d *Daemon) portsOf(domain string) *preview.Handler {
	opt := d.previewOptions()
	opt.Sandboxes, opt.Domain, opt.Login = e2bSandboxes{d.everywhere().ports, d.e2b}, domain, ""
	return preview.New(http.NotFoundHandler(), opt)
}

// front leads requests of E2B's clients to guarded, and all others to next.
func (d *Daemon) front(guarded, next http.Handler) http.Handler {
	if d.e2b == nil {
		return next
	}
	return d.e2b.Front(guarded, next)
}
