package mcp

import (
	"context"
	"fmt"

	"hutch"
)

type exposePortArgs struct {
	SandboxID string `json:"sandboxId"`
	Port      int    `json:"port" jsonschema:"1 to 65535"`
	Name      string `json:"name,omitempty" jsonschema:"for people"`
	Token     string `json:"token,omitempty" jsonschema:"end of the URL's host name, 1-16 of a-z0-9_-; default random"`

	// Protocol is the protocol of the server. It has no description in the schema, to keep the list of tools short.
	Protocol hutch.PortProtocol `json:"protocol,omitempty"`
}

// exposedPort is the structured result of exposePort.
type exposedPort struct {
	Port int    `json:"port"`
	URL  string `json:"url"`
	Name string `json:"name"`
}

func (s *server) exposePort(ctx context.Context, c *call, in exposePortArgs) (reply, error) {
	c.sandbox = in.SandboxID
	if err := need("sandboxId", in.SandboxID, "the sandbox that the server is in; exec makes one"); err != nil {
		return reply{}, err
	}
	p, err := s.svc.Expose(ctx, in.SandboxID, hutch.ExposeRequest{Port: in.Port, Name: in.Name, Token: in.Token, Protocol: in.Protocol})
	if err != nil {
		return reply{}, err
	}
	text := fmt.Sprintf("port %d of %s is at %s", p.Port, p.SandboxID, p.URL)
	if p.Access == hutch.PrivatePort {
		text += " (private: people log in there)"
	}
	return reply{text, exposedPort{p.Port, p.URL, p.Name}}, nil
}
