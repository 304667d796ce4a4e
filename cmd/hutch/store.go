package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/internal/daemon"
	"hutch/internal/store"
)

// checkStore refuses an invalid URL of a store.
func checkStore(url string) error {
	if url == "" {
		return nil
	}
	if err := store.Check(url); err != nil {
		return usageError{fmt.Errorf("--store: %s", hutch.AsError(err).Message)}
	}
	return nil
}

// keyOptions says where the key of secrets is, for commands that read the data folder: in a file, or in the environment
// as for the server.
func keyOptions(file string) (opt daemon.Secrets) {
	if opt.KeyFile = file; file == "" {
		opt.KeyFile = os.Getenv(serverSettings.Variable("secret-key"))
	}
	if opt.KeyFile == "" {
		opt.Key = os.Getenv("HUTCH_SECRET_KEY")
	}
	return opt
}

func newStore(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "store", Short: "Move the server's state to PostgreSQL", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newStoreMove(h, std))
	return c
}

func newStoreMove(h *home, std streams) *cobra.Command {
	var to, keyFile string
	var asJSON bool
	c := &cobra.Command{
		Use: "move --to URL", Short: "Move the state from the data folder to a PostgreSQL database, while the server is down",
		Long: `Move the state of the server, which is in a file of the data folder, to a
PostgreSQL database: records of sandboxes, tokens, grants, SSH keys, secrets,
authorities and what sandboxes used. No server may run meanwhile; sandboxes may.

All of it is written in one transaction and compared with what was there. If
the move is interrupted, repeat it. From then on, start the server with
--store URL. The old file stays in the data folder as hutch.db.moved; the server
does not read it any more.

The database must be empty, and its user must be its owner. $HUTCH_STORE stands
in for --to.`,
		Example: "  hutch store move --to postgres://hutch@db.example/hutch",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if to == "" {
				to = os.Getenv(serverSettings.Variable("store"))
			}
			if to == "" {
				return usageError{fmt.Errorf("--to is missing: give the URL of the database, such as postgres://hutch@db.example/hutch")}
			}
			if err := checkStore(to); err != nil {
				return err
			}
			dir, err := h.storeFolder(false)
			if err != nil {
				return err
			}
			moved, err := daemon.MoveStore(c.Context(), dir, to, keyOptions(keyFile))
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, moved)
			}
			fmt.Fprintf(std.out, "moved to %s: %d sandboxes, %d documents, the use of %d owners\nstart the server with --store, and keep its key: %s\n", moved.Database, moved.Sandboxes, moved.Documents, moved.Owners, moved.Key)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&to, "to", "", "URL of the database, as of hutch serve --store (default $HUTCH_STORE)")
	f.StringVar(&keyFile, "secret-key", "", "file with the key that secrets are encrypted with, as of hutch serve (default: the one in the data folder)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
