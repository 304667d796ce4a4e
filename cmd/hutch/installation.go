package main

import (
	"cmp"
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
	"hutch/internal/store"
)

func newInstallation(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "installation", Short: "Back up everything that a server needs, and restore it on another machine",
		Long: `Back up the whole data folder of a server to one file, and restore it on an
empty machine: sandboxes with their memory, snapshots, templates,
volumes, images, tokens, secrets, authorities, the audit log and timelines. If
the state is in PostgreSQL, the database is in the file, too.
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
	var b installationBackup
	var asJSON bool
	c := &cobra.Command{
		Use: "backup FILE", Short: "Write a backup of the data folder and the database, while the server runs or is down",
		Long: `Write a backup of the data folder to a file. The server can run or be down.

Sandboxes that sleep are in the backup with their files and memory. Of those that
are awake, the server makes copies for the backup, two at a time. They continue to
run, but each of them pauses while its memory is copied. A copy has only the files
if the runtime saves no memory, or if a call is in progress for 5 seconds.
` + backupKeyHelp + ` Keep a
copy of the key apart from the backup: without the key, a backup is worth nothing.
With --with-key the key is in the file, and anyone who has the file can read everything.

If the state is in PostgreSQL, give the URL of the database with --store or in
HUTCH_STORE; a node of a fleet has it in its data folder. The backup has all of
the database, as it was at one moment, and the data folder of this server. In a
fleet, back up the other nodes first, with --no-database, and this one last.`,
		Example: "  hutch installation backup /mnt/backups/hutch-$(date +%F)",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			b.To = args[0]
			m, err := b.write(c.Context(), h, std.err)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, m)
			}
			fmt.Fprintf(std.out, "wrote %s: %s\n", b.To, contentsOf(m))
			tellAboutBackup(std, m)
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&b.noCheckpoints, "no-checkpoints", false, "leave out sandboxes that are awake, and disturb none")
	f.BoolVar(&b.WithKey, "with-key", false, "put the secret key into the backup, in clear")
	f.StringVar(&b.url, "store", "", "URL of the database, as of hutch serve (default $HUTCH_STORE, or as in the data folder of a node)")
	f.BoolVar(&b.WithoutDatabase, "no-database", false, "leave the PostgreSQL database out, for all nodes of a fleet but one")
	keyFileVar(f, &b.keyFile)
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// installationBackup is a backup that a caller asks for.
type installationBackup struct {
	installation.Options
	keyFile, url  string // of the secret key, and of the database; "" for the usual ones
	noCheckpoints bool
}

func (b installationBackup) write(ctx context.Context, h *home, errs io.Writer) (installation.Manifest, error) {
	data, err := h.existing()
	if err != nil {
		return installation.Manifest{}, err
	}
	b.Version = thisVersion().Version
	if b.Key, err = daemon.ExistingKey(serverOf(data), keyOptions(b.keyFile)); err != nil {
		return installation.Manifest{}, err
	}
	if err := installation.CheckTarget(data, b.To); err != nil {
		return installation.Manifest{}, err
	}
	if b.Database, err = openDatabase(ctx, data, b.url, b.Options, errs); err != nil {
		return installation.Manifest{}, err
	}
	if b.Database != nil {
		defer b.Database.Close()
	}
	if b.noCheckpoints {
		return installation.Write(ctx, data, b.Options)
	}
	return h.writeWithCheckpoints(ctx, data, b.Options, errs)
}

// storeURL returns the URL of a database that a caller gives; "" for none.
func storeURL(flag string) (string, error) {
	url := cmp.Or(flag, os.Getenv(serverSettings.Variable("store")))
	return url, checkStore(url)
}

// openDatabase opens the database of the server in a data folder for a backup; nil if there is none. If the backup is
// made without the database, a database that does not answer is not an error.
func openDatabase(ctx context.Context, data datadir.Folder, flag string, opt installation.Options, errs io.Writer) (*store.Backup, error) {
	member, known, shares, err := daemon.SharedStore(data.Path(datadir.Server))
	if err != nil || !shares {
		return nil, err
	}
	url, err := storeURL(flag)
	if err != nil {
		return nil, err
	}
	if url = cmp.Or(url, known); url == "" {
		return nil, nil
	}
	b, err := daemon.OpenBackup(ctx, url, member.Installation, opt.Key)
	if err != nil && opt.WithoutDatabase && hutch.KindOf(err) == hutch.Unavailable {
		fmt.Fprintf(errs, "the backup is made without a look at the database %s, which does not answer\n", store.Where(url))
		return nil, nil
	}
	return b, err
}

// errWritten ends the call that keeps the copies for a backup.
var errWritten = errors.New("the backup is written")

// writeWithCheckpoints writes a backup. If the server of the data folder runs, it first copies the sandboxes that are
// awake, and keeps the copies until the backup is written. What the copies lack is written to errs.
func (h *home) writeWithCheckpoints(ctx context.Context, data datadir.Folder, opt installation.Options, errs io.Writer) (m installation.Manifest, err error) {
	if a, runs := datadir.Running(data.Path(datadir.Server)); !runs || a.URL == "" {
		return installation.Write(ctx, data, opt)
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
	leftOut := slices.Concat(m.Awake, m.Changing) // can have changed since the copies
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

// existing returns the data folder without creating it.
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

// serverOf returns the folder of the server in a data folder, or that of `hutch conversation` if no other exists.
func serverOf(data datadir.Folder) string {
	if _, err := os.Stat(data.Path(datadir.Server)); err != nil {
		return data.Path(datadir.Conversation)
	}
	return data.Path(datadir.Server)
}

func contentsOf(m installation.Manifest) string {
	text := fmt.Sprintf("%d files, %s", m.Files, size(m.Bytes))
	if m.Node == "" || m.Asleep > 0 {
		text += fmt.Sprintf(", %d sleeping sandboxes", m.Asleep)
	}
	if m.Copied > 0 {
		text += fmt.Sprintf(", copies of %d that were awake", m.Copied)
	}
	if m.Database != nil {
		text += fmt.Sprintf(", and the database: %d rows", m.Database.Rows())
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
	if m.Node != "" && m.Database == nil {
		fmt.Fprintln(std.err, "the database is not in it: keep a backup beside it that has the database, such as that of another node")
	}
	if others := otherNodes(m); len(others) > 0 {
		fmt.Fprintf(std.err, "only the data folder of the node %s is in it: back up the others too, with --no-database: %s\n", m.Node, someOf(others))
	}
	if !m.WithKey {
		fmt.Fprintln(std.err, "keep the secret key apart from it: without the key, the backup cannot be restored")
	}
}

// otherNodes lists the nodes in the database of a backup that have sandboxes, and whose data folder is not in the backup.
func otherNodes(m installation.Manifest) (names []string) {
	if m.Database == nil {
		return nil
	}
	for name, n := range m.Database.Sandboxes {
		if name != m.Node && n > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
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
	var keyFile, url string
	var noDatabase, asJSON bool
	c := &cobra.Command{
		Use: "restore FILE", Short: "Restore a backup into an empty data folder and an empty database",
		Long: `Restore a backup into the data folder, which must be empty. A backup that was
cut off or changed, or that belongs to another key, is refused, and nothing of
it is there. If the command is interrupted, repeat it.

If the backup has a PostgreSQL database, give the URL of an empty one with
--store or in HUTCH_STORE. It is filled in one transaction. Start the server with
the same URL. Of the backups of a fleet, restore the one with the database first,
and each of the others on its machine with --store and --no-database. With
--no-database, the data folder is restored for a database that is there.
` + backupKeyHelp + `
Give it with --secret-key FILE or in HUTCH_SECRET_KEY, if the backup was made
without --with-key.

The server that the backup was made of must not run any more: both would be
the same server.`,
		Example: "  HUTCH_SECRET_KEY_FILE=hutch.key hutch installation restore /mnt/backups/hutch-monday",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path, err := h.path()
			if err != nil {
				return err
			}
			if h.dir, err = filepath.Abs(path); err != nil { // the folder need not exist: Restore creates it
				return err
			}
			to, err := storeURL(url)
			if err != nil {
				return err
			}
			return withBackup(c.Context(), std, keyFile, asJSON, func(ctx context.Context, key *secret.Key) (installation.Manifest, string, error) {
				m, err := installation.Restore(ctx, args[0], key, h.data(), restoreOptions(to, noDatabase))
				if err != nil {
					return m, "", err
				}
				if url != "" && m.Node == "" {
					fmt.Fprintln(std.err, "--store is not used: the backup is of a server with its state in the data folder, which hutch store move moves to a database")
				}
				if m.Database != nil && !noDatabase {
					if others := otherNodes(m); len(others) > 0 {
						fmt.Fprintf(std.err, "the database has sandboxes of other nodes: restore their data folders too; in a fleet, hutch node rm removes a node that is lost: %s\n", someOf(others))
					}
				}
				return m, restoredText(h.dir, to, m), nil
			})
		},
	}
	f := c.Flags()
	f.StringVar(&url, "store", "", "URL of the empty database that the database of the backup is restored to (default $HUTCH_STORE)")
	f.BoolVar(&noDatabase, "no-database", false, "restore only the data folder, for a database that is there")
	keyFileVar(f, &keyFile)
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// restoreOptions are the options of a restore with the database of a URL; "" for none.
func restoreOptions(url string, noDatabase bool) installation.RestoreOptions {
	opt := installation.RestoreOptions{WithoutDatabase: noDatabase}
	if url != "" {
		opt.Database = func(ctx context.Context, key *secret.Key, id string) (*store.Restore, error) {
			return daemon.BeginRestore(ctx, url, id, key)
		}
		opt.Adapt = func(server string) error { return daemon.ChangeStore(server, url) }
	}
	return opt
}

// restoredText says what was restored, and the next step.
func restoredText(dir, url string, m installation.Manifest) string {
	text := fmt.Sprintf("restored to %s: %s\nstart the server: hutch serve", dir, contentsOf(m))
	if m.Node != "" && url != "" {
		text += ", with the database " + store.Where(url)
	}
	return text
}
