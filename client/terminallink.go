package client

import (
	"context"

	"hutch"
	"hutch/internal/stream"
)

const terminalLinks = "/v1/sandboxes/{id}/processes/{process}/links"

// ShareTerminal makes a link by which anyone can watch a terminal, and do nothing else. It is valid for a time of up to 7
// days; 0 means one hour.
func (c *Client) ShareTerminal(ctx context.Context, sandbox, process string, lifetime hutch.Seconds) (hutch.SharedTerminal, error) {
	return call[hutch.SharedTerminal](ctx, c, filled("POST "+terminalLinks, sandbox, process), stream.PortLifetime{Lifetime: lifetime})
}

// TerminalLinks lists the caller's links to a terminal, oldest first, without their secrets.
func (c *Client) TerminalLinks(ctx context.Context, sandbox, process string) ([]hutch.TerminalLink, error) {
	return call[[]hutch.TerminalLink](ctx, c, filled("GET "+terminalLinks, sandbox, process), nil)
}

// UnshareTerminal revokes a link, and disconnects its viewers. A missing link is not an error.
func (c *Client) UnshareTerminal(ctx context.Context, sandbox, process, link string) error {
	_, err := call[struct{}](ctx, c, filled("DELETE "+terminalLinks+"/{link}", sandbox, process, link), nil)
	return err
}

// Share does what [Client.ShareTerminal] does.
func (p *Process) Share(ctx context.Context, lifetime hutch.Seconds) (hutch.SharedTerminal, error) {
	return p.sandbox.client.ShareTerminal(ctx, p.sandbox.ID, p.ID, lifetime)
}

// Links does what [Client.TerminalLinks] does.
func (p *Process) Links(ctx context.Context) ([]hutch.TerminalLink, error) {
	return p.sandbox.client.TerminalLinks(ctx, p.sandbox.ID, p.ID)
}

// Unshare does what [Client.UnshareTerminal] does.
func (p *Process) Unshare(ctx context.Context, link string) error {
	return p.sandbox.client.UnshareTerminal(ctx, p.sandbox.ID, p.ID, link)
}
