package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hutch"
	"hutch/client"
	"hutch/internal/image"
	"hutch/internal/stream"
	"hutch/internal/tunnel"
)

func newExpose(h *home, std streams) *cobra.Command {
	var e exposure
	var asJSON bool
	c := &cobra.Command{
		Use: "expose SANDBOX [PORT]", Short: "Give a server in a sandbox a URL",
		Long: `Give a port of a sandbox a URL, and print it. The server there can start later,
and the sandbox can sleep: a visitor of the URL wakes it. A new token replaces the
earlier one. A private port opens for people who log in with a token that can see the
sandbox, and for people who have a link. A port that is exposed already keeps the
settings that no flag changes: --https, for example, until --https=false. Without
PORT, the command exposes each TCP port that the image of the sandbox names (EXPOSE).
` + remoteHelp,
		Example: "  hutch expose demo 8000\n  hutch expose demo 8000 --private --link 1h",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := e.complete(c.Flags().Changed("https")); err != nil {
				return err
			}
			sandbox, named := args[0], args[1:]
			ports, err := parsePorts(named)
			if err != nil {
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			if len(named) == 0 {
				ports, err = imagePorts(c.Context(), svc, sandbox)
				if err == nil && len(ports) == 0 {
					err = hutch.Errorf(hutch.Invalid, "the image of the sandbox %q names no TCP port: give one", sandbox)
				}
				if err != nil {
					return err
				}
			}
			for _, port := range ports {
				p, err := e.expose(c.Context(), svc, sandbox, port)
				switch {
				case err != nil:
				case asJSON:
					err = writeJSON(std.out, p)
				default:
					_, err = fmt.Fprintln(std.out, p.URL)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	e.flags(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// exposure is how the flags of a command expose a port.
type exposure struct {
	req                    hutch.ExposeRequest
	private, public, https bool
	link                   time.Duration // 0 for none
}

func (e *exposure) flags(f *pflag.FlagSet) {
	f.StringVar(&e.req.Name, "name", "", "what to call it")
	f.StringVar(&e.req.Token, "token", "", "last part of the URL's host name, 1 to 16 of a-z, 0-9, _ and hyphen (default: random)")
	f.BoolVar(&e.private, "private", false, "for those who log in, or have a link")
	f.BoolVar(&e.public, "public", false, "for all who know the URL (default, if it is new)")
	f.BoolVar(&e.https, "https", false, "the server in the sandbox speaks HTTPS; its certificate is not checked; --https=false ends it")
	positiveDurationVar(f, &e.link, "link", "", 0, "print a signed link that opens it for this long")
}

// complete checks the flags, and puts them into the request. A flag that is not given changes nothing.
func (e *exposure) complete(httpsChanged bool) error {
	switch {
	case e.private && e.public:
		return usageError{errors.New("--private and --public exclude each other: give one of them")}
	case e.private:
		e.req.Access = hutch.PrivatePort
	case e.public:
		e.req.Access = hutch.PublicPort
	}
	switch {
	case e.https:
		e.req.Protocol = hutch.HTTPSPort
	case httpsChanged:
		e.req.Protocol = hutch.HTTPPort
	}
	return nil
}

// expose exposes a port. If a link was requested, the URL of the result is the link.
func (e *exposure) expose(ctx context.Context, svc hutch.Service, sandbox string, port int) (hutch.Port, error) {
	e.req.Port = port
	p, err := svc.Expose(ctx, sandbox, e.req)
	if err != nil || e.link == 0 {
		return p, err
	}
	l, err := svc.LinkPort(ctx, sandbox, port, hutch.InSeconds(e.link))
	p.URL = l.URL
	return p, err
}

func parsePorts(args []string) (ports []int, err error) {
	for _, arg := range args {
		port, err := parsePort(arg)
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// imagePorts returns the TCP ports that the image of a sandbox names.
func imagePorts(ctx context.Context, svc hutch.Service, sandbox string) (ports []int, err error) {
	sb, err := svc.Sandbox(ctx, sandbox)
	if err != nil || sb.Image == image.HostName {
		return nil, err
	}
	images, ok := svc.(hutch.Images)
	if !ok {
		return nil, nil
	}
	img, err := images.Image(ctx, sb.Image)
	if errors.Is(err, hutch.NotFound) || errors.Is(err, hutch.Unsupported) || errors.Is(err, hutch.Denied) { // a template's image can be another owner's
		return nil, nil
	}
	return img.Config.TCPPorts(), err
}

func parsePort(text string) (int, error) {
	port, err := strconv.Atoi(text)
	if err != nil || hutch.CheckPort(port) != nil {
		return 0, usageError{fmt.Errorf("there is no port %q: give 1 to 65535", text)}
	}
	return port, nil
}

func newUnexpose(h *home, std streams) *cobra.Command {
	return withJSON(&cobra.Command{
		Use: "unexpose SANDBOX PORT", Short: "Remove the URL of a port, and close its connections", Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			port, err := parsePort(args[1])
			if err != nil {
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			ports, err := svc.Ports(c.Context(), args[0])
			if err == nil && !slices.ContainsFunc(ports, func(p hutch.Port) bool { return p.Port == port }) {
				wasNot(std, "exposed port", args[1], nil)
			}
			return svc.Unexpose(c.Context(), args[0], port)
		},
	}, std, func(args []string) done {
		port, _ := parsePort(args[1]) // the command has checked it already
		return done{"sandboxId": args[0], "port": port}
	})
}

func newPorts(h *home, std streams) *cobra.Command {
	var follow, asJSON bool
	c := &cobra.Command{
		Use: "ports SANDBOX", Short: "List the exposed ports, or report servers as they start and stop",
		Long: "List the exposed ports of a sandbox and their URLs or, with --follow, report\nevery server that begins to listen or stops.\n" + remoteHelp,
		Args: cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			if follow {
				return followPorts(ctx, svc, args[0], std.out, asJSON)
			}
			list, err := svc.Ports(ctx, args[0])
			if err != nil {
				return err
			}
			if err := writeList(std.out, asJSON, list, "PORT\tNAME\tACCESS\tPROTOCOL\tURL", func(p hutch.Port) []any {
				return []any{p.Port, p.Name, p.Access, cmp.Or(p.Protocol, hutch.HTTPPort), p.URL}
			}); err != nil || asJSON {
				return err
			}
			return offerPorts(ctx, svc, args[0], list, std.err)
		}),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "report servers as they start and stop")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// offerPorts names the ports that the image exposes and that have no URL.
func offerPorts(ctx context.Context, svc hutch.Service, sandbox string, exposed []hutch.Port, out io.Writer) error {
	ports, err := imagePorts(ctx, svc, sandbox)
	if err != nil {
		return err
	}
	ports = slices.DeleteFunc(ports, func(port int) bool {
		return slices.ContainsFunc(exposed, func(p hutch.Port) bool { return p.Port == port })
	})
	if len(ports) == 0 {
		return nil
	}
	_, err = fmt.Fprintf(out, "the image also names %s: `hutch expose %s` gives each a URL\n", strings.Trim(fmt.Sprint(ports), "[]"), sandbox)
	return err
}

func followPorts(ctx context.Context, svc *client.Client, sandbox string, out io.Writer, asJSON bool) error {
	err := svc.WatchPorts(ctx, sandbox, func(e hutch.PortEvent) error {
		if asJSON {
			return json.NewEncoder(out).Encode(e)
		}
		_, err := fmt.Fprintln(out, strings.TrimSpace(fmt.Sprintf("%-5s %5d  %s", e.Type, e.Port, e.URL)))
		return err
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func newForward(h *home, std streams) *cobra.Command {
	return &cobra.Command{
		Use: "forward SANDBOX [[ADDRESS:]LOCAL:]PORT", Short: "Connect a port of this machine with one of a sandbox",
		Long: `Listen on a port of this machine, on 127.0.0.1 unless an address is given, and
carry every connection to a server in a sandbox, whatever it speaks, until
interrupted. Without LOCAL it is the same port; 0 is a free one. Requests by
names below localhost, such as hutch.localhost, are refused: browsers send the
console's cookie there.
` + remoteHelp,
		Example: "  hutch forward demo 5432\n  hutch forward demo 8080:80",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			local, port, err := parseForward(args[1])
			if err != nil {
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			ln, err := net.Listen("tcp", local)
			if err != nil {
				return fmt.Errorf("listen: %w", err)
			}
			fmt.Fprintf(std.err, "%s leads to port %d of %s\n", ln.Addr(), port, args[0])
			return forward(c.Context(), svc, args[0], port, ln, std.err)
		},
	}
}

func parseForward(text string) (local string, port int, err error) {
	i := strings.LastIndexByte(text, ':')
	if port, err = parsePort(text[i+1:]); err != nil {
		return "", 0, err
	}
	switch local = text[:max(i, 0)]; {
	case i < 0:
		local = fmt.Sprintf("127.0.0.1:%d", port)
	case !strings.Contains(local, ":"):
		local = "127.0.0.1:" + local
	}
	return local, port, nil
}

// forward carries connections until ctx is done.
func forward(ctx context.Context, svc *client.Client, sandbox string, port int, ln net.Listener, errs io.Writer) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		c, err := ln.Accept()
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			return err
		}
		conns.Go(func() {
			server, err := svc.DialPort(ctx, sandbox, port)
			if err != nil {
				c.Close()
				fmt.Fprintln(errs, "hutch:", err)
				return
			}
			stream.Join(ctx, tunnel.Conn(c.(*net.TCPConn)), server)
		})
	}
}
