package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newWatchLink(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "watch-link", Short: "Make, list and revoke links by which anyone can watch a terminal",
		Long: `Make, list and revoke links to a terminal, such as that of hutch shell, of an agent
or of the console. Anyone with a link can watch the terminal without a token, but
cannot send anything to it. A link shows the output from the oldest that is kept. It
expires after its lifetime, and ends with its sandbox and with the token that made it.
` + remoteHelp,
		Example: "  hutch watch-link create demo shell --lifetime 10m\n  hutch watch-link ls demo shell",
	}
	c.AddCommand(newWatchLinkCreate(h, std), newWatchLinkList(h, std), newWatchLinkRemove(h, std))
	return c
}

func newWatchLinkCreate(h *home, std streams) *cobra.Command {
	var lifetime time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use: "create SANDBOX PROCESS", Short: "Make a link to a terminal, and print it: it is not shown again", Args: cobra.ExactArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			p, err := findProcess(ctx, svc, args[0], args[1])
			if err != nil {
				return err
			}
			link, err := svc.ShareTerminal(ctx, args[0], p.ID, hutch.InSeconds(lifetime))
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, link)
			}
			at, err := h.target()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(std.out, strings.TrimRight(at.url, "/")+link.Path)
			return err
		}),
	}
	positiveDurationVar(c.Flags(), &lifetime, "lifetime", "", time.Hour, "how long the link is valid, 7 days at most")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newWatchLinkList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls SANDBOX PROCESS", Aliases: []string{"list"}, Short: "List your links to a terminal, oldest first", Args: cobra.ExactArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			p, err := findProcess(ctx, svc, args[0], args[1])
			if err != nil {
				return err
			}
			list, err := svc.TerminalLinks(ctx, args[0], p.ID)
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "LINK\tCREATED\tEXPIRES", func(l hutch.TerminalLink) []any {
				return []any{l.ID, l.CreatedAt.Local().Format(time.DateTime), l.ExpiresAt.Local().Format(time.DateTime)}
			})
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newWatchLinkRemove(h *home, std streams) *cobra.Command {
	return withJSON(&cobra.Command{
		Use: "rm SANDBOX PROCESS LINK", Aliases: []string{"delete"}, Short: "Revoke a link, and disconnect its viewers", Args: cobra.ExactArgs(3),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			p, err := findProcess(ctx, svc, args[0], args[1])
			if err != nil {
				return err
			}
			return svc.UnshareTerminal(ctx, args[0], p.ID, args[2])
		}),
	}, std, func(args []string) done { return done{"link": args[2]} })
}
