package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"hutch"
	"hutch/client"
)

func newSecret(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "secret", Short: "Keep secrets that sandboxes can use and no caller can read",
		Long: `Keep secrets on the server, encrypted. A sandbox, command or process that asks
for one gets it in its environment; what it prints has [redacted:NAME] in its
place. Values are never shown again.
` + remoteHelp,
		Example: `  hutch secret set GITHUB_TOKEN
  hutch exec --secret GITHUB_TOKEN demo 'git clone https://x:$GITHUB_TOKEN@github.com/me/app'`,
	}
	c.AddCommand(newSecretSet(h, std), newSecretList(h, std), newSecretDelete(h, std))
	return c
}

func newSecretSet(h *home, std streams) *cobra.Command {
	var b hutch.Brokering
	var brokered bool
	c := &cobra.Command{
		Use: "set NAME", Short: "Set a secret to what is typed, unseen, or piped in",
		Long: `Set a secret to what is typed, unseen, or to all of the standard input but a last
line feed. It takes the place of one of that name; programs that run keep the old
value, which is looked for in output for 30 days more.

With --host, the secret is brokered: programs get a placeholder for it, and the
server adds the value to the requests that they send there over TLS. Where to,
--as says: replace puts it in the place of the placeholder, wherever that stands
in a header; header:NAME, basic:USER and query:NAME set it.
` + remoteHelp,
		Example: `  hutch secret set GITHUB_TOKEN --host api.github.com --host github.com
  hutch secret set WEATHER_KEY --host api.weather.example:8443 --as query:appid
  hutch secret set ANTHROPIC_API_KEY --brokered`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := hutch.CheckSecretName(args[0]); err != nil {
				return err
			}
			req, err := brokering(c, args[0], b, brokered)
			if err != nil {
				return err
			}
			value, err := readSecret(c.Context(), std, "value of "+args[0])
			if err != nil {
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			req.Value = value
			made, err := svc.SetSecret(c.Context(), args[0], req)
			if err == nil && !made.Redacted {
				fmt.Fprintf(std.err, "hutch: warning: a value of less than %d bytes is not replaced in output, where it would be found by chance\n", hutch.MinRedacted)
			}
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&brokered, "brokered", false, "keep the value out of sandboxes; for ANTHROPIC_API_KEY no host need be named")
	f.StringSliceVar(&b.Hosts, "host", nil, "host, or HOST:PORT, that the value is sent to, and no other; implies --brokered")
	f.StringVar(&b.As, "as", "", "where it goes: replace, header:NAME, basic:USER or query:NAME (default replace)")
	f.StringVar(&b.Format, "format", "", `what the header is set to, such as "Bearer {}" (default "{}")`)
	return withJSON(c, std, func(args []string) done { return done{"name": args[0]} })
}

// brokering returns the flags' settings for brokering a secret, checked before asking for its value.
func brokering(c *cobra.Command, name string, b hutch.Brokering, brokered bool) (req hutch.SecretRequest, err error) {
	f := c.Flags()
	if !brokered && !f.Changed("host") && !f.Changed("as") && !f.Changed("format") {
		return req, nil
	}
	b, err = b.Complete(name)
	req.Brokered = &b
	return req, err
}

// readSecret reads a value without showing it.
func readSecret(ctx context.Context, std streams, what string) (string, error) {
	if !isTerminal(std.in) {
		b, err := io.ReadAll(io.LimitReader(std.in, hutch.MaxSecret+2)) // the server refuses it if it is too long
		return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), err
	}
	fmt.Fprintf(std.err, "%s: ", what)
	defer fmt.Fprintln(std.err)
	return unseen(ctx, std.in)
}

// unseen reads a line without showing it. Cancelling restores the terminal.
func unseen(ctx context.Context, tty *os.File) (string, error) {
	fd := int(tty.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	type line struct {
		text []byte
		err  error
	}
	typed := make(chan line, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		typed <- line{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", cause(ctx, term.Restore(fd, before))
	case l := <-typed:
		return string(l.text), l.err
	}
}

func cause(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}

func newSecretList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the names of secrets", Long: "List the names of secrets, without their values.\n" + remoteHelp,
		Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			list, err := svc.Secrets(ctx)
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "SECRET\tUPDATED\tREDACTED\tBROKERED FOR", secretRow)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func secretRow(s hutch.Secret) []any {
	updated, hosts := "by the server", "-"
	if s.UpdatedAt != nil {
		updated = when(s.UpdatedAt, "")
	}
	if s.Brokered != nil {
		hosts = strings.Join(s.Brokered.Hosts, ",")
	}
	return []any{s.Name, updated, yesNo(s.Redacted), hosts}
}

func newSecretDelete(h *home, std streams) *cobra.Command {
	var asJSON bool
	names := func(ctx context.Context, svc *client.Client) (names []string, err error) {
		list, err := svc.Secrets(ctx)
		for _, s := range list {
			names = append(names, s.Name)
		}
		return names, err
	}
	c := &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"delete"}, Short: "Delete secrets",
		Long: `Delete secrets. Running programs keep the values that they were given, which are
still replaced in output for 30 days.
` + goneHelp + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: removal{"secret", names, (*client.Client).DeleteSecret}.onEach(h, std, &asJSON),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
