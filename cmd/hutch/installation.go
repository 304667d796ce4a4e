package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hutch/internal/daemon"
	"hutch/internal/datadir"
	"hutch/internal/installation"
	"hutch/internal/secret"
)

func newInstallation(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "installation", Short: "Back up everything that a server needs, and restore it on another machine",
		Long: `Back up the whole data folder of a server to one file, and restore it on an
empty machine: sandboxes that sleep with their memory, snapshots, templates,
volumes, images, tokens, secrets, authorities, the audit log and timelines.
For copies of folders of sandboxes, see hutch backup.`,
		Example: `  hutch installation backup /mnt/backups/hutch-monday
  hutch installation verify /mnt/backups/hutch-monday
  hutch installation restore /mnt/backups/hutch-monday --data /srv/hutch`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newInstallationBackup(h, std), newInstallationVerify(std), newInstallationRestore(h, std))
	return c
}

const backupKeyHelp = `
The backup is encrypted with the installation's secret key, which is
server/secrets.key in the data folder, unless the server has it from elsewhere.`

func newInstallationBackup(h *home, std streams) *cobra.Command {
	var keyFile string
	var withKey, asJSON bool
	c := &cobra.Command{
		Use: "backup FILE", Short: "Write a backup of the data folder, while its server runs or is down",
		Long: `Write a backup of the data folder to a file. The server can run or be down.

Sandboxes that sleep are in the backup with their files and memory. Those that
are awake are not, and the command lists them: put them to sleep first, or end
the server with hutch down, which does that for all.
` + backupKeyHelp + ` Keep a
copy of the key apart from the backup: without the key, a backup is worth nothing.
With --with-key the key is in the file, and anyone who has the file can read everything.

If the state is in PostgreSQL, back up the database with pg_dump first; the
command reminds you.`,
		Example: "  hutch installation backup /mnt/backups/hutch-$(date +%F)",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := h.existing()
			if err != nil {
				return err
			}
			key, err := daemon.ExistingKey(serverOf(data), keyOptions(keyFile))
			if err != nil {
				return err
			}
			m, err := installation.Write(c.Context(), data, installation.Options{To: args[0], Key: key, WithKey: withKey, Version: thisVersion().Version})
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, m)
			}
			fmt.Fprintf(std.out, "wrote %s: %s\n", args[0], contentsOf(m))
			tellAboutBackup(std, m)
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&withKey, "with-key", false, "put the secret key into the backup, in clear")
	keyFileVar(f, &keyFile)
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func keyFileVar(f *pflag.FlagSet, file *string) {
	f.StringVar(file, "secret-key", "", "file with the installation's secret key, as of hutch serve (default $HUTCH_SECRET_KEY_FILE, $HUTCH_SECRET_KEY)")
}

// existing returns the data folder, which is not created.
func (h *home) existing() (datadir.Folder, error) {
	path, err := h.path()
	if err == nil {
		_, err = os.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", notUsed(path)
	}
	if err != nil {
		return "", err
	}
	return datadir.Open(path)
}

// serverOf returns the folder of the server in a data folder, or that of `hutch conversation` if there is only that.
func serverOf(data datadir.Folder) string {
	if _, err := os.Stat(data.Path(datadir.Server)); err != nil {
		return data.Path(datadir.Conversation)
	}
	return data.Path(datadir.Server)
}

func contentsOf(m installation.Manifest) string {
	text := fmt.Sprintf("%d files, %s", m.Files, size(m.Bytes))
	if m.Node == "" {
		text += fmt.Sprintf(", %d sleeping sandboxes", m.Asleep)
	}
	return text
}

// tellAboutBackup says what a backup does not have.
func tellAboutBackup(std streams, m installation.Manifest) {
	if n := len(m.Awake); n > 0 {
		shown := m.Awake[:min(n, 10)]
		more := ""
		if n > len(shown) {
			more = fmt.Sprintf(" and %d more", n-len(shown))
		}
		fmt.Fprintf(std.err, "not in it, because they are awake: %s%s\n", strings.Join(shown, ", "), more)
	}
	if n := len(m.Skipped); n > 0 {
		fmt.Fprintf(std.err, "not in it, because they are not regular files: %d, such as %s\n", n, m.Skipped[0])
	}
	if m.Node != "" {
		fmt.Fprintln(std.err, "the state is in PostgreSQL, and not in this file: keep a dump of it beside, which pg_dump --format=custom writes")
	}
	if !m.WithKey {
		fmt.Fprintln(std.err, "keep the secret key apart from it: without the key, the backup cannot be restored")
	}
}

// givenKey returns the key that the caller gives, or nil.
func givenKey(file string) (*secret.Key, error) {
	opt := keyOptions(file)
	if opt.Key == "" && opt.KeyFile == "" {
		return nil, nil
	}
	return daemon.ExistingKey("", opt)
}

func newInstallationVerify(std streams) *cobra.Command {
	var keyFile string
	var asJSON bool
	c := &cobra.Command{
		Use: "verify FILE", Short: "Read a whole backup, and say whether it is intact",
		Long: "Read a backup to its end, and print what is in it. A backup that was cut off or\nchanged is an error.\n" + backupKeyHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withBackup(c.Context(), std, keyFile, asJSON, func(ctx context.Context, key *secret.Key) (installation.Manifest, string, error) {
				m, err := installation.Verify(ctx, args[0], key)
				return m, "intact: " + contentsOf(m) + ", of " + m.Created.Format("2006-01-02 15:04:05 MST"), err
			})
		},
	}
	keyFileVar(c.Flags(), &keyFile)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func withBackup(ctx context.Context, std streams, keyFile string, asJSON bool, do func(context.Context, *secret.Key) (installation.Manifest, string, error)) error {
	key, err := givenKey(keyFile)
	if err != nil {
		return err
	}
	m, said, err := do(ctx, key)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(std.out, m)
	}
	fmt.Fprintln(std.out, said)
	return nil
}

func newInstallationRestore(h *home, std streams) *cobra.Command {
	var keyFile string
	var asJSON bool
	c := &cobra.Command{
		Use: "restore FILE", Short: "Restore a backup into an empty data folder",
		Long: `Restore a backup into the data folder, which must be empty. A backup that was
cut off or changed, or that belongs to another key, is refused, and nothing of
it is there. If the command is interrupted, repeat it.
` + backupKeyHelp + `
Give it with --secret-key FILE or in HUTCH_SECRET_KEY, if the backup was made
without --with-key.

The server that the backup was made of must not run any more: both would be
the same server. If the state was in PostgreSQL, restore the dump of the database
before you start the server.`,
		Example: "  HUTCH_SECRET_KEY_FILE=hutch.key hutch installation restore /mnt/backups/hutch-monday",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := h.open(); err != nil {
				return err
			}
			return withBackup(c.Context(), std, keyFile, asJSON, func(ctx context.Context, key *secret.Key) (installation.Manifest, string, error) {
				m, err := installation.Restore(ctx, args[0], key, h.data())
				return m, fmt.Sprintf("restored to %s: %s\nstart the server: hutch serve", h.dir, contentsOf(m)), err
			})
		},
	}
	keyFileVar(c.Flags(), &keyFile)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
