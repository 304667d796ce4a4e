package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command can print its result as JSON, for scripts.
func TestEveryCommandTellsJSON(t *testing.T) {
	// These print bytes, are for a terminal, serve others, or print JSON anyway.
	exempt := []string{"code", "shell", "inspect", "image inspect", "volume inspect", "template inspect", "fs cat", "fs edit", "git diff", "forward", "screen shot", "screen view", "ssh", "ssh-config", "ssh-proxy", "conversation", "serve", "mcp", "worker", "controller", "completion", "help", "man"}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			walk(below)
		}
		name := strings.TrimPrefix(c.CommandPath(), "hutch ")
		if c.HasSubCommands() || slices.ContainsFunc(exempt, func(e string) bool { return name == e || strings.HasPrefix(name, e+" ") }) {
			return
		}
		if c.Flags().Lookup("json") == nil && c.InheritedFlags().Lookup("json") == nil {
			t.Errorf("hutch %s has no --json", name)
		}
	}
	walk(root())
}
