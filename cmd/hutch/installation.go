package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hutch"
	"hutch/client"
	"hutch/internal/daemon"
	"hutch/internal/datadir"
	"hutch/internal/installation"
	"hutch/internal/secret"
)

func newInstallation(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "installation", Short: "Back up everything that a server needs, and restore it on another machine",
		Long: `Back up the whole data folder of a server to one file, and restore it on an
empty machine: sandboxes with their memory, snapshots, templates,
volumes, images, tokens, secrets, authorities, the audit log and timelines.
For copies of folders of sandboxes, see hutch backup.`,
		Example: `  hutch installation backup /mnt/backups/hutch-monday
  hutch installation verify /mnt/backups/hutch-monday
  hutch installation restore /mnt/backups/hutch-monday --secret-key hutch.key --data /srv/hutch`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newInstallationBackup(h, std), newInstallationVerify(h, std), newInstallationRestore(h, std))
	return c
}

const backupKeyHelp = `
The backup is encrypted with the installation's secret key, which is
server/secrets.key in the data folder, unless the server has it from elsewhere.`

func newInstallationBackup(h *home, std streams) *cobra.Command {
	var keyFile string
	var withKey, noCheckpoints, asJSON bool
	c := &cobra.Command{
		Use: "backup FILE", Short: "Write a backup of the data folder, while its server runs or is down",
		Long: `Write a backup of the data folder to a file. The server can run or be down.

Sandboxes that sleep are in the backup with their files and memory. Of those that
are awake, the server makes copies for the backup, two at a time. They continue to
run, but each of them pauses while its memory is copied. A copy has only the files
if the runtime saves no memory, or if a call is in progress for 5 seconds.
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
			opt := installation.Options{To: args[0], Key: key, WithKey: withKey, Version: thisVersion().Version}
			var m installation.Manifest
			if noCheckpoints {
				m, err = installation.Write(c.Context(), data, opt)
			} else {
				m, err = h.writeWithCheckpoints(c.Context(), data, opt, std.err)
			}
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
	f.BoolVar(&noCheckpoints, "no-checkpoints", false, "leave out sandboxes that are awake, and disturb none")
	f.BoolVar(&withKey, "with-key", false, "put the secret key into the backup, in clear")
	keyFileVar(f, &keyFile)
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// errWritten ends the call that keeps the copies for a backup.
var errWritten = errors.New("the backup is written")

// writeWithCheckpoints writes a backup while the server of the data folder, if it runs, has copies of the sandboxes that are awake. It writes
// to errs what the copies lack.
func (h *home) writeWithCheckpoints(ctx context.Context, data datadir.Folder, opt installation.Options, errs io.Writer) (m installation.Manifest, err error) {
	if a, runs := datadir.Running(data.Path(datadir.Server)); !runs || a.URL == "" {
		return installation.Write(ctx, data, opt)
	}
	if err := installation.CheckTarget(data, opt.To); err != nil {
		return m, err
	}
	t, err := h.localTarget(os.Getenv("HUTCH_TOKEN"))
	if err != nil {
		return m, err
	}
	var withoutMemory []string
	err = client.New(t.url, t.token).CheckpointAll(ctx, func(c hutch.Checkpoint) error {
		switch {
		case c.Done:
			if m, err = installation.Write(ctx, data, opt); err != nil {
				return err
			}
			return errWritten
		case c.Missing != "":
			fmt.Fprintf(errs, "%s could not be copied: %s\n", ownedName(c), c.Missing)
		case !c.Memory:
			withoutMemory = append(withoutMemory, ownedName(c))
		}
		return nil
	})
	leftOut := slices.Concat(m.Awake, m.Changing) // they were created again, or fell asleep, since
	withoutMemory = slices.DeleteFunc(withoutMemory, func(name string) bool { return slices.Contains(leftOut, name) })
	if len(withoutMemory) > 0 {
		fmt.Fprintf(errs, "in it with their files, but without their processes: %s\n", someOf(withoutMemory))
	}
	switch {
	case errors.Is(err, errWritten):
		return m, nil
	case err == nil:
		return m, hutch.Errorf(hutch.Unavailable, "the server ended while the backup was made: try again")
	case errors.Is(err, hutch.Denied):
		return m, hutch.Errorf(hutch.Denied, "the server makes copies of running sandboxes only for a token with the scope admin: set HUTCH_TOKEN, or leave these sandboxes out with --no-checkpoints").Because(err)
	}
	return m, err
}

func ownedName(c hutch.Checkpoint) string {
	if c.Owner == "" {
		return c.SandboxID
	}
	return c.Owner + "/" + c.SandboxID
}

// someOf lists the first few names.
func someOf(names []string) string {
	shown := names[:min(len(names), 10)]
	text := strings.Join(shown, ", ")
	if n := len(names) - len(shown); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
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
	if m.Copied > 0 {
		text += fmt.Sprintf(", copies of %d that were awake", m.Copied)
	}
	return text
}

// tellAboutBackup says what a backup does not have.
func tellAboutBackup(std streams, m installation.Manifest) {
	if len(m.Awake) > 0 {
		fmt.Fprintf(std.err, "not in it, because they are awake: %s\n", someOf(m.Awake))
	}
	if len(m.Changing) > 0 {
		fmt.Fprintf(std.err, "not in it, because they changed all the time: %s\n", someOf(m.Changing))
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

// foundKey returns the secret key in the data folder, or nil if there is none.
func (h *home) foundKey() *secret.Key {
	data, err := h.existing()
	if err != nil {
		return nil
	}
	key, err := daemon.ExistingKey(serverOf(data), daemon.Secrets{})
	if err != nil {
		return nil
	}
	return key
}

func newInstallationVerify(h *home, std streams) *cobra.Command {
	var keyFile string
	var asJSON bool
	c := &cobra.Command{
		Use: "verify FILE", Short: "Read a whole backup, and say whether it is intact",
		Long: "Read a backup to its end, and print what is in it. A backup that was cut off or\nchanged is an error.\n" + backupKeyHelp + "\nThe key of the data folder is used if no other one is given.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withBackup(c.Context(), std, keyFile, asJSON, func(ctx context.Context, key *secret.Key) (installation.Manifest, string, error) {
				m, err := installation.Verify(ctx, args[0], key, h.foundKey())
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
			path, err := h.path()
			if err != nil {
				return err
			}
			if h.dir, err = filepath.Abs(path); err != nil { // Restore creates it
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
