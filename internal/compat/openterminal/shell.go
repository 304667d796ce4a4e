package openterminal

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat"
)

// Open WebUI gives two more tools to models while the user has a terminal open: one reads it, the other types into it.

const (
	maxShown  = 64 << 10         // how many of the newest bytes of a terminal's output a model reads
	inputTime = 10 * time.Second // for a program to read what a model types
)

var (
	errNoShell = hutch.Errorf(hutch.NotFound, "No connected user shell")
	errNotRead = hutch.Errorf(hutch.Conflict, "the program in the user's terminal reads no input at present, and has perhaps read only a part of the text: read the terminal before you type again")
)

// shell returns the newest of the chat's terminals to which a client is attached.
func (c *call) shell() (hutch.Process, error) {
	list, err := c.terminals()
	if err != nil {
		return hutch.Process{}, err
	}
	for _, p := range slices.Backward(list) {
		if p.Name == c.terminalOf() && c.attached.has(c.key(p.ID)) {
			return p, nil
		}
	}
	return hutch.Process{}, errNoShell
}

// readShell answers with the newest output of the user's terminal.
func (c *call) readShell() (any, error) {
	p, err := c.shell()
	if err != nil {
		return nil, err
	}
	logs := hutch.LogsRequest{SandboxID: c.sandbox, ProcessID: p.ID, Cursor: math.MaxInt64} // this cursor asks for the end of the output
	end, err := c.svc.Logs(c.ctx, logs, nil)
	if err != nil {
		return nil, err
	}
	logs.Cursor = max(0, end-maxShown)
	shown := compat.NewBuffer(c.ctx, 2*maxShown) // more output can arrive meanwhile
	_, err = c.svc.Logs(c.ctx, logs, func(o hutch.Output) error {
		_, err := shown.Write(o.Data)
		return err
	})
	if errors.Is(err, compat.ErrTooLong) {
		err = nil
	}
	return map[string]string{"output": valid(shown.String())}, err
}

// typeShell types a text into the user's terminal, as it is.
func (c *call) typeShell() (any, error) {
	var req struct {
		Input string `json:"input"`
	}
	if err := compat.ReadJSON(c.w, c.r, &req); err != nil {
		return nil, err
	}
	p, err := c.shell()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.ctx, min(inputTime, c.opt.Stall))
	defer cancel()
	err = c.svc.Input(ctx, c.sandbox, p.ID, strings.NewReader(req.Input), false)
	switch {
	case err == nil:
		return map[string]string{"status": "ok"}, nil
	case c.ctx.Err() == nil && ctx.Err() != nil:
		return nil, errNotRead
	case hutch.KindOf(err) == hutch.Conflict:
		return nil, hutch.Errorf(hutch.Conflict, "User shell has disconnected")
	}
	return nil, err
}
