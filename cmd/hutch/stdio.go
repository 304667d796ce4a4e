package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"hutch/internal/mcp"
)

func newMCP(h *home, std streams) *cobra.Command {
	var runtime string
	var verbose bool
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Speak MCP on standard input and output, with sandboxes of its own",
		Long: `Speak MCP on standard input and output, as a client starts it, with no server.
It destroys its sandboxes when it ends.`,
		Example: `  {"mcpServers": {"hutch": {"command": "hutch", "args": ["mcp"]}}}`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if isTerminal(std.in) {
				fmt.Fprintln(std.err, "hutch mcp speaks MCP on its standard input and output. An MCP client starts it, with a configuration such as")
				fmt.Fprintln(std.err, c.Example)
				fmt.Fprintln(std.err, "It waits for messages, one a line. Ctrl-D ends it.")
			}
			log := newLog(std, verbose)
			m, err := h.embed(c.Context(), runtime, "", log)
			if err != nil {
				return err
			}
			defer func() {
				if cerr := m.Close(); err == nil {
					err = cerr
				}
			}()
			return mcp.ServeStdio(c.Context(), m, std.in, unclosed{std.out}, mcp.Options{Version: version, Log: log})
		},
	}
	c.Flags().StringVar(&runtime, "runtime", "", "gvisor, native, docker or kubernetes (default: the first that works)")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what is done")
	return c
}

// unclosed is a Writer that its user cannot close.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
