package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/text"
)

type networkArgs struct {
	SandboxID string   `json:"sandboxId"`
	Mode      string   `json:"mode,omitempty" jsonschema:"to change it"`
	Allow     []string `json:"allow,omitempty" jsonschema:"rules to add: example.com (web ports), *.example.com, example.com:22, 10.1.0.0/16:5432"`
	Deny      []string `json:"deny,omitempty" jsonschema:"rules to take back"`
}

// networkSeen is the structured result of network.
type networkSeen struct {
	hutch.NetworkState
	Denied []hutch.Connection `json:"denied"` // the last few
}

// maxDenied is how many denied connections are shown.
const maxDenied = 10

func (s *server) network(ctx context.Context, c *call, in networkArgs) (reply, error) {
	c.sandbox = in.SandboxID
	if err := need("sandboxId", in.SandboxID, "the sandbox whose network is meant; exec makes one"); err != nil {
		return reply{}, err
	}
	state, err := s.svc.Network(ctx, in.SandboxID)
	if err == nil && (in.Mode != "" || len(in.Allow)+len(in.Deny) > 0) {
		var n hutch.Network
		if n, err = state.Network.Changed(hutch.NetworkMode(in.Mode), hutch.Rules(in.Allow...), hutch.Rules(in.Deny...)); err == nil {
			state, err = s.svc.SetNetwork(ctx, in.SandboxID, n)
		}
	}
	if err != nil {
		return reply{}, err
	}
	log, err := s.svc.Connections(ctx, in.SandboxID, hutch.ConnectionQuery{Verdict: hutch.Refused, Limit: maxDenied})
	if err != nil {
		return reply{}, err
	}
	denied := stillDenied(state.Network, log.Connections)
	missing := missingRules(denied)
	for i, d := range denied {
		denied[i].Reason = withoutCommand(d.Reason)
	}
	state.Network.Allow, state.Network.Block = few(state.Network.Allow), few(state.Network.Block)
	return reply{describeNetwork(state, denied, missing), networkSeen{state, denied}}, nil
}

// stillDenied returns those denied connections that the present rules would deny again.
func stillDenied(n hutch.Network, all []hutch.Connection) []hutch.Connection {
	left := []hutch.Connection{}
	for _, d := range all {
		if !d.Allowable() || !n.Allows(d.MissingRule()) {
			left = append(left, d)
		}
	}
	return left
}

// missingRules returns the rules that would allow denied connections, the newest last.
func missingRules(denied []hutch.Connection) hutch.NetworkRules {
	var rules hutch.NetworkRules
	for _, d := range denied {
		if d.Allowable() {
			rules = append(rules, d.MissingRule())
		}
	}
	return rules
}

// withoutCommand removes from a reason the command that is meant for a person.
func withoutCommand(reason string) string {
	reason, _, _ = strings.Cut(reason, "hutch network ")
	return strings.TrimRight(reason, ": ")
}

func describeNetwork(s hutch.NetworkState, denied []hutch.Connection, missing hutch.NetworkRules) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s · %s · %d open, %d allowed, %d denied", s.SandboxID, s.Network.Mode, s.Traffic.Open, s.Traffic.Allowed, s.Traffic.Denied)
	if s.Unavailable != "" {
		fmt.Fprintf(&b, "\nit reaches nothing: %s", s.Unavailable)
	}
	for _, rule := range s.Network.Allow {
		fmt.Fprintf(&b, "\nallow %s", rule)
	}
	for _, rule := range s.Network.Block {
		fmt.Fprintf(&b, "\nblock %s", rule)
	}
	for _, d := range denied {
		fmt.Fprintf(&b, "\ndenied %s %s: %s", d.Protocol, text.Line(d.Host), text.Line(d.Reason))
	}
	switch {
	case s.Network.Mode == hutch.NetworkNone:
		b.WriteString("\nto allow something, call network with mode allow-list and allow")
	case s.Network.Mode == hutch.NetworkAllowList && len(missing) > 0:
		b.WriteString("\nto allow it, call network with allow, such as " + text.Line(string(mustJSON(missing[len(missing)-1:]))))
	}
	return b.String()
}

// maxRulesShown bounds the rules in a record.
const maxRulesShown = 50

func few(rules hutch.NetworkRules) hutch.NetworkRules {
	if len(rules) <= maxRulesShown {
		return rules
	}
	return slices.Concat(rules[:maxRulesShown], hutch.Rules(fmt.Sprintf("… and %d more", len(rules)-maxRulesShown)))
}

// deniedWords returns a text for a model: what the network denied while its program ran, and the call that would allow
// it.
func deniedWords(sandbox string, denied []string) string {
	if len(denied) == 0 {
		return ""
	}
	rules := oneLine(denied)
	return fmt.Sprintf("[the network of the sandbox denied %s; to allow it, call network with sandboxId %s and allow %s]",
		strings.Join(rules, ", "), sandbox, mustJSON(rules))
}

// oneLine turns each text into one line without control characters.
func oneLine(list []string) []string {
	clean := make([]string, len(list))
	for i, s := range list {
		clean[i] = text.Line(s)
	}
	return clean
}
