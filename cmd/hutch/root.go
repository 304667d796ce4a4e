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

// thisVersion is the version of this program.
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
	root.AddCommand(
		newLogin(&h, std), newContext(&h, std), newDown(&h, std), newCreate(&h, std), newUpdate(&h, std), newInspect(&h, std),
		newServe(&h, std), newConfig(&h, std), newMan(), newConversation(&h, std), newRun(&h, std), newAsk(&h, std), newMonitor(&h, std), newMCP(&h, std), newDoctor(&h, std),
		newExec(&h, std), newCode(&h, std), newList(&h, std), newRemove(&h, std), newGit(&h, std), newVersion(&h, std), newAudit(&h, std), newTimeline(&h, std), newUsage(&h, std), newTop(&h, std), newPool(&h, std),
		newShell(&h, std), newPs(&h, std), newStart(&h, std), newLogs(&h, std), newKill(&h, std), newLanguages(&h, std),
		newToken(&h, std), newOwner(&h, std), newShare(&h, std), newSecret(&h, std), newAuthority(&h, std), newStore(&h, std), newInstallation(&h, std), newNode(&h, std), newBackup(&h, std), newVolume(&h, std), newImage(&h, std), newBuild(&h, std), newCopy(&h, std), newFS(&h, std), newWatch(&h, std), newWatchLink(&h, std),
		newExpose(&h, std), newUnexpose(&h, std), newPorts(&h, std), newForward(&h, std), newScreen(&h, std), newSSH(&h, std), newSSHConfig(&h, std), newSSHKey(&h, std), newSSHProxy(std), newNetwork(&h, std),
		newClaude(&h, std), newAgent(&h, std), newFlow(&h, std), newWorker(&h, std), newController(&h, std),
		newSnapshot(&h, std), newTemplate(&h, std), newTypes(&h, std), newRestore(&h, std), newFork(&h, std), newPause(&h, std), newHibernate(&h, std), newResume(&h, std),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	group(root)
	explain(root)
	h.withNames(root)
	h.tellServer(root)
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

// shownCommands are the commands that the help of c lists.
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

// tellServer adds to the help of client commands which server they talk to.
func (h *home) tellServer(root *cobra.Command) {
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

// serverVersion asks the server, if one answers.
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

// newLog writes to standard error: everything with verbose, otherwise only messages that no command's own error
// contains.
func newLog(std streams, verbose bool) *slog.Logger {
	level := slog.LevelError
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level}))
}

// oneLine is s for a line of a table: white space becomes one blank, and control characters are removed.
func oneLine(s string) string { return text.Line(strings.Join(strings.Fields(s), " ")) }
