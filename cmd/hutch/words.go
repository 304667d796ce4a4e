package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groups are the commands as the help of hutch lists them.
var groups = []struct {
	id, title string
	commands  string
}{
	{"run", "Run code:", "run exec code ask shell flow languages"},
	{"agents", "Coding agents:", "claude agent"},
	{"sandboxes", "Sandboxes:", "create ls inspect update rm pause hibernate resume fork snapshot restore template types share timeline top stats monitor usage"},
	{"processes", "Processes in a sandbox:", "start ps logs kill watch-link screen"},
	{"images", "Images:", "image build"},
	{"files", "Files in a sandbox:", "cp fs watch git backup volume"},
	{"network", "Network and secrets:", "network expose unexpose ports forward secret"},
	{"server", "The server:", "serve config down conversation token owner audit pool authority store installation node doctor"},
	{"clients", "Clients:", "login context ssh ssh-config ssh-key ssh-proxy mcp worker controller version completion help"},
}

// group puts the commands of root in their groups.
func group(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		names := strings.Fields(g.commands)
		for _, c := range root.Commands() {
			if slices.Contains(names, c.Name()) {
				c.GroupID = g.id
			}
		}
	}
	root.SetHelpCommandGroupID("clients")
	root.SetCompletionCommandGroupID("clients")
}

// foreignWords maps words of other programs to Hutch's words for the same thing.
var foreignWords = map[string]string{
	"stop": "`hutch pause SANDBOX` keeps it in memory, `hutch rm SANDBOX` destroys it, `hutch down` ends the server", "up": "`hutch serve` starts the server",
	"attach": "`hutch shell --attach PROCESS SANDBOX` goes back to a terminal", "pull": "`hutch image pull IMAGE` gets an image", "push": "`hutch image push IMAGE` sends an image to a registry", "rmi": "`hutch image rm IMAGE` removes an image",
	"load": "`hutch image load FILE` reads an image", "save": "`hutch image save IMAGE` writes an image", "tag": "`hutch image tag IMAGE NAME` names an image",
	"logout": "`hutch context rm NAME` forgets a server",
	"cat":    "`hutch fs cat SANDBOX PATH` prints a file", "edit": "`hutch fs edit SANDBOX PATH` edits a file", "history": "`hutch timeline SANDBOX` shows what happened in it, and `hutch audit` what was done on the server",
	"port": "`hutch expose SANDBOX PORT` gives a port a URL", "allow": "`hutch network SANDBOX --allow NAME` lets it reach a name",
	"uninstall": "`hutch down` ends everything; then remove the programs and the data folder",
}

// suggestion returns the command that an unknown word probably meant.
func suggestion(c *cobra.Command, word string) string {
	if hint := foreignWords[word]; hint != "" && !c.HasParent() {
		return ": " + hint
	}
	return similarName(word, commandNames(c))
}

// wrongArgs describes a wrong number of arguments.
func wrongArgs(c *cobra.Command, check cobra.PositionalArgs, args []string) error {
	problem := "there are too many arguments"
	for more := 1; more <= 3; more++ {
		if check(c, append(slices.Clone(args), make([]string, more)...)) == nil {
			problem = "an argument is missing"
		}
	}
	return usageError{fmt.Errorf("%s\nusage: %s", problem, c.UseLine())}
}

// flagProblem describes a wrong flag without the words of Go's packages.
func flagProblem(err error) string {
	if lacks, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Sprintf("--%s needs a value", lacks.GetFlag().Name)
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() != "" {
		name, all := unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()
		if name == all {
			return "unknown flag: -" + name
		}
		return fmt.Sprintf("unknown flag: -%s in -%s", name, all)
	}
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error()
	}
	f, fits := bad.GetFlag(), ""
	switch f.Value.Type() {
	case "bool":
		fits = "true or false"
	case "int", "int64":
		fits = "a whole number"
	case "float64":
		fits = "a number"
	case "intSlice":
		fits = "whole numbers with commas between them"
	case "stringToString":
		fits = "NAME=VALUE"
	case "stringSlice":
		fits = "texts with commas between them, or the flag several times"
	default: // a flag of Hutch, whose error says which values are allowed
		return fmt.Sprintf("--%s: %v", f.Name, bad.Unwrap())
	}
	if errors.Is(err, strconv.ErrRange) {
		fits = "a smaller number"
	}
	return fmt.Sprintf("--%s is %q: give %s", f.Name, bad.GetValue(), fits)
}

var (
	signalFlag   = regexp.MustCompile(`^-([0-9]{1,2}|[A-Z][A-Z0-9]+)$`)
	terminalFlag = regexp.MustCompile(`^-(it|ti)$`)
)

// rewrite translates forms from other programs into our flags: kill -9 and exec -it.
func rewrite(args []string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		switch {
		case i == 0 || args[0] != "kill" && args[0] != "exec":
		case args[0] == "kill" && signalFlag.MatchString(a):
			args[i] = "--signal=" + a[1:]
		case args[0] == "exec" && i == 1 && terminalFlag.MatchString(a):
			args[i] = "--tty"
		}
	}
	return args
}
