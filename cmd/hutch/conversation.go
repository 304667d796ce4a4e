package main

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"hutch"
)

func newConversation(h *home, std streams) *cobra.Command {
	var fl serveFlags
	c := &cobra.Command{
		Use:   "conversation",
		Short: "Run the server of conversations, or list and delete those of a server",
		Long: `Run the server of conversations: the MCP tools sandbox.run_code and
sandbox.list_runners at /mcp, events at /mcp/events, files at /files by signed
links, and a page at /. A link to this program called hutch-conversation needs
no arguments. All is set in the environment:

  MCP_API_TOKEN    what clients must bring; needed
  FILE_SECRET      what signs links (default: made at the first start)
  SANDBOX_ROOT     folder of the conversations (default: in the data folder)
  PUBLIC_BASE_URL  how people reach the server, for links
  MCP_HTTP_ADDR    address and port (default :8080)
  DOCKER_HOST      Docker engine whose images with the label sandbox.runner=true
                   are languages, too

TUNNEL_TOKEN may be set and is not used: the tunnel is a program of its own.

With ls and rm it asks a server that runs: this one, or that of hutch serve.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if fl.Token = os.Getenv("MCP_API_TOKEN"); fl.Token == "" {
				return hutch.Errorf(hutch.Invalid, "MCP_API_TOKEN is not set: set it to what clients are to bring as their bearer token, such as the output of `openssl rand -hex 32`")
			}
			fl.Limits.Sandboxes = hutch.Unlimited // --max-sandboxes is the limit instead
			fl.Conversations.Only, fl.previewDomain = true, "localhost"
			fl.Conversations.Docker = os.Getenv("DOCKER_HOST") != ""
			fl.Listen = cmp.Or(os.Getenv("MCP_HTTP_ADDR"), ":8080")
			// The server is called by unknown names, behind tunnels and proxies. A page that reaches it under such a
			// name can open nothing without a token or a signature.
			fl.Hosts = []string{"*"}
			return serve(c.Context(), h, std, &fl)
		},
	}
	f := c.Flags()
	f.StringVar(&fl.Sandboxes.Runtime, "runtime", "", "runtime: gvisor, native, docker or kubernetes (default: the first that works)")
	f.IntVar(&fl.Sandboxes.Max, "max-sandboxes", 100, "most conversations with a sandbox at once; a new one takes the place of the one that was used least recently")
	// One token serves all chats, and a run is several operations.
	f.IntVar(&fl.Limits.Requests, "requests-per-minute", hutch.Unlimited, "HTTP requests, -1 for no limit")
	f.IntVar(&fl.Limits.Operations, "operations-per-hour", hutch.Unlimited, "calls about sandboxes, -1 for no limit; a run is several")
	durationVar(f, &fl.Conversations.LinkLife, "link-life", "", 0, "how long links to files are valid, 0 for ever (default)")
	fl.conversationFlags(f, 0, 0)
	f.BoolVarP(&fl.quiet, "quiet", "q", false, "log warnings only")
	c.AddCommand(newConversationList(h, std), newConversationRemove(h, std))
	return c
}
