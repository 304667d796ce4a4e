package daemon

import (
	"context"

	"hutch/internal/console"
)

// openConsole opens the page for browsers. A server of conversations has a page of its own.
func (d *Daemon) openConsole(context.Context) (err error) {
	if d.cfg.Conversations.Only {
		return nil
	}
	d.console, err = console.New(console.Options{Previews: d.previewURL("*")})
	return err
}
