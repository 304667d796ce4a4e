package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/text"
)

// version and commit are set by the build.
var (
	version = "0.1.0-dev"
	commit  = ""
)

// thisVersion returns the version of this program.
func thisVersion() hutch.Version {
	return hutch.Version{Version: version, Commit: cmp.Or(commit, vcsCommit())}
}

func fullVersion() string { return versionText(thisVersion()) }

func versionText(v hutch.Version) string { return fmt.Sprintf("%s (commit %s)", v.Version, v.Commit) }

// vcsCommit returns the commit that the Go tool recorded, if the build set none.
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
		Args:          refuseUnknownArgs,
		RunE:          help,
	}
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetVersionTemplate("hutch {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%s; see `%s --help`", flagProblem(err), c.CommandPath())}
	})
	var h home
	root.PersistentFlags().StringVar(&h.dir, "data", "", "data folder (default $HUTCH_DATA, /var/lib/hutch as root, else ~/.local/share/hutch)")
	root.PersistentFlags().StringVar(&h.server, "server", "", "name of the saved server to use (default: see hutch context ls)")
	for _, command := range []func(*home, streams) *cobra.Command{
		newLogin, newContext, newDown, newCreate, newUpdate, newInspect, newServe, newConfig,
		newConversation, newRun, newAsk, newMonitor, newMCP, newDoctor, newExec, newCode, newList,
		newRemove, newGit, newVersion, newAudit, newTimeline, newUsage, newTop, newStats, newPool, newShell, newPs,
		newStart, newLogs, newKill, newLanguages, newToken, newOwner, newShare, newSecret, newAuthority,
		newStore, newInstallation, newNode, newBackup, newVolume, newImage, newBuild, newCopy, newFS,
		newWatch, newWatchLink, newExpose, newUnexpose, newPorts, newForward, newScreen, newSSH,
		newSSHConfig, newSSHKey, newNetwork, newClaude, newAgent, newFlow, newWorker, newController,
		newSnapshot, newTemplate, newTypes, newRestore, newFork, newPause, newHibernate, newResume,
	} {
		root.AddCommand(command(&h, std))
	}
	root.AddCommand(newMan(), newSSHProxy(std))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	group(root)
	explain(root)
	h.withNames(root)
	h.showServer(root)
	return root
}

// refuseUnknownArgs refuses arguments of a command that only has sub-commands.
func refuseUnknownArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		hint := suggestion(c, args[0])
		if hint == "" && c.HasParent() {
			hint = ": use " + anyOf(shownCommands(c))
		}
		return usageError{fmt.Errorf("unknown command %q%s; see `%s --help`", args[0], hint, c.CommandPath())}
	}
	return nil
}

func help(c *cobra.Command, _ []string) error { return c.Help() }

// shownCommands returns the commands that the help of c lists.
func shownCommands(c *cobra.Command) (names []string) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

func anyOf(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func commandNames(c *cobra.Command) (names []string) {
	for _, sub := range c.Commands() {
		names = append(append(names, sub.Name()), sub.Aliases...)
	}
	return names
}

// explain makes all commands below c show the expected arguments and sub-commands in errors.
func explain(c *cobra.Command) {
	for _, sub := range c.Commands() {
		sub.Flags().SortFlags = false // related flags stay together
		if sub.Runnable() {
			sub.Args = explainArgs(sub.Args)
		} else {
			sub.Args, sub.RunE, sub.DisableFlagsInUseLine = refuseUnknownArgs, help, true
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
		switch err := check(c, args); {
		case err == nil:
			return nil
		case c.HasSubCommands():
			return refuseUnknownArgs(c, args)
		}
		return wrongArgs(c, check, args)
	}
}

// showServer makes the help of client commands name the server that they use.
func (h *home) showServer(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		show(c, args)
		if !strings.Contains(c.Long, remoteHelp) {
			return
		}
		words := ""
		switch t, err := h.target(); {
		case err != nil:
			words = fmt.Sprintf("none (%s)", text.Line(err.Error()))
		case t.idle && t.token == "":
			words = fmt.Sprintf("none runs with the %s", t.urlSource)
		default:
			words = fmt.Sprintf("%s (from %s)", t.url, t.urlSource)
		}
		fmt.Fprintf(c.OutOrStdout(), "\nServer in use: %s\n", words)
	})
}

// versionTime is how long `hutch version` waits for the server, which need not run.
const versionTime = 2 * time.Second

func newVersion(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print the version of this program, and of the server if it answers", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			server, at := h.serverVersion(c.Context())
			if asJSON {
				return writeJSON(std.out, struct {
					hutch.Version
					Server *hutch.Version `json:"server,omitempty"`
				}{thisVersion(), server})
			}
			fmt.Fprintln(std.out, "hutch", fullVersion())
			if server != nil {
				fmt.Fprintln(std.out, "server", versionText(*server), "at", at)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// serverVersion returns the version of the server, if one answers.
func (h *home) serverVersion(ctx context.Context) (*hutch.Version, string) {
	t, err := h.target()
	if err != nil || t.token == "" {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	v, err := client.New(t.url, t.token).Version(ctx)
	if err != nil {
		return nil, ""
	}
	return &v, t.url
}

// newLog returns a log that is written to standard error: everything with verbose, otherwise only messages that no
// command's own error contains.
func newLog(std streams, verbose bool) *slog.Logger {
	level := slog.LevelError
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level}))
}

// oneLine returns s for a line of a table: white space becomes one blank, and control characters are removed.
func oneLine(s string) string { return text.Line(strings.Join(strings.Fields(s), " ")) }
