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

	"hutch"
	"hutch/client"
	"hutch/internal/image"
	"hutch/internal/stream"
	"hutch/internal/tunnel"
)

func newExpose(h *home, std streams) *cobra.Command {
	var req hutch.ExposeRequest
	var private, public, https, asJSON bool
	var link time.Duration
	c := &cobra.Command{
		Use: "expose SANDBOX [PORT]", Short: "Give a server in a sandbox a URL",
		Long: `Give a port of a sandbox a URL, and print it. The server there may start later,
and the sandbox may sleep: who opens the URL wakes it. Another token takes the
place of the one before. A private port opens to those who log in with a token
that may see the sandbox, or to who has a link. A port that is exposed already keeps
what no flag names: --https, for example, until --https=false. Without PORT it is each
TCP port that the image of the sandbox names (EXPOSE).
` + remoteHelp,
		Example: "  hutch expose demo 8000\n  hutch expose demo 8000 --private --link 1h",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) (err error) {
			var ports []int
			if len(args) > 1 {
				port, err := parsePort(args[1])
				if err != nil {
					return err
				}
				ports = []int{port}
			}
			if private && public {
				return usageError{errors.New("--private and --public exclude each other: give one of them")}
			}
			if private {
				req.Access = hutch.PrivatePort
			} else if public {
				req.Access = hutch.PublicPort
			}
			if https {
				req.Protocol = hutch.HTTPSPort
			} else if c.Flags().Changed("https") {
				req.Protocol = hutch.HTTPPort
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			if len(ports) == 0 {
				if ports, err = imagePorts(c.Context(), svc, args[0]); err != nil {
					return err
				}
				if len(ports) == 0 {
					return hutch.Errorf(hutch.Invalid, "the image of the sandbox %q names no TCP port: give one", args[0])
				}
			}
			for _, req.Port = range ports {
				p, err := svc.Expose(c.Context(), args[0], req)
				if err != nil {
					return err
				}
				if link > 0 {
					l, err := svc.LinkPort(c.Context(), args[0], req.Port, hutch.InSeconds(link))
					if err != nil {
						return err
					}
					p.URL = l.URL
				}
				if asJSON {
					err = writeJSON(std.out, p)
				} else {
					_, err = fmt.Fprintln(std.out, p.URL)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&req.Name, "name", "", "what to call it")
	c.Flags().StringVar(&req.Token, "token", "", "last part of the URL's host name, 1 to 16 of a-z, 0-9, _ and hyphen (default: random)")
	c.Flags().BoolVar(&private, "private", false, "for those who log in, or have a link")
	c.Flags().BoolVar(&public, "public", false, "for all who know the URL (default, if it is new)")
	c.Flags().BoolVar(&https, "https", false, "the server in the sandbox speaks HTTPS; its certificate is not checked; --https=false ends it")
	positiveDurationVar(c.Flags(), &link, "link", "", 0, "print a signed link that opens it for this long")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// imagePorts are the TCP ports that the image of a sandbox names.
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
	if errors.Is(err, hutch.NotFound) || errors.Is(err, hutch.Unsupported) || errors.Is(err, hutch.Denied) { // another owner's, of a template
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
		port, _ := parsePort(args[1]) // it was valid when it ran
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
