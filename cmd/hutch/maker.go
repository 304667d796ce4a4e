package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hutch"
)

// placement are the flags that describe a new sandbox.
type placement struct {
	image, pull string
	runtime     string
	size        string // an instance type
	limits      hutch.Limits
	labels      map[string]string
	network     networkFlags
	reach       reachFlags
	volumes     []string
	selector    map[string]string
	tolerations map[string]string
}

// request asks for the sandbox of an id.
func (p *placement) request(id string) hutch.CreateRequest {
	return hutch.CreateRequest{
		ID: id, Image: p.image, Pull: hutch.PullPolicy(p.pull), Runtime: p.runtime, InstanceType: p.size,
		Limits: p.limits, Labels: p.labels, Network: p.reach.network(p.network.network()), Volumes: mounts(p.volumes),
		NodeSelector: p.selector, Tolerations: p.tolerations,
	}
}

func (p *placement) flags(c *cobra.Command) {
	p.templateFlags(c)
	f := c.Flags()
	f.StringToStringVar(&p.selector, "node-selector", nil, "label that the node of a new sandbox must have, in a fleet, `KEY=VALUE`; may be repeated")
	f.StringToStringVar(&p.tolerations, "toleration", nil, "taint that the node of a new sandbox can have, in a fleet, `KEY=VALUE`; may be repeated")
}

// templateFlags adds the flags that templates have, too: all except those that choose a node.
func (p *placement) templateFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&p.image, "image", "", "image of a new sandbox, such as python:3.12-slim, or a file to send: oci:FOLDER, docker-archive:FILE (default host: the programs of the server's machine)")
	f.StringVar(&p.pull, "pull", "", "when to ask the registry of the image: missing, always or never (default missing)")
	f.StringVar(&p.runtime, "runtime", "", "runtime of a new sandbox: gvisor (strong isolation), native (fast, for code you trust more) or docker or kubernetes (if the server uses it); default: the server's")
	p.network.flags(f, "network", "allow", "a new sandbox")
	p.reach.flags(f)
	f.StringVar(&p.size, "type", "", "instance type of a new sandbox, such as basic: its cores, memory and disk, but for those that other flags set; see hutch types")
	coresVar(f, &p.limits.CPU, "cpu", "cores of a new sandbox (default 1)")
	mebibytesVar(f, &p.limits.Memory, "memory", "memory of a new sandbox in MiB, or with a unit, such as 2g (default 512)")
	mebibytesVar(f, &p.limits.Disk, "disk", "size of the written files of a new sandbox, in MiB or with a unit (default 1024; on native half the memory)")
	countVar(f, &p.limits.PIDs, "pids", "processes and threads of a new sandbox (default 512)")
	f.StringArrayVar(&p.volumes, "volume", nil, "put a volume into a folder of a new sandbox, `NAME:/PATH`, or NAME:/PATH:ro to only read it; may be repeated")
	f.StringToStringVar(&p.labels, "label", nil, "label of a new sandbox, `NAME=VALUE`, which hutch ls --label looks for; may be repeated")
}

// maker creates a command's sandbox, if it is missing.
type maker struct{ not bool }

func (m *maker) flags(c *cobra.Command) {
	c.Flags().BoolVar(&m.not, "no-create", false, "make no sandbox: use an existing one, also one that another token shares with you")
}

// ensure creates a command's sandbox. An existing one must match the flags, so that code never runs with less isolation
// than requested. It uses a shared sandbox of another owner only on request, because that owner chose the id.
func (m maker) ensure(ctx context.Context, svc hutch.Service, req hutch.CreateRequest, std streams) error {
	if m.not {
		if len(differences(hutch.Sandbox{}, req)) > 0 {
			return usageError{errors.New("--no-create makes no sandbox: leave out the flags that say how to make one, such as --runtime, --network and --memory")}
		}
		return nil
	}
	made := false
	if showsTerminal(std.err) {
		_, err := svc.Sandbox(ctx, req.ID)
		made = errors.Is(err, hutch.NotFound)
	}
	if err := pullFirst(ctx, svc, &req, std); err != nil {
		return err
	}
	sb, err := svc.Create(ctx, req)
	if err != nil {
		return err
	}
	if made {
		fmt.Fprintf(std.err, "hutch: made the sandbox %s\n", sb.ID)
	}
	return fits(sb, req)
}

// fits refuses a sandbox that does not match the request.
func fits(sb hutch.Sandbox, req hutch.CreateRequest) error {
	list := differences(sb, req)
	if len(list) == 0 {
		return nil
	}
	return hutch.Errorf(hutch.Conflict, "the sandbox %q exists, and is not as the flags say: %s. Leave the flags out to use it as it is, choose another id, or destroy it first with `hutch rm %[1]s`",
		sb.ID, strings.Join(list, "; ")).Naming(hutch.AboutSandbox, sb.ID)
}

// differences lists where a sandbox differs from a request. Fields that the request leaves out do not count.
func differences(sb hutch.Sandbox, req hutch.CreateRequest) (list []string) {
	differ := func(asked, same bool, format string, args ...any) {
		if asked && !same {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	has, want := sb.Limits, req.Limits
	differ(req.Runtime != "", sb.Runtime == req.Runtime, "its runtime is %s, not %s", sb.Runtime, req.Runtime)
	differ(req.Image != "", sameImage(sb.Image, req.Image) || sb.Template != "" && sb.Template == hutch.TemplateName(req.Image), "its image is %s, not %s", sb.Image, req.Image)
	differ(req.InstanceType != "", sb.InstanceType == req.InstanceType, "its instance type is %s, not %s", cmp.Or(sb.InstanceType, "none"), req.InstanceType)
	differ(want.CPU != 0, has.CPU == want.CPU, "it has %v cores, not %v", has.CPU, want.CPU)
	differ(want.Memory != 0, has.Memory == want.Memory, "it has %d MiB of memory, not %d", has.Memory, want.Memory)
	differ(want.Disk != 0, has.Disk == want.Disk, "it has %d MiB of disk, not %d", has.Disk, want.Disk)
	differ(want.PIDs != 0, has.PIDs == want.PIDs, "it can have %d processes and threads, not %d", has.PIDs, want.PIDs)
	differ(req.Network.Mode != "" || len(req.Network.Allow) > 0, sameNetwork(sb.Network, req.Network), "its network is %s, not %s (change it with `hutch network %s`)",
		reach(sb.Network), reach(req.Network), sb.ID)
	for _, rule := range req.Network.Block {
		differ(true, slices.Contains(sb.Network.Block, rule), "its network does not block %s as the flag says", rule)
	}
	for _, link := range req.Network.Links {
		differ(true, slices.Contains(sb.Network.Links, link), "it has no link %s as the flag says", link)
	}
	hasNet, wantNet := sb.Network.Limits, req.Network.Limits
	differ(wantNet.Connections != 0, hasNet.Connections == wantNet.Connections, "its network is not limited to %d connections", wantNet.Connections)
	differ(wantNet.Rate != 0, hasNet.Rate == wantNet.Rate, "its network is not limited to %d new connections in a second", wantNet.Rate)
	differ(wantNet.Bandwidth != 0, hasNet.Bandwidth == wantNet.Bandwidth, "its network is not limited to %d bytes in a second", wantNet.Bandwidth)
	differ(wantNet.Total != 0, hasNet.Total == wantNet.Total, "its network is not limited to %d bytes in all", wantNet.Total)
	for _, m := range req.Volumes {
		differ(true, slices.Contains(sb.Volumes, m), "it has no volume %s at %s as the flag says", m.Name, m.Path)
	}
	for name, value := range req.Labels {
		differ(true, sb.Labels[name] == value, "its label %s is %q, not %q", name, sb.Labels[name], value)
	}
	differ(len(req.NodeSelector) > 0, maps.Equal(sb.NodeSelector, req.NodeSelector), "its node selector is %s, not %s", cmp.Or(hutch.FormatNodeLabels(sb.NodeSelector), "empty"), hutch.FormatNodeLabels(req.NodeSelector))
	differ(len(req.Tolerations) > 0, maps.Equal(sb.Tolerations, req.Tolerations), "its tolerations are %s, not %s", cmp.Or(hutch.FormatNodeLabels(sb.Tolerations), "none"), hutch.FormatNodeLabels(req.Tolerations))
	slices.Sort(list)
	return list
}

func sameNetwork(has, want hutch.Network) bool {
	want, err := want.Canonical()
	if err != nil {
		return true // the server has refused an invalid network already
	}
	has, err = has.Canonical()
	byText := func(a, b hutch.NetworkRule) int { return cmp.Compare(a.String(), b.String()) }
	slices.SortFunc(has.Allow, byText)
	slices.SortFunc(want.Allow, byText)
	return err == nil && has.Mode == want.Mode && slices.Equal(has.Allow, want.Allow)
}

// reach describes a network in a few words.
func reach(n hutch.Network) string {
	n, _ = n.Canonical()
	if len(n.Allow) == 0 {
		return string(n.Mode)
	}
	return fmt.Sprintf("%s (%s)", n.Mode, n.Allow)
}
