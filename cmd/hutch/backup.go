package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newBackup(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "backup", Short: "Keep copies of folders apart from their sandboxes",
		Long: `Keep copies of sandboxes' folders on the server, or in the S3-compatible bucket
that it was given. They outlive their sandboxes, and hold only files: no memory
and no processes.
` + remoteHelp,
		Example: `  hutch backup create demo --name before
  hutch backup list
  hutch backup restore demo bk-k3f9q2mzx7ap`,
	}
	c.AddCommand(newBackupCreate(h, std), newBackupList(h, std), newBackupRestore(h, std), newBackupDelete(h, std))
	return c
}

func newBackupCreate(h *home, std streams) *cobra.Command {
	var req hutch.BackupRequest
	var ttl time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use: "create SANDBOX [FOLDER]", Short: "Copy a folder, /workspace if none is named",
		Long: `Copy a folder of a sandbox, which keeps running, and print the backup's id. What
programs change meanwhile may be in the copy or not.
` + remoteHelp,
		Args: cobra.RangeArgs(1, 2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			if len(args) > 1 {
				req.Dir = args[1]
			}
			req.TTL = hutch.InSeconds(ttl)
			made, err := svc.Backup(ctx, args[0], req)
			return printMade(std, made.ID, made, asJSON, err)
		}),
	}
	c.Flags().StringVar(&req.Name, "name", "", "a name for people")
	positiveDurationVar(c.Flags(), &ttl, "ttl", "", 0, "delete it after this time (default: never)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newBackupList(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List backups, the oldest first", Long: "List backups, the oldest first.\n" + remoteHelp,
		Args: cobra.NoArgs,
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, _ []string) error {
			list, err := svc.Backups(ctx)
			if err != nil {
				return err
			}
			return writeList(std.out, asJSON, list, "BACKUP\tNAME\tSANDBOX\tFOLDER\tSIZE\tCREATED\tEXPIRES", func(b hutch.Backup) []any {
				return []any{b.ID, dash(b.Name), b.SandboxID, b.Dir, size(b.Size), when(&b.CreatedAt, ""), when(b.ExpiresAt, "never")}
			})
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newBackupRestore(h *home, std streams) *cobra.Command {
	return withJSON(&cobra.Command{
		Use: "restore SANDBOX BACKUP [FOLDER]", Short: "Restore a folder from a backup",
		Long: `Put a backup in a folder of a sandbox: the one that it came from, if none is named.
What is in that folder goes, once the backup has arrived whole and undamaged;
if it has not, the folder is left as it was.
` + remoteHelp,
		Args: cobra.RangeArgs(2, 3),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			return svc.RestoreBackup(ctx, args[1], hutch.RestoreBackupRequest{SandboxID: args[0], Dir: strings.Join(args[2:], "")})
		}),
	}, std, func(args []string) done { return done{"sandboxId": args[0], "backupId": args[1]} })
}

func newBackupDelete(h *home, std streams) *cobra.Command {
	var asJSON bool
	names := func(ctx context.Context, svc *client.Client) (names []string, err error) {
		list, err := svc.Backups(ctx)
		for _, b := range list {
			names = append(names, b.ID)
		}
		return names, err
	}
	c := &cobra.Command{
		Use: "rm BACKUP...", Aliases: []string{"delete"}, Short: "Delete backups", Long: "Delete backups, by their ids.\n" + goneHelp + remoteHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: removal{"backup", names, (*client.Client).DeleteBackup}.onEach(h, std, &asJSON),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
