package agent

import (
	"os"

	"hutch"
	"hutch/internal/wire"
)

// adopt takes over the identity of the sandbox that uses the instance from now on. Only the agent of a real instance
// sets the host name; if the driver has set it already, that is not an error. If the token changes, all other
// connections close at once, and self after its answer.
func (a *agent) adopt(self *conn, i wire.Identity) error {
	if now, _ := os.Hostname(); a.opt.Rename != nil && now != i.Hostname {
		if err := a.opt.Rename(i.Hostname); err != nil {
			return hutch.Errorf(hutch.Unsupported, "this instance cannot be given another host name").Because(err)
		}
	}
	a.contexts.queueText(i.Tell)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.env = i.Env
	if i.Token != "" && i.Token != a.token {
		a.token = i.Token
		a.closeAllButLocked(self)
	}
	return nil
}

// currentToken returns the token that both sides of a new connection must know.
func (a *agent) currentToken() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token
}

// queueText queues each language's text for all interpreters of that language, which receive it later.
func (cs *contexts) queueText(text map[string]string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.all {
		c.mu.Lock()
		c.news += text[c.req.Language]
		c.mu.Unlock()
	}
	for _, s := range cs.spares {
		s.news += text[s.req.Language]
	}
}

// takeText returns the text that the interpreter has not been sent yet, and empties the queue.
func (c *codeContext) takeText() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := c.news
	c.news = ""
	return news
}

// baseEnv returns the base of every command's environment.
func (a *agent) baseEnv() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.env
}
