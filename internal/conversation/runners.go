package conversation

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// The labels of a runner: an image whose program reads source text on its standard input, and works in /data. It runs
// all code of its language, even if the host's programs have that language, too.
const (
	LabelRunner   = "sandbox.runner" // true
	labelLanguage = "sandbox.language"
)

// runner is an image for one language. The zero value means the host's programs.
type runner struct {
	hutch.Image
	language string
}

// languageName matches the languages that an image can be a runner for.
var languageName = regexp.MustCompile(`^[a-z0-9][a-z0-9.+#_-]{0,31}$`)

// runnerOf returns the runner in an image.
func runnerOf(img hutch.Image) (r runner, ok bool) {
	language := strings.ToLower(img.Config.Labels[labelLanguage])
	return runner{img, language}, img.Config.Labels[LabelRunner] == "true" && languageName.MatchString(language)
}

// images lists the runners that the caller has, by language. Of several for one language the newest counts.
func (s *Server) images(ctx context.Context) ([]runner, error) {
	if s.store == nil {
		return nil, nil
	}
	all, err := s.store.Images(caller.WithOwner(ctx, caller.Owner{ID: ownerOf(ctx)}))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b hutch.Image) int { return b.PulledAt.Compare(a.PulledAt) })
	var list []runner
	for _, img := range all {
		if r, ok := runnerOf(img); ok {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b runner) int { return cmp.Compare(a.language, b.language) })
	return slices.CompactFunc(list, func(a, b runner) bool { return a.language == b.language }), nil
}

// runnerFor returns the runner for a language: without an image for it, the host's programs.
func (s *Server) runnerFor(ctx context.Context, language string) (runner, error) {
	list, err := s.images(ctx)
	if err != nil {
		return runner{}, err
	}
	for _, r := range list {
		if r.language != strings.ToLower(language) {
			continue
		}
		if r.Config.Program() == "" {
			return runner{}, hutch.Errorf(hutch.Unavailable, "the image of the language %s has no program: give %s an ENTRYPOINT that reads source text on its standard input", r.language, r.name())
		}
		return r, nil
	}
	return runner{}, nil
}

// exec returns the request that runs code.
func (r runner) exec(req Request) hutch.ExecRequest {
	e := hutch.ExecRequest{Command: req.Code, Language: req.Language, Dir: inside, Timeout: hutch.InSeconds(runTime), MaxOutput: maxOutput}
	if r.ID != "" {
		e.Command, e.Language, e.Stdin = r.Config.Program(), "", strings.NewReader(req.Code)
	}
	return e
}

// name returns a name of the image for people.
func (r runner) name() string {
	if len(r.Names) > 0 {
		return r.Names[0]
	}
	return r.ID
}

// lookEvery is how long the list of the host's languages is valid.
const lookEvery = 10 * time.Minute

// languages remembers which languages the host has.
type languages struct {
	mu    sync.Mutex
	list  []hutch.Language
	until time.Time
}

// Runners lists the languages for code: the host's languages, and the languages of the caller's runners. The version of
// a runner's language is the name of its image.
func (s *Server) Runners(ctx context.Context) ([]hutch.Language, error) {
	list, err := s.ofHost(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.Clone(list)
	images, err := s.images(ctx)
	for _, r := range images {
		l := hutch.Language{Name: r.language, Version: r.name()}
		if i := slices.IndexFunc(list, func(l hutch.Language) bool { return l.Name == r.language }); i >= 0 {
			list[i] = l
		} else {
			list = append(list, l)
		}
	}
	return list, err
}

// ofHost lists the host's languages. The result is cached for a while, because it takes a sandbox.
func (s *Server) ofHost(ctx context.Context) ([]hutch.Language, error) {
	s.languages.mu.Lock()
	defer s.languages.mu.Unlock()
	if time.Now().Before(s.languages.until) {
		return s.languages.list, nil
	}
	box, err := s.svc.Create(ctx, hutch.CreateRequest{SleepAfter: hutch.InSeconds(idleTime), OnIdle: hutch.IdleDestroy})
	if err != nil {
		return nil, err
	}
	defer s.discard(ctx, box.ID)
	list, err := s.svc.Languages(ctx, box.ID)
	if err != nil {
		return nil, err
	}
	s.languages.list, s.languages.until = list, time.Now().Add(lookEvery)
	return list, nil
}
