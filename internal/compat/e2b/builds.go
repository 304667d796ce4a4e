package e2b

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/recipe"
)

// Builds of templates. A client requests a build, uploads files, starts the build, and then polls its state. A build is
// only in memory until it has ended: after a restart of the server, the client must request it again. Its result is one
// template of Hutch for each tag, NAME:TAG, with the id of the build in a label.

// labelBuild is a label of the template, and so of its sandboxes: the id of the build that made it.
const labelBuild = labelPrefix + "build"

// defaultTag is E2B's tag of a template without a tag. Hutch calls this tag latest.
const defaultTag = "default"

const (
	maxBuilds   = 20               // most builds of one owner that are remembered
	buildsKept  = time.Hour        // how long a build is remembered after its request, or after its end
	waitingLong = 10 * time.Minute // after this time, a build that was never started can be dropped for others
	maxBuildLog = 512 << 10        // bytes of one build's messages
	maxMessage  = 4 << 10          // bytes of one message
	logPage     = 100              // messages in one answer
	maxTags     = 20               // most tags of one build
)

// The states of a build.
const (
	buildWaiting = "waiting" // not started yet
	buildRunning = "building"
	buildReady   = "ready"
	buildFailed  = "error"
)

// build is one build of a template.
type build struct {
	owner, id, template string
	tags                []string
	limits              hutch.Limits

	mu     sync.Mutex
	state  string
	since  time.Time // time of the state
	logs   []buildLog
	size   int // size of logs
	reason *buildReason
}

type buildLog struct {
	Timestamp time.Time `json:"timestamp"`
	Message   string    `json:"message"`
	Level     string    `json:"level"`
	Step      string    `json:"step,omitempty"`
}

type buildReason struct {
	Message string     `json:"message"`
	Step    string     `json:"step,omitempty"`
	Entries []buildLog `json:"logEntries"`
}

// say adds a message. Messages over the limit are left out, and one message reports that.
func (b *build) say(level, step, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text = strings.ToValidUTF8(text[:min(len(text), maxMessage)], "")
	switch before := b.size; {
	case before > maxBuildLog:
		return
	case before+len(text) > maxBuildLog:
		level, text = "warn", "the build has said too much: what follows is not kept"
		b.size = maxBuildLog
	}
	b.size += len(text) + 100 // for the fields around it
	b.logs = append(b.logs, buildLog{time.Now().UTC(), text, level, step})
}

// move sets the state, if the present state is the expected one.
func (b *build) move(from, to string, reason *buildReason) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != from {
		return false
	}
	b.state, b.since, b.reason = to, time.Now(), reason
	return true
}

// old reports whether the build need not be remembered any more.
func (b *build) old(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state != buildRunning && now.Sub(b.since) > buildsKept
}

// idle reports whether the build was requested long ago, and never started: a client that fails before the start leaves
// such a build.
func (b *build) idle(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == buildWaiting && now.Sub(b.since) > waitingLong
}

func (b *build) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == buildReady || b.state == buildFailed
}

// builds are the builds of all owners.
type builds struct {
	mu      sync.Mutex
	all     []*build // oldest first
	work    sync.WaitGroup
	closing bool
}

// add remembers a build. It drops the owner's older builds that have ended, or that were never started.
func (b *builds) add(made *build) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.all = slices.DeleteFunc(b.all, func(x *build) bool { return x.old(now) })
	mine := func(x *build) bool { return x.owner == made.owner }
	for n := len(slices.Collect(filter(b.all, mine))); n >= maxBuilds; n-- {
		i := slices.IndexFunc(b.all, func(x *build) bool { return mine(x) && x.ended() })
		if i < 0 {
			i = slices.IndexFunc(b.all, func(x *build) bool { return mine(x) && x.idle(now) })
		}
		if i < 0 {
			return hutch.Errorf(hutch.Exhausted, "there are %d builds of templates that have not ended, which is the most: wait for some", maxBuilds).With("limit", "builds")
		}
		b.all = slices.Delete(b.all, i, i+1)
	}
	b.all = append(b.all, made)
	return nil
}

func filter[T any](all []T, keep func(T) bool) func(func(T) bool) {
	return func(yield func(T) bool) {
		for _, x := range all {
			if keep(x) && !yield(x) {
				return
			}
		}
	}
}

// find returns a build of an owner. For an empty id, it returns any build of the template that waits for its start.
func (b *builds) find(owner, template, id string) (*build, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.all {
		if x.owner == owner && x.template == template && (x.id == id || id == "" && !x.ended()) {
			return x, true
		}
	}
	return nil, false
}

// run does something in the background, unless the server is closing.
func (b *builds) run(do func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return false
	}
	b.work.Go(do)
	return true
}

// Close ends the running builds, and waits for them.
func (s *Server) Close() {
	s.builds.mu.Lock()
	s.builds.closing = true
	s.builds.mu.Unlock()
	s.end()
	s.builds.work.Wait()
	s.uploads.clear()
}

// templateName returns Hutch's name for a tag of a template.
func templateName(template, tag string) string {
	if tag == defaultTag || tag == "latest" {
		return template
	}
	return template + ":" + tag
}

// asked is the body of a request for a build.
type asked struct {
	Name   string   `json:"name"`
	Alias  string   `json:"alias"` // the name's field in older clients
	Tags   []string `json:"tags"`
	CPU    float64  `json:"cpuCount"`
	Memory int64    `json:"memoryMB"`
	Disk   *int     `json:"minFreeDiskMb"`
}

// translate checks a request, and returns the build.
func (a asked) translate(owner string) (*build, error) {
	name, tag, tagged := strings.Cut(cmp.Or(a.Name, a.Alias), ":")
	tags := a.Tags
	if tagged {
		tags = append([]string{tag}, tags...)
	}
	if len(tags) == 0 {
		tags = []string{defaultTag}
	}
	if err := checkTags(name, tags); err != nil {
		return nil, err
	}
	disk, err := a.disk()
	if err != nil {
		return nil, err
	}
	return &build{
		owner: owner, id: newBuildID(), template: name, tags: tags, state: buildWaiting, since: time.Now(),
		limits: hutch.Limits{CPU: a.CPU, Memory: int(a.Memory), Disk: disk},
	}, nil
}

// disk returns the disk limit of the template's sandboxes: how much they can write, because the files of an image do not
// count. 0 asks for no minimum, like a missing field.
func (a asked) disk() (int, error) {
	if a.Disk == nil {
		return 0, nil
	}
	if *a.Disk < 0 {
		return 0, hutch.Errorf(hutch.Invalid, "minFreeDiskMb is %d: give MiB, from 0 up", *a.Disk).Naming(hutch.AboutField, "minFreeDiskMb")
	}
	return *a.Disk, nil
}

func checkTags(template string, tags []string) error {
	if len(tags) == 0 || len(tags) > maxTags {
		return hutch.Errorf(hutch.Invalid, "there are %d tags: give 1 to %d", len(tags), maxTags).Naming(hutch.AboutField, "tags")
	}
	if err := hutch.CheckID(template); err != nil {
		return hutch.Errorf(hutch.Invalid, "%.100q is not a name of a template: %v", template, err).Naming(hutch.AboutField, "name")
	}
	for _, tag := range tags {
		if err := hutch.CheckTemplateName(template + ":" + tag); err != nil {
			return hutch.Errorf(hutch.Invalid, "%.100q is not a tag of a template: %v", tag, err).Naming(hutch.AboutField, "tags")
		}
	}
	return nil
}

// newBuildID returns a random UUID, as E2B's are.
func newBuildID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

type requested struct {
	TemplateID string   `json:"templateID"`
	BuildID    string   `json:"buildID"`
	Public     bool     `json:"public"`
	Names      []string `json:"names"`
	Aliases    []string `json:"aliases"`
	Tags       []string `json:"tags"`
}

// requestBuild remembers a build, without starting it. The id of a template is its name.
func (s *Server) requestBuild(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req asked
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	who, err := s.builder(r.Context())
	if err != nil {
		return 0, nil, err
	}
	b, err := req.translate(who.Owner)
	if err == nil {
		err = s.builds.add(b)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusAccepted, requested{b.template, b.id, false, []string{b.template}, []string{b.template}, b.tags}, nil
}

// builder returns the principal of a call about builds.
func (s *Server) builder(ctx context.Context) (*caller.Principal, error) {
	if s.opt.Images == nil || s.opt.Uploads == "" {
		return nil, hutch.Errorf(hutch.Unsupported, "this server keeps no images, so it builds no templates")
	}
	who, err := s.holder(ctx)
	if err == nil && !who.Has(hutch.ScopeExec) {
		err = who.Lack("a build", []hutch.Scope{hutch.ScopeExec})
	}
	return who, err
}

// buildOf returns the build that a path names.
func (s *Server) buildOf(r *http.Request) (*build, *caller.Principal, error) {
	who, err := s.builder(r.Context())
	if err != nil {
		return nil, nil, err
	}
	b, ok := s.builds.find(who.Owner, r.PathValue("id"), cmp.Or(r.PathValue("build"), "-"))
	if !ok {
		return nil, nil, noBuild(r.PathValue("build"))
	}
	return b, who, nil
}

func noBuild(id string) error {
	return hutch.Errorf(hutch.NotFound, "there is no build %.80q of this template: a build is known for an hour, and until the server ends", id)
}

// startBuild starts a requested build.
func (s *Server) startBuild(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req started
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	b, who, err := s.buildOf(r)
	if err == nil {
		err = req.check()
	}
	if err != nil {
		return 0, nil, err
	}
	if !b.move(buildWaiting, buildRunning, nil) {
		return 0, nil, hutch.Errorf(hutch.Conflict, "the build %q was started before: ask for another one", b.id)
	}
	ctx, free := caller.OwnBudget(context.WithoutCancel(r.Context()))
	ctx, release := who.Hold(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(errClosing) })
	if !s.builds.run(func() {
		defer free()
		defer release()
		defer stop()
		defer cancel(nil)
		s.work(ctx, b, req)
	}) {
		free()
		release()
		b.move(buildRunning, buildFailed, &buildReason{Message: errClosing.Error(), Entries: []buildLog{}})
		return 0, nil, errClosing
	}
	return http.StatusAccepted, struct{}{}, nil
}

var errClosing = hutch.Errorf(hutch.Unavailable, "the server is shutting down: build again in a moment")

// work runs a build to its end.
func (s *Server) work(ctx context.Context, b *build, req started) {
	err := s.make(ctx, b, req)
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		b.say("info", recipe.FinalStep, "the template is ready")
		b.move(buildRunning, buildReady, nil)
		return
	}
	if hutch.KindOf(err) == hutch.Internal {
		s.log.Error("build of a template", "build", b.id, "err", err)
	}
	reason := &buildReason{Message: hutch.AsError(err).Message, Step: recipe.FinalStep, Entries: []buildLog{}}
	if at, ok := errors.AsType[*recipe.Error](err); ok {
		reason.Step, reason.Message = at.Step, hutch.AsError(at.Err).Message
	}
	b.say("error", reason.Step, reason.Message)
	b.move(buildRunning, buildFailed, reason)
}

type buildStatus struct {
	TemplateID string       `json:"templateID"`
	BuildID    string       `json:"buildID"`
	Status     string       `json:"status"`
	Logs       []string     `json:"logs"`
	Entries    []buildLog   `json:"logEntries"`
	Reason     *buildReason `json:"reason,omitempty"`
}

// levels are E2B's log levels, the least severe first.
var levels = []string{"debug", "info", "warn", "error"}

// buildStatus returns the state of a build, and its messages.
func (s *Server) buildStatus(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	offset, limit, level, err := logQuery(r)
	if err != nil {
		return 0, nil, err
	}
	b, _, err := s.buildOf(r)
	if err != nil {
		return 0, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	status := buildStatus{TemplateID: b.template, BuildID: b.id, Status: b.state, Logs: []string{}, Entries: []buildLog{}, Reason: b.reason}
	shown := slices.Collect(filter(b.logs, func(l buildLog) bool { return slices.Index(levels, l.Level) >= level }))
	shown = shown[min(offset, len(shown)):]
	for _, l := range shown[:min(limit, len(shown))] {
		status.Entries = append(status.Entries, l)
		status.Logs = append(status.Logs, l.Message)
	}
	return http.StatusOK, status, nil
}

func logQuery(r *http.Request) (offset, limit, level int, err error) {
	q := r.URL.Query()
	limit = logPage
	for name, at := range map[string]*int{"logsOffset": &offset, "limit": &limit} {
		if text := q.Get(name); text != "" {
			if *at, err = strconv.Atoi(text); err != nil || *at < 0 {
				return 0, 0, 0, badQuery(name, text)
			}
		}
	}
	if text := q.Get("level"); text != "" {
		if level = slices.Index(levels, text); level < 0 {
			return 0, 0, 0, badQuery("level", text)
		}
	}
	return offset, min(limit, logPage), level, nil
}
