package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hutch"
	"hutch/client"
	"hutch/internal/text"
)

// networkFlags describe what a sandbox can reach.
type networkFlags struct {
	mode  string
	allow []string
}

func (n *networkFlags) flags(f *pflag.FlagSet, mode, allow, of string) {
	f.StringVar(&n.mode, mode, "", "what "+of+" can reach: none, allow-list or open (default: the server's, allow-list)")
	f.StringSliceVar(&n.allow, allow, nil, "let it reach a name or net, such as example.com, *.example.com:443 or 10.1.0.0/16:5432")
}

func (n networkFlags) network() hutch.Network {
	return hutch.Network{Mode: hutch.NetworkMode(n.mode), Allow: hutch.Rules(n.allow...)}
}

// reachFlags are the settings of the network of a sandbox in addition to its mode and rules, except those with hidden
// values.
type reachFlags struct {
	block, link []string
	limits      hutch.NetworkLimits
}

func (r *reachFlags) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&r.block, "block", nil, "block an address or net for a new sandbox, such as 203.0.113.7 or 0.0.0.0/0:25")
	f.StringSliceVar(&r.link, "link", nil, "let a new sandbox reach another one, by its id or as `NAME=ID`")
	countVar(f, &r.limits.Connections, "network-connections", "connections of a new sandbox at once (default 256)")
	countVar(f, &r.limits.Rate, "network-rate", "new connections of a new sandbox in a second (default 100)")
	bytesVar(f, &r.limits.Bandwidth, "network-bandwidth", "bytes that a new sandbox sends and receives in a second, such as 10m (default no limit)")
	bytesVar(f, &r.limits.Total, "network-total", "bytes that a new sandbox sends and receives in all, such as 5g (default no limit)")
}

// network returns n with the settings.
func (r *reachFlags) network(n hutch.Network) hutch.Network {
	n.Block, n.Links, n.Limits = hutch.Rules(r.block...), hutch.Links(r.link...), r.limits
	return n
}

// parse returns the network that the flags describe, or the error in its rules.
func (n networkFlags) parse() (hutch.Network, error) {
	if _, err := n.network().Canonical(); err != nil {
		return hutch.Network{}, usageError{err}
	}
	return n.network(), nil
}

func newNetwork(h *home, std streams) *cobra.Command {
	var change networkChange
	var asJSON bool
	c := &cobra.Command{
		Use: "network SANDBOX", Short: "Say what a sandbox of the server may reach, and see what it did",
		Long: `Say what a sandbox may reach, and see what went over its network. Without flags,
nothing changes. A change holds at once: what is not allowed any more is cut.

A rule is a name (example.com, at ports 80 and 443; example.com:22; *.example.com for
all below it) or a net (203.0.113.7, 10.1.0.0/16:5432, [2001:db8::]/32:443). A link
is another sandbox of yours, whose ports it reaches as NAME.sandbox.internal.

--header sets a header of its requests to a host over TLS, to a value that is typed,
unseen, or piped in. Programs inside do not get the value. It allows nothing: the
host must be allowed, too. Several values are piped in as lines, in the order of their
flags.

--proxy sends its TCP connections through a SOCKS5 server, after the rules have
allowed them. The password of a user is typed, unseen, or piped in, as the last line.
` + remoteHelp,
		Example: `  hutch network demo --allow pypi.org --allow files.pythonhosted.org
  hutch network demo --deny pypi.org
  hutch network demo --mode open --block 203.0.113.0/24
  hutch network demo --link db=my-database
  hutch network demo --header api.example.com:Authorization < value
  hutch network demo --proxy ann@proxy.example.com:1080 < password
  hutch network log demo --follow`,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			if change.proxy != "" && change.unsetProxy {
				return usageError{errors.New("--proxy and --unset-proxy contradict each other: give one of them")}
			}
			if err := change.read(ctx, std); err != nil {
				return err
			}
			state, err := svc.Network(ctx, args[0])
			if err == nil && !change.isZero() {
				var n hutch.Network
				if n, err = change.apply(state.Network); err == nil {
					state, err = svc.SetNetwork(ctx, args[0], n)
				}
			}
			if err != nil {
				return err
			}
			if len(change.allow) > 0 && state.Network.Mode == hutch.NetworkNone {
				fmt.Fprintf(std.err, "hutch: warning: the mode of the network is none, so its rules allow nothing: run `hutch network %s --mode allow-list`\n", args[0])
			}
			if asJSON {
				return writeJSON(std.out, state)
			}
			return showNetwork(std.out, state)
		}),
	}
	change.flags(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(newNetworkLog(h, std))
	return c
}

// networkChange is what the flags of hutch network change.
type networkChange struct {
	mode                                             string
	allow, deny, block, unblock, link, unlink, unset []string
	hiddenFlags
	unsetProxy bool
}

func (c *networkChange) flags(f *pflag.FlagSet) {
	f.StringVar(&c.mode, "mode", "", "none, allow-list or open")
	f.StringSliceVar(&c.allow, "allow", nil, "add a rule")
	f.StringSliceVar(&c.deny, "deny", nil, "remove a rule, as it is listed")
	f.StringSliceVar(&c.block, "block", nil, "block an address or net, such as 203.0.113.7 or 0.0.0.0/0:25")
	f.StringSliceVar(&c.unblock, "unblock", nil, "remove a block, as it is listed")
	f.StringSliceVar(&c.link, "link", nil, "let it reach another sandbox, by its id or as NAME=ID")
	f.StringSliceVar(&c.unlink, "unlink", nil, "remove a link, by its name")
	c.hiddenFlags.flags(f)
	f.StringSliceVar(&c.unset, "unset-header", nil, "do not set a header any more, as HOST:NAME")
	f.BoolVar(&c.unsetProxy, "unset-proxy", false, "send connections through no proxy any more")
}

func (c *networkChange) isZero() bool {
	return c.mode == "" && c.hiddenFlags.isZero() && !c.unsetProxy &&
		len(c.allow)+len(c.deny)+len(c.block)+len(c.unblock)+len(c.link)+len(c.unlink)+len(c.unset) == 0
}

// apply returns a network with the change.
func (c *networkChange) apply(n hutch.Network) (hutch.Network, error) {
	n, err := n.Changed(hutch.NetworkMode(c.mode), hutch.Rules(c.allow...), hutch.Rules(c.deny...))
	if err != nil {
		return n, err
	}
	if n.Block, err = n.Block.Changed(hutch.Rules(c.block...), hutch.Rules(c.unblock...)); err != nil {
		return n, err
	}
	if n.Links, err = changeLinks(n.Links, hutch.Links(c.link...), c.unlink); err != nil {
		return n, err
	}
	switch {
	case c.unsetProxy && n.Proxy == nil:
		return n, hutch.Errorf(hutch.NotFound, "the sandbox has no proxy to remove")
	case c.unsetProxy:
		n.Proxy = nil
	}
	n.Headers, err = c.changeHeaders(n.Headers, c.unset)
	return c.setProxy(n), err
}

// changeLinks adds and removes links.
func changeLinks(links, more hutch.NetworkLinks, less []string) (hutch.NetworkLinks, error) {
	links = append(slices.Clone(links), more...)
	for _, name := range less {
		before := len(links)
		links = slices.DeleteFunc(links, func(l hutch.NetworkLink) bool { return l.Name == name })
		if len(links) == before {
			return nil, hutch.Errorf(hutch.NotFound, "there is no link %s to remove: without flags, the command lists all links", name)
		}
	}
	return links, nil
}

func showNetwork(out io.Writer, s hutch.NetworkState) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "mode\t%s\n", cmp.Or(s.Network.Mode, hutch.NetworkAllowList))
	fmt.Fprintf(w, "allow\t%s\n", cmp.Or(s.Network.Allow.String(), "-"))
	if len(s.Network.Block) > 0 {
		fmt.Fprintf(w, "block\t%s\n", s.Network.Block.String())
	}
	if s.Unavailable != "" {
		fmt.Fprintf(w, "none\t%s\n", text.Line(s.Unavailable))
	}
	if len(s.Network.Links) > 0 {
		fmt.Fprintf(w, "links\t%s\n", s.Network.Links.String())
	}
	for _, r := range s.Network.Headers {
		fmt.Fprintf(w, "headers\t%s: %s\n", r.Host, strings.Join(slices.Sorted(maps.Keys(r.Headers)), ", "))
	}
	if p := s.Network.Proxy; p != nil {
		fmt.Fprintf(w, "proxy\t%s\n", text.Line(strings.TrimPrefix(p.Username+"@"+p.Address, "@")))
	}
	t := s.Traffic
	fmt.Fprintf(w, "connections\t%d open, %d allowed, %d denied\n", t.Open, t.Allowed, t.Denied)
	fmt.Fprintf(w, "asked\t%d names, %d requests\n", t.Lookups, t.Requests)
	fmt.Fprintf(w, "bytes\t%d sent, %d received\n", t.Sent, t.Received)
	return w.Flush()
}

func newNetworkLog(h *home, std streams) *cobra.Command {
	var q hutch.ConnectionQuery
	var follow, denied, asJSON bool
	c := &cobra.Command{
		Use: "log SANDBOX", Short: "Show what a sandbox reached, or tried to",
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			if denied {
				q.Verdict = hutch.Refused
			}
			for {
				log, err := svc.Connections(ctx, args[0], q)
				if err != nil {
					return err
				}
				if err := showConnections(std.out, log.Connections, asJSON); err != nil || !follow {
					return err
				}
				q.After, q.Wait = log.Next, 30
			}
		}),
	}
	f := c.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "keep printing new connections")
	f.BoolVar(&denied, "denied", false, "only what was denied")
	f.IntVarP(&q.Limit, "limit", "n", 100, "most lines to print, the newest")
	f.BoolVar(&asJSON, "json", false, "print a line of JSON for each")
	return c
}

func showConnections(out io.Writer, list []hutch.Connection, asJSON bool) error {
	for _, c := range list {
		if asJSON {
			if err := writeJSON(out, c); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintln(out, connectionLine(c)); err != nil {
			return err
		}
	}
	return nil
}

// connectionLine returns a line of the log for people.
func connectionLine(c hutch.Connection) string {
	what := c.Host
	if c.Port != 0 {
		what = net.JoinHostPort(c.Host, fmt.Sprint(c.Port))
	}
	if c.Method != "" {
		what = c.Method + " " + what
	}
	parts := []string{c.Time.Local().Format(time.TimeOnly), fmt.Sprintf("%-7s", c.Verdict), fmt.Sprintf("%-4s", c.Protocol), what}
	if c.Status != 0 {
		parts = append(parts, fmt.Sprint(c.Status))
	}
	if c.Sent+c.Received > 0 {
		parts = append(parts, fmt.Sprintf("%d/%d bytes", c.Sent, c.Received))
	}
	if c.Count > 1 {
		parts = append(parts, fmt.Sprintf("(%d times)", c.Count))
	}
	if c.Open {
		parts = append(parts, "(open)")
	}
	if c.Reason != "" {
		parts = append(parts, "- "+c.Reason)
	}
	return strings.Join(parts, " ")
}

// checkDNS completes the address of a DNS server.
func checkDNS(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a, 53).String(), nil
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return "", usageError{fmt.Errorf("--dns is %q: give an address, such as 9.9.9.9 or [2620:fe::fe]:53", text)}
	}
	return a.String(), nil
}
