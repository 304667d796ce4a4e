package main

import (
	"github.com/spf13/cobra"
)

// done is the result of a command, as JSON, for commands that print nothing else.
type done map[string]any

// withJSON adds a flag --json to a command that otherwise prints nothing. With the flag, the command prints what it has
// done.
func withJSON(c *cobra.Command, std streams, result func(args []string) done) *cobra.Command {
	var asJSON bool
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := run(c, args); err != nil || !asJSON {
			return err
		}
		return writeJSON(std.out, result(args))
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print what was done as JSON")
	return c
}

// alwaysJSON accepts --json for a command that always prints JSON, for scripts that pass --json to every command.
func alwaysJSON(c *cobra.Command) *cobra.Command {
	c.Flags().Bool("json", true, "print JSON, which is all that it prints")
	return c
}

// onPaths returns the result of a command whose arguments are a sandbox and paths in it.
func onPaths(args []string) done { return done{"sandboxId": args[0], "paths": args[1:]} }
