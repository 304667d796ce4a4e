package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newOwner(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "owner", Aliases: []string{"owners"}, Short: "See and delete what tokens have left on the server",
		Long: `See and delete what owners have. An owner is a token, or a person who signs in. When a
token is revoked or expires, its sandboxes, snapshots, images, volumes, backups and
secrets stay. These commands need a token with the scope admin.
` + remoteHelp,
		Example: `  hutch owner ls
  hutch token revoke ci
  hutch owner rm t-k3f9q2mzx7ap`,
	}
	c.AddCommand(newOwnerList(h, std), newOwnerDelete(h, std))
	return c
}

func newOwnerList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List owners, with what they have",
		Long: "List owners, with what they have. An owner whose token has ended has no TOKEN that is\nvalid.\n" + remoteHelp,
		Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			list, err := svc.Owners(ctx)
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "OWNER\tTOKEN\tVALID\tSANDBOXES\tSNAPSHOTS\tIMAGES\tVOLUMES\tBACKUPS\tSECRETS\tSIZE", func(o hutch.Owned) []any {
				valid := "no"
				if o.Live {
					valid = "yes"
				}
				return []any{o.Owner, dash(o.Name), valid, o.Sandboxes, o.Snapshots, o.Images, o.Volumes, o.Backups, o.Secrets, size(o.Size)}
			})
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newOwnerDelete(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "rm OWNER...", Aliases: []string{"delete"}, Short: "Delete everything that owners have",
		Long: `Delete everything that owners have, and print their ids: sandboxes, whatever they are
doing, snapshots, templates, images, volumes, backups and secrets. Buckets of volumes
stay as they are. An owner with a valid token is refused: revoke the token first.
` + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			var gone []string
			var err error
			for _, owner := range args {
				if _, err = svc.DeleteOwner(ctx, owner); err != nil {
					break
				}
				gone = append(gone, owner)
			}
			return errors.Join(err, writeList(std.out, asJSON, gone, "", func(id string) []any { return []any{id} }))
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
