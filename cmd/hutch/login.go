package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/servers"
)

func newLogin(h *home, std streams) *cobra.Command {
	var name string
	var asJSON bool
	c := &cobra.Command{
		Use: "login URL", Short: "Save a server with its token, and use it from now on",
		Long: `Save a server with its token, and use it from now on. The token is typed,
unseen, or read from the standard input. The server is asked whether the token is
valid before anything is saved.

The token is kept in servers.json in your configuration folder
($XDG_CONFIG_HOME/hutch or ~/.config/hutch), which only you can read. It is sent
to this URL and to no other. HUTCH_URL and HUTCH_TOKEN come before saved servers.`,
		Example: "  hutch login https://hutch.example.com\n  hutch login http://127.0.0.1:7811 --name test < token",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			u, err := servers.Parse(args[0])
			if err != nil {
				return usageError{err}
			}
			s := servers.Server{Name: cmp.Or(name, u.Host), URL: u.String()}
			if err := checkServerName(s.Name); err != nil {
				return err
			}
			if u.Scheme == "http" && !servers.Loopback(u) {
				fmt.Fprintf(std.err, "hutch: warning: %s has no TLS: others on the way can read the token\n", u.Host)
			}
			if s.Token, err = readToken(c.Context(), std, u); err != nil {
				return err
			}
			if err := login(c.Context(), s); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, done{"name": s.Name, "url": s.URL})
			}
			fmt.Fprintf(std.err, "logged in to %s; it is the current server, called %s\n", s.URL, s.Name)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&name, "name", "", "what to call the server (default: its host and port)")
	return c
}

func checkServerName(name string) error {
	if name == servers.Local || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return usageError{fmt.Errorf("a server cannot be called %q: choose another --name", name)}
	}
	return nil
}

func readToken(ctx context.Context, std streams, u *url.URL) (string, error) {
	text := ""
	if isTerminal(std.in) {
		fmt.Fprintf(std.err, "token for %s: ", u.Host)
		line, err := unseen(ctx, std.in)
		fmt.Fprintln(std.err)
		if err != nil {
			return "", err
		}
		text = line
	} else {
		b, err := io.ReadAll(io.LimitReader(std.in, 64<<10))
		if err != nil {
			return "", err
		}
		text = string(b)
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", usageError{fmt.Errorf("there is no token: type it, or pipe it in: hutch login %s < FILE", u)}
	}
	return text, nil
}

// login saves a server, if it accepts the token.
func login(ctx context.Context, s servers.Server) error {
	if _, err := client.New(s.URL, s.Token).Version(ctx); err != nil {
		return fmt.Errorf("nothing is saved: %w", err)
	}
	return changeServers(func(l *servers.List) error { l.Put(s); return nil })
}

// changeServers changes the saved servers.
func changeServers(change func(*servers.List) error) error {
	list, path, err := loadServers()
	if err != nil {
		return err
	}
	if err := change(&list); err != nil {
		return err
	}
	return list.Save(path)
}

// loadServers reads the saved servers, and returns the path of their file.
func loadServers() (list servers.List, path string, err error) {
	if path, err = servers.Path(); err != nil {
		return list, "", err
	}
	list, err = servers.Load(path)
	return list, path, err
}

func newContext(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "context", Short: "Choose between saved servers",
		Long: `Choose which of the saved servers commands use. ` + "`hutch login URL`" + ` saves one;
` + servers.Local + ` is the server that runs on this machine.`,
		Example: "  hutch context ls\n  hutch context use local\n  hutch context rm hutch.example.com",
	}
	c.AddCommand(newContextList(h, std), newContextUse(std), newContextRemove(std))
	return c
}

// savedServer is a line of the list, without the token.
type savedServer struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Current bool   `json:"current"`
}

func newContextList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the saved servers", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, _, err := loadServers()
			if err != nil {
				return err
			}
			local := savedServer{servers.Local, "-", list.Current == "" || list.Current == servers.Local}
			if own, ok := h.own(); ok {
				local.URL = own.url
			}
			all := []savedServer{local}
			for _, s := range list.Servers {
				all = append(all, savedServer{s.Name, s.URL, s.Name == list.Current})
			}
			return writeList(std.out, asJSON, all, "CURRENT\tSERVER\tURL", func(s savedServer) []any {
				mark := ""
				if s.Current {
					mark = "*"
				}
				return []any{mark, s.Name, s.URL}
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newContextUse(std streams) *cobra.Command {
	return withJSON(&cobra.Command{
		Use: "use NAME", Short: "Make a saved server the current one", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return changeServers(func(l *servers.List) error {
				if _, ok := l.Named(args[0]); !ok && args[0] != servers.Local {
					names := []string{servers.Local}
					for _, s := range l.Servers {
						names = append(names, s.Name)
					}
					return hutch.Errorf(hutch.NotFound, "there is no saved server %q%s; see `hutch context ls`, or save it with `hutch login URL --name %[1]s`", args[0], similarName(args[0], names))
				}
				l.Current = args[0]
				return nil
			})
		},
	}, std, func(args []string) done { return done{"name": args[0]} })
}

func newContextRemove(std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"delete"}, Short: "Forget saved servers and their tokens",
		Long: "Forget saved servers and their tokens. The tokens stay valid: `hutch token revoke`\nends one.", Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			removed := []string{}
			if err := changeServers(func(l *servers.List) error {
				for _, name := range args {
					if l.Remove(name) {
						removed = append(removed, name)
					} else {
						fmt.Fprintf(std.err, "hutch: there was no saved server %q\n", name)
					}
				}
				return nil
			}); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, done{"names": removed})
			}
			for _, name := range removed {
				fmt.Fprintln(std.out, name)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
