package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/datadir"
	"hutch/internal/store"
	"hutch/internal/text"
)

// tokens runs f on the server's tokens: through the server or, if none runs on this machine, directly in its store.
// Only creating a token creates a missing store.
func (h *home) tokens(ctx context.Context, create bool, f func(hutch.Tokens) error) error {
	t, err := h.target()
	if err != nil {
		return err
	}
	if !t.idle {
		svc, err := h.dial()
		if err != nil {
			return err
		}
		return f(svc)
	}
	dir, err := h.storeFolder(create)
	if err != nil {
		return err
	}
	lock, free, err := datadir.LockPatiently(dir)
	switch {
	case err != nil:
		return err
	case !free:
		return hutch.Errorf(hutch.Conflict, "the server of the data folder %s is just starting: try again", h.dir)
	}
	defer lock.Close()
	return storedTokens(ctx, dir, f)
}

// storeFolder returns the folder of a server that does not run.
func (h *home) storeFolder(create bool) (string, error) {
	if create {
		return h.serverFolder()
	}
	dir, err := h.path()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, datadir.Server)
	if _, shares, err := datadir.ReadMembership(dir); err != nil || shares {
		return dir, err
	}
	if _, err := os.Stat(datadir.Database(dir)); err != nil {
		return "", notUsed(filepath.Dir(dir))
	}
	return dir, nil
}

func notUsed(data string) error {
	return hutch.Errorf(hutch.NotFound, "no server has run with the data folder %s: choose another with --data or $HUTCH_DATA, or a server with HUTCH_URL", data)
}

func storedTokens(ctx context.Context, dir string, f func(hutch.Tokens) error) error {
	if _, shares, err := datadir.ReadMembership(dir); err != nil || shares {
		return errors.Join(err, hutch.Errorf(hutch.Unsupported, "the tokens of this server are in a PostgreSQL database, and it does not run: start it with hutch serve, or give the address of another server of its installation with --server"))
	}
	s, err := store.Open(ctx, datadir.Database(dir))
	if err != nil {
		return err
	}
	r, err := auth.Open(ctx, auth.Options{Collection: s.Collection("tokens")})
	if err == nil {
		err = f(r)
	}
	return errors.Join(err, s.Close())
}

func newToken(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "token", Short: "Create, list, rotate and revoke tokens",
		Long: `Create, list, rotate and revoke the tokens that clients bring.

Each has its own sandboxes, scopes and limits. This speaks to the server, with
a token that has the scope admin; when none runs on this machine, it changes
the data folder.
` + remoteHelp,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newTokenCreate(h, std), newTokenList(h, std),
		newTokenVerb(h, std, "show", "Show a token", func(ctx context.Context, t hutch.Tokens, token string) (any, error) { return t.Token(ctx, token) }),
		newTokenVerb(h, std, "rotate", "Give a token a new secret, and end the old one", func(ctx context.Context, t hutch.Tokens, token string) (any, error) {
			return t.RotateToken(ctx, token)
		}),
		newTokenVerb(h, std, "revoke", "End a token, and what is under way for it", func(ctx context.Context, t hutch.Tokens, token string) (any, error) {
			return t.RevokeToken(ctx, token)
		}, "rm", "delete"))
	return c
}

func newTokenCreate(h *home, std streams) *cobra.Command {
	var req hutch.TokenRequest
	var scopes []string
	var expires time.Duration
	var network networkFlags
	var asJSON bool
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a token and print it, this once",
		Example: "  hutch token create ci --scope read,exec --expires 720h\n  hutch token create agent --network-allow pypi.org,files.pythonhosted.org",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			req.Name, req.Lifetime = args[0], hutch.InSeconds(expires)
			for _, s := range scopes {
				req.Scopes = append(req.Scopes, hutch.Scope(s))
			}
			if n := network.network(); !n.IsZero() {
				req.Network = &n
			}
			if err := req.Check(); err != nil {
				return usageError{err}
			}
			return h.tokens(c.Context(), true, func(t hutch.Tokens) error {
				minted, err := t.CreateToken(c.Context(), req)
				if err != nil {
					return err
				}
				return writeToken(std, minted, asJSON)
			})
		},
	}
	f := c.Flags()
	f.StringSliceVar(&scopes, "scope", nil, "what it may do: read, exec, files, ports, admin (default all but admin)")
	positiveDurationVar(f, &expires, "expires", "", 0, "time until it expires (default never)")
	f.IntVar(&req.Limits.Requests, "requests-per-minute", 0, "HTTP requests, -1 for no limit (default the server's, 100)")
	f.IntVar(&req.Limits.Operations, "operations-per-hour", 0, "calls about sandboxes, -1 for no limit (default the server's, 1000)")
	f.IntVar(&req.Limits.Sandboxes, "sandboxes", 0, "at once, -1 for no limit (default the server's, 10)")
	f.StringSliceVar(&req.Registries, "registry", nil, "registry that its images can come from, and no other, such as ghcr.io or *.example.com (default all of the server's)")
	network.flags(f, "network", "network-allow", "a sandbox of the token, at most,")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newTokenList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List tokens, oldest first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return h.tokens(c.Context(), false, func(t hutch.Tokens) error {
				list, err := t.Tokens(c.Context())
				switch {
				case err != nil:
					return err
				case asJSON:
					return writeJSON(std.out, list)
				}
				return writeTokens(std.out, list)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// newTokenVerb returns a command about one token.
func newTokenVerb(h *home, std streams, name, short string, do func(context.Context, hutch.Tokens, string) (any, error), aliases ...string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: name + " TOKEN", Aliases: aliases, Short: short, Long: short + ". TOKEN is its id or its name.", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return h.tokens(c.Context(), false, func(t hutch.Tokens) error {
				v, err := do(c.Context(), t, args[0])
				if err != nil {
					return err
				}
				return writeToken(std, v, asJSON)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// writeToken prints a token. Only a new secret goes to standard output, for scripts; the explanation goes to standard
// error.
func writeToken(std streams, v any, asJSON bool) error {
	if asJSON {
		return writeJSON(std.out, v)
	}
	switch t := v.(type) {
	case hutch.MintedToken:
		fmt.Fprintf(std.err, "token %s (%s); it is shown this once:\n", t.Name, t.ID)
		_, err := fmt.Fprintln(std.out, t.Secret)
		return err
	case hutch.Token:
		return writeTokens(std.out, []hutch.Token{t})
	}
	return nil
}

func writeTokens(w io.Writer, list []hutch.Token) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tNAME\tSTATE\tSCOPES\tREQUESTS/MIN\tOPERATIONS/H\tSANDBOXES\tNETWORK\tREGISTRIES\tLAST USED")
	for _, k := range list {
		var scopes []string
		for _, s := range k.Scopes {
			scopes = append(scopes, string(s))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, text.Line(k.Name), tokenState(k), strings.Join(scopes, ","),
			limit(k.Limits.Requests), limit(k.Limits.Operations), limit(k.Limits.Sandboxes), ceiling(k.Network), dash(text.Line(strings.Join(k.Registries, ","))), when(k.LastUsedAt, "never"))
	}
	return t.Flush()
}

// ceiling describes in few words the most that a token's sandboxes can reach.
func ceiling(n *hutch.Network) string {
	switch {
	case n == nil:
		return "-"
	case len(n.Allow) == 0 && n.Mode != hutch.NetworkAllowList:
		return string(n.Mode)
	}
	return fmt.Sprintf("%s (%d)", n.Mode, len(n.Allow))
}

func tokenState(t hutch.Token) string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case !t.Live(time.Now()):
		return "expired"
	case t.ExpiresAt != nil:
		return "until " + when(t.ExpiresAt, "")
	}
	return "live"
}

func limit(n int) string {
	if n < 0 {
		return "none"
	}
	return strconv.Itoa(n)
}

func when(at *time.Time, never string) string {
	if at == nil {
		return never
	}
	return at.Local().Format("2006-01-02 15:04")
}

func newShare(h *home, std streams) *cobra.Command {
	var to string
	var read, write, end, asJSON bool
	c := &cobra.Command{
		Use: "share SANDBOX", Short: "Share a sandbox of yours with another token",
		Long: `Share a sandbox with another token, to read or to write, or list with whom it
is shared. The other uses it by its id. Only its owner can destroy or share it.
` + remoteHelp,
		Example: "  hutch share build --to ci --read\n  hutch share build --to ci --end\n  hutch share build",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			chosen := 0
			for _, b := range []bool{read, write, end} {
				if b {
					chosen++
				}
			}
			if (to == "") != (chosen == 0) || chosen > 1 {
				return usageError{errors.New("give --to NAME with one of --read, --write and --end, or nothing to list")}
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			switch {
			case to == "":
				return listGrants(c.Context(), svc, args[0], asJSON, std.out)
			case end:
				return svc.Unshare(c.Context(), args[0], to)
			}
			access := hutch.ReadAccess
			if write {
				access = hutch.WriteAccess
			}
			grant, err := svc.Share(c.Context(), args[0], to, access)
			if err == nil && asJSON {
				err = writeJSON(std.out, grant)
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&to, "to", "", "the other token's name or id")
	f.BoolVar(&read, "read", false, "let it see: records, output, files")
	f.BoolVar(&write, "write", false, "let it do all but destroy and share")
	f.BoolVar(&end, "end", false, "stop sharing it")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func listGrants(ctx context.Context, svc hutch.Sharing, sandbox string, asJSON bool, w io.Writer) error {
	list, err := svc.Grants(ctx, sandbox)
	if err != nil {
		return err
	}
	return writeList(w, asJSON, list, "TOKEN\tNAME\tACCESS\tCREATED", func(g hutch.Grant) []any {
		return []any{g.Token, g.TokenName, g.Access, when(&g.CreatedAt, "")}
	})
}
