package main

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"hutch/internal/text"
)

// version and commit are set by the build.
var (
	version = "0.1.0-dev"
	commit  = ""
)

// fullVersion is what `hutch version` prints.
func fullVersion() string {
	if commit == "" {
		commit = vcsCommit()
	}
	return fmt.Sprintf("%s (commit %s)", version, commit)
}

// vcsCommit is the commit that the Go tool noted, where the build gave none.
func vcsCommit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

func newRoot(std streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "hutch",
		Short:         "Safe, fast sandboxes for AI agents",
		Version:       fullVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          known,
		RunE:          help,
	}
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetVersionTemplate("hutch {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see `%s --help`", err, c.CommandPath())}
	})
	var h home
	root.PersistentFlags().StringVar(&h.dir, "data", "", "data folder (default $HUTCH_DATA, /var/lib/hutch as root, else ~/.local/share/hutch)")
	root.AddCommand(
		newServe(&h, std), newConversation(&h, std), newRun(&h, std), newMCP(&h, std), newDoctor(&h, std),
		newExec(&h, std), newCode(&h, std), newList(&h, std), newRemove(&h, std), newGit(&h, std), newVersion(std), newAudit(&h, std), newUsage(&h, std), newPool(&h, std),
		newShell(&h, std), newPs(&h, std), newStart(&h, std), newLogs(&h, std), newKill(&h, std), newLanguages(&h, std),
		newToken(&h, std), newShare(&h, std), newSecret(&h, std), newAuthority(&h, std), newBackup(&h, std), newCopy(&h, std), newFS(&h, std), newWatch(&h, std),
		newExpose(&h, std), newUnexpose(&h), newPorts(&h, std), newForward(&h, std), newNetwork(&h, std),
		newSnapshot(&h, std), newTemplate(&h, std), newRestore(&h, std), newFork(&h, std), newPause(&h), newResume(&h),
	)
	explain(root)
	h.withNames(root)
	return root
}

// known refuses arguments of a command that does nothing but have others below
// it: they are none of those.
func known(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unknown command %q%s; see `%s --help`", args[0], meant(args[0], commandNames(c)), c.CommandPath())}
	}
	return nil
}

func help(c *cobra.Command, _ []string) error { return c.Help() }

func commandNames(c *cobra.Command) (names []string) {
	for _, sub := range c.Commands() {
		names = append(append(names, sub.Name()), sub.Aliases...)
	}
	return names
}

// explain has all commands below c say what arguments they want, and which
// commands they have.
func explain(c *cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.Runnable() {
			sub.Args = explainArgs(sub.Args)
		} else {
			sub.Args, sub.RunE, sub.DisableFlagsInUseLine = known, help, true
		}
		explain(sub)
	}
}

// explainArgs makes wrong arguments a usage error that shows the right ones.
func explainArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		if err := check(c, args); err != nil {
			return usageError{fmt.Errorf("%w\nusage: %s", err, c.UseLine())}
		}
		return nil
	}
}

func newVersion(std streams) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version and the commit it was built from", Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { fmt.Fprintln(std.out, "hutch", fullVersion()) },
	}
}

// newLog writes to the standard error: everything with verbose, else what no
// command's own error says.
func newLog(std streams, verbose bool) *slog.Logger {
	level := slog.LevelError
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level}))
}

// oneLine is s for a line of a table: white space is one blank, and nothing in it
// steers the terminal.
func oneLine(s string) string { return text.Line(strings.Join(strings.Fields(s), " ")) }
