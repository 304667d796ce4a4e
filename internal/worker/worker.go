// Package worker runs the tools of hosted agents in our sandboxes. It is a self-hosted environment of Claude Managed
// Agents: Anthropic runs the agent, and this worker runs its tools.
//
// The worker connects to the API. It claims work items from the queue of an environment; each item names a session. It
// keeps the lease of the item alive, follows the events of the session, runs each call of a tool, and posts the result.
// Anthropic's SDK does all that. Two ideas are ours:
//
//   - A session is a sandbox. Its id is computed from the environment and the session, so every worker that gets the
//     session finds the same sandbox again, with its files and its shell. Between turns the sandbox hibernates. The six
//     tools are calls of [hutch.Service]; no program of the sandbox sees the key of the environment.
//   - A call is answered by the worker that has the lease, or not at all. When the worker stops, or loses a lease, it
//     posts nothing for a call that it did not finish. The call stays open, and the next worker runs it.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/lib/environments"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"hutch"
	"hutch/internal/delay"
)

// Options configure [Run].
type Options struct {
	// Environment is the id of the self-hosted environment, and Key its key. The key is sent only to the API.
	Environment, Key string
	// URL is the base URL of the API; "" is Anthropic's.
	URL string
	// Name is the API's name for this worker; default: the name of the host and a random number.
	Name string
	// Sessions is the highest number of sessions at once; default 4.
	Sessions int
	// Sandbox describes a session's sandbox. ID and Labels are set by the worker.
	Sandbox hutch.CreateRequest
	// Idle is how long a session counts towards the limit after its turn has ended; default one minute.
	Idle time.Duration
	// Drain is how long running calls can continue after the worker was told to stop; default one minute.
	Drain time.Duration
	// Outputs is a folder of this machine that gets the files of [OutputsDir], in a folder for each session; "" leaves
	// them in the sandbox.
	Outputs string
	// HTTP makes the calls of the API; nil uses the default.
	HTTP *http.Client
	Log  *slog.Logger
}

const (
	defaultSessions = 4
	defaultIdle     = time.Minute
	defaultDrain    = time.Minute
	// reclaimAfter is the age at which claimed work goes to another worker, if no worker has acknowledged it.
	reclaimAfter = 30 * time.Second
)

// worker has the state of one call of [Run].
type worker struct {
	Options
	svc    hutch.Service
	client anthropic.Client
	calls  *gate
}

// Run serves the sessions of an environment until ctx is done. Then it claims no more work, lets running calls finish
// for the time Drain, and returns its sessions: the API gives them to another worker, or to the next one. The error is
// NotFound for an environment that does not exist, and Denied for a refused key.
func Run(ctx context.Context, svc hutch.Service, opt Options) error {
	w := &worker{Options: opt.withDefaults(), svc: svc, calls: newGate()}
	if err := w.check(); err != nil {
		return err
	}
	w.client = anthropic.NewClient(w.clientOptions()...)
	claiming, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	serving, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var wg sync.WaitGroup
	for slot := range w.Sessions {
		wg.Go(func() {
			if err := w.serveSlot(claiming, serving, slot); err != nil {
				stop(err)
			}
		})
	}
	<-claiming.Done()
	w.calls.close(w.Drain)
	cut()
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return w.refused(context.Cause(claiming))
}

func (o Options) withDefaults() Options {
	host, _ := os.Hostname()
	o.Name = cmp.Or(o.Name, host+"-"+hutch.NewID("hutch"))
	o.Sessions = cmp.Or(o.Sessions, defaultSessions)
	o.Idle = cmp.Or(o.Idle, defaultIdle)
	o.Drain = cmp.Or(o.Drain, defaultDrain)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

func (w *worker) check() error {
	switch {
	case w.Environment == "":
		return hutch.Errorf(hutch.Invalid, "the environment is missing: give the id of a self-hosted environment, such as env_01ABC")
	case w.Key == "":
		return hutch.Errorf(hutch.Invalid, "the key of the environment is missing: make one for the environment in Anthropic's console")
	case w.Sessions < 0 || w.Idle < 0 || w.Drain < 0:
		return hutch.Errorf(hutch.Invalid, "sessions, idle and drain may not be negative")
	}
	return w.Sandbox.Check()
}

// clientOptions returns the options of the SDK's client: it reads nothing from the environment of the process, which
// can have another key.
func (w *worker) clientOptions() []option.RequestOption {
	list := []option.RequestOption{option.WithoutEnvironmentDefaults(), option.WithAuthToken(w.Key), option.WithMiddleware(boundAnswer)}
	if w.URL != "" {
		list = append(list, option.WithBaseURL(w.URL))
	}
	if w.HTTP != nil {
		list = append(list, option.WithHTTPClient(w.HTTP))
	}
	return list
}

// serveSlot serves one session after another. It claims work until the context claiming is done, and serves sessions
// until the context serving is done.
func (w *worker) serveSlot(claiming, serving context.Context, slot int) error {
	poller := environments.NewWorkPoller(claiming, w.client, environments.WorkPollerOptions{
		EnvironmentID: w.Environment, EnvironmentKey: w.Key, WorkerID: fmt.Sprintf("%s-%d", w.Name, slot),
		ReclaimOlderThanMs: param.NewOpt(reclaimAfter.Milliseconds()), Logger: w.Log,
		AutoStop: param.NewOpt(false), // HandleItem stops the item
	})
	defer poller.Close()
	failures := 0
	for poller.Next() {
		if err := w.serveItem(serving, poller.Current()); err == nil {
			failures = 0
			continue
		}
		failures++
		pause(claiming, failures) // the API can give out the same session at once
	}
	return poller.Err()
}

// pause waits after a number of failures in a row.
func pause(ctx context.Context, failures int) {
	const longest = time.Minute
	delay.Wait(ctx, min(time.Second<<min(failures, 10), longest))
}

// serveItem serves one work item: a session, until it ends, is idle, or is taken away.
func (w *worker) serveItem(ctx context.Context, work *anthropic.BetaSelfHostedWork) error {
	log := w.Log.With("session", work.Data.ID, "work", work.ID)
	if kind := string(work.Data.Type); kind != "session" { // the queue has health checks, too, which only have to be ended
		log.Debug("no session", "type", kind)
		return w.stopItem(ctx, work)
	}
	s, err := w.newSession(work.Data.ID)
	if err != nil {
		log.Error("serve a session", "err", err)
		return err // its lease ends, and another worker gets it
	}
	defer s.end()
	runner := environments.NewEnvironmentWorker(w.client, environments.EnvironmentWorkerOptions{
		EnvironmentID: w.Environment, EnvironmentKey: w.Key, WorkerID: w.Name, Workdir: s.downloads,
		ToolsFunc: s.tools, MaxIdle: &w.Idle, Logger: w.Log,
		RequestOptions: []option.RequestOption{option.WithMiddleware(s.withhold, s.boundSkills)},
	})
	log.Info("session begins", "sandbox", s.sandbox)
	err = runner.HandleItem(ctx, environments.HandleItemOptions{WorkID: work.ID, EnvironmentID: work.EnvironmentID, SessionID: work.Data.ID, EnvironmentKey: w.Key})
	if err != nil && ctx.Err() == nil {
		log.Warn("session broke off", "err", err)
	}
	log.Info("session handed back", "sandbox", s.sandbox)
	w.after(s, log)
	return err
}

// stopItem ends a work item that is not a session.
func (w *worker) stopItem(ctx context.Context, work *anthropic.BetaSelfHostedWork) error {
	ctx, cancel := context.WithTimeout(ctx, overTime)
	defer cancel()
	var answer *http.Response // the response has no body, and the SDK cannot decode an empty one
	_, err := w.client.Beta.Environments.Work.Stop(ctx, work.ID, anthropic.BetaEnvironmentWorkStopParams{
		EnvironmentID: work.EnvironmentID, BetaSelfHostedWorkStopRequest: anthropic.BetaSelfHostedWorkStopRequestParam{Force: param.NewOpt(true)},
	}, option.WithResponseBodyInto(&answer))
	if answer != nil {
		answer.Body.Close()
	}
	return err
}

// afterTime limits the work after an item has ended, and overTime the question whether its session has ended.
const (
	afterTime = 2 * time.Minute
	overTime  = 10 * time.Second
)

// after collects the files of a session's outputs folder, and destroys the sandbox of a session that has ended.
func (w *worker) after(s *session, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), afterTime)
	defer cancel()
	over := w.over(ctx, s.id)
	collected := s.collect(ctx, w.Outputs, over)
	if collected != nil {
		log.Warn("collect the outputs", "err", collected)
	}
	switch {
	case !over:
		s.hibernate(ctx, log)
		return
	case collected != nil:
		log.Warn("the session has ended, and its sandbox stays for its outputs: copy them with hutch cp, and remove it with hutch rm", "sandbox", s.sandbox)
		return
	}
	if _, err := w.svc.Destroy(ctx, s.sandbox, true); err != nil && !errors.Is(err, hutch.NotFound) {
		log.Warn("destroy the sandbox of a session that has ended", "sandbox", s.sandbox, "err", err)
		return
	}
	log.Info("session has ended", "sandbox", s.sandbox)
}

// over reports whether a session has ended. When the API does not say so, the session may continue.
func (w *worker) over(ctx context.Context, session string) bool {
	ctx, cancel := context.WithTimeout(ctx, overTime)
	defer cancel()
	got, err := w.client.Beta.Sessions.Get(ctx, session, anthropic.BetaSessionGetParams{})
	if answer, ok := errors.AsType[*anthropic.Error](err); ok {
		return answer.StatusCode == http.StatusNotFound
	}
	return err == nil && (got.Status == anthropic.BetaManagedAgentsSessionStatusTerminated || !got.ArchivedAt.IsZero())
}

// refused returns an error of the API that ends the worker, with a message that says what to do.
func (w *worker) refused(err error) error {
	answer, ok := errors.AsType[*anthropic.Error](err)
	if !ok {
		return err
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return hutch.Errorf(hutch.Denied, "the API refused the key of the environment %s (HTTP %d): make a new key for this environment in Anthropic's console, and set ANTHROPIC_ENVIRONMENT_KEY", w.Environment, answer.StatusCode).Because(err)
	case http.StatusNotFound:
		return hutch.Errorf(hutch.NotFound, "the API knows no environment %s: check its id, and that it is a self-hosted one", w.Environment).Because(err)
	}
	return hutch.Errorf(hutch.Unavailable, "the API refused to give work of the environment %s (HTTP %d)", w.Environment, answer.StatusCode).Because(err)
}
