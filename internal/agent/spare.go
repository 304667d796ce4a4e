package agent

import (
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// maxSpares is the highest number of spare interpreters.
const maxSpares = 8

// prepareTime bounds the preparation of a spare interpreter, which can include large imports. becomeTime bounds how
// long a spare interpreter can take to read its message: it runs as the user, whose programs can have stopped it.
const (
	prepareTime = 30 * time.Second
	becomeTime  = time.Second
)

// spare is an interpreter that belongs to no context yet.
type spare struct {
	*interpreter
	req  wire.Context
	env  map[string]string
	news string // unsent text: see queueText
}

// spare starts a spare interpreter and waits until it is prepared.
func (cs *contexts) spare(req wire.Context) error {
	i, err := cs.agent.interpret(req, hutch.NewID("k"))
	if err != nil {
		return err
	}
	err = i.sendText(req.Prepare)
	if err == nil {
		err = i.prepare()
	}
	if err == nil {
		err = cs.addSpare(&spare{interpreter: i, req: req, env: cs.agent.variables(req)})
	}
	if err != nil {
		i.tree.kill()
	}
	return err
}

func (i *interpreter) prepare() error {
	select {
	case <-i.ready:
		return nil
	case <-i.done:
		return hutch.Errorf(hutch.Unavailable, "the spare interpreter ended before it was prepared")
	case <-time.After(prepareTime):
		return hutch.Errorf(hutch.Timeout, "the spare interpreter was not prepared within %v", prepareTime)
	}
}

// prepared handles the message by which a waiting interpreter reports that it is prepared.
func (i *interpreter) prepared(line []byte) {
	if string(line) == i.mark+"^" {
		select {
		case i.ready <- struct{}{}:
		default:
		}
	}
}

func (cs *contexts) addSpare(s *spare) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed || len(cs.spares) >= maxSpares {
		return hutch.Errorf(hutch.Exhausted, "there are %d spare interpreters, the limit", maxSpares)
	}
	cs.spares = append(cs.spares, s)
	return nil
}

// takeSpare gives a context a spare interpreter, or returns nil if none fits or the first that fits has died.
func (cs *contexts) takeSpare(req wire.Context) *interpreter {
	if req.Become == "" || req.Dir != "" || req.User != "" {
		return nil
	}
	env := cs.agent.variables(req)
	s := cs.findSpare(func(s *spare) bool {
		return slices.Equal(s.req.Argv, req.Argv) && s.req.Source == req.Source && agree(req.Fixed, s.env, env)
	})
	if s == nil {
		return nil
	}
	env[wire.ProcessEnv] = s.mark
	text, _ := json.Marshal(env) // a map of texts can always be encoded
	if s.gone() || s.sendText(s.news+strings.ReplaceAll(req.Become, wire.EnvArg, string(text))) != nil {
		s.tree.kill()
		return nil
	}
	return s.interpreter
}

func (cs *contexts) findSpare(fits func(*spare) bool) *spare {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	i := slices.IndexFunc(cs.spares, fits)
	if i < 0 {
		return nil
	}
	s := cs.spares[i]
	cs.spares = slices.Delete(cs.spares, i, i+1)
	return s
}

// sendText sends an interpreter a text that is not a run.
func (i *interpreter) sendText(text string) error {
	i.control.SetWriteDeadline(time.Now().Add(becomeTime))
	defer i.control.SetWriteDeadline(time.Time{})
	_, err := i.control.WriteString(text)
	return err
}

// variables returns the environment of a context.
func (a *agent) variables(c wire.Context) map[string]string {
	all := map[string]string{}
	for _, kv := range a.environ(wire.Start{Env: c.Env}, a.user.home, filepath.Join("/", a.boot.Dir, c.Dir)) {
		name, value, _ := strings.Cut(kv, "=")
		all[name] = value
	}
	delete(all, wire.ProcessEnv)
	return all
}

// agree reports whether a and b have the same values for all variables that a pattern matches.
func agree(patterns []string, a, b map[string]string) bool {
	within := func(a, b map[string]string) bool {
		for name, value := range a {
			if other, there := b[name]; there && other == value {
				continue
			}
			if slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
				return false
			}
		}
		return true
	}
	return within(a, b) && within(b, a)
}
