package daemon

import (
	"net/http"
	"strings"

	"hutch/internal/compat/bridge"
	"hutch/internal/compat/e2b"
	"hutch/internal/compat/execute"
	"hutch/internal/compat/judge0"
	"hutch/internal/compat/piston"
	"hutch/internal/compat/swerex"
	"hutch/internal/guard"
)

// foreignAPI is the API of another product, translated to calls of policy. Its clients send Hutch's tokens in the
// places that this API has for its own: see package credential.
type foreignAPI struct {
	paths   []string // patterns of http.ServeMux
	handler http.Handler
	// refuse writes the guard's refusals in the error format of this API; nil means Hutch's own format.
	refuse guard.Refusal
	// uploads reports requests whose body can have any size; nil means none.
	uploads func(*http.Request) bool
	// close ends the open calls; nil if they end with their requests.
	close func()
}

// foreignAPIs returns the APIs of other products that this server answers.
func (d *Daemon) foreignAPIs() []foreignAPI {
	if d.cfg.Conversations.Only {
		return nil
	}
	cf := bridge.NewHandler(d.policy, bridge.Options{Volumes: d.policy, Pools: d.policy, MaxTimeout: d.cfg.Sandboxes.MaxTimeout, Log: d.log})
	swe := swerex.NewHandler(d.policy, swerex.Options{MaxTimeout: d.cfg.Sandboxes.MaxTimeout, Log: d.log})
	pi := piston.NewHandler(d.policy, piston.Options{MaxTimeout: d.cfg.Sandboxes.MaxTimeout, Log: d.log})
	ex := execute.NewHandler(d.policy, execute.Options{Log: d.log})
	judge := judge0.NewHandler(d.policy, judge0.Options{Accounts: d.policy, MaxTimeout: d.cfg.Sandboxes.MaxTimeout, Log: d.log})
	return append(d.chats(), []foreignAPI{
		{paths: []string{execute.Path}, handler: ex, refuse: execute.Refuse, close: ex.Close},
		{paths: []string{e2b.Prefix}, handler: http.StripPrefix(strings.TrimSuffix(e2b.Prefix, "/"), d.e2b), refuse: e2b.Refuse},
		{paths: bridge.Paths, handler: cf, refuse: bridge.Refuse, uploads: bridge.Uploads, close: cf.Close},
		{paths: []string{bridge.Prefix + "/"}, handler: http.StripPrefix(bridge.Prefix, cf), refuse: bridge.Refuse},
		{paths: []string{"/swerex/"}, handler: swe, refuse: swerex.Refuse, uploads: swerex.Uploads, close: swe.Close},
		{paths: []string{"/piston/"}, handler: pi, refuse: piston.Refuse, close: pi.Close},
		{paths: []string{"/judge0/"}, handler: judge, refuse: judge0.Refuse, close: judge.Close},
	}...)
}

// foreignRoutes adds the routes of foreign APIs to mux, and returns a function that finds the error format for a
// request; a nil format is Hutch's own.
func foreignRoutes(mux *http.ServeMux, list []foreignAPI) func(*http.Request) guard.Refusal {
	shapes := map[string]guard.Refusal{}
	for _, f := range list {
		for _, path := range f.paths {
			mux.Handle(path, f.handler)
			shapes[path] = f.refuse
		}
	}
	return func(r *http.Request) guard.Refusal {
		if e2b.Ours(r) {
			return e2b.Refuse
		}
		_, pattern := mux.Handler(r)
		return shapes[pattern]
	}
}
