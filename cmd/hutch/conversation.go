package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hutch"
	"hutch/internal/conversation"
)

// conversationConfig is what can be set of conversations: all of it in the
// environment, by the names that deployments of this kind have.
type conversationConfig struct {
	only     bool // no other tools, and no REST
	noTools  bool // none of its tools over MCP
	token    string
	secret   string
	folder   string
	baseURL  string
	linkLife time.Duration
	most     int   // conversations of an owner
	room     int64 // MiB that they keep
}

func conversationEnv() conversationConfig {
	return conversationConfig{
		secret: os.Getenv("FILE_SECRET"), folder: os.Getenv("SANDBOX_ROOT"), baseURL: os.Getenv("PUBLIC_BASE_URL"),
	}
}

// secrets are the credentials that sandboxes can ask for: those of conversations
// run what anyone in a chat may have written, and get none.
func (c conversationConfig) secrets() map[string]string {
	if c.only {
		return nil
	}
	return secrets()
}

// flags are the bounds of what the conversations of one owner keep.
func (c *conversationConfig) flags(f *pflag.FlagSet, most int, room int64) {
	f.IntVar(&c.most, "conversations-per-token", most, "conversations of one token at once, 0 for no limit")
	f.Int64Var(&c.room, "conversation-room", room, "MiB of files that the conversations of one token may keep, 0 for no limit")
}

func newConversation(h *home, std streams) *cobra.Command {
	var cfg serveConfig
	c := &cobra.Command{
		Use:   "conversation",
		Short: "Run the server of conversations: run code over MCP, share files by link",
		Long: `Run the server of conversations: the MCP tools sandbox.run_code and
sandbox.list_runners at /mcp, events at /mcp/events, files at /files by signed
links, and a page at /. A link to this program called hutch-conversation needs
no arguments. All is set in the environment:

  MCP_API_TOKEN    what clients must bring; needed
  FILE_SECRET      what signs links (default: made at the first start)
  SANDBOX_ROOT     folder of the conversations (default: in the data folder)
  PUBLIC_BASE_URL  how people reach the server, for links
  MCP_HTTP_ADDR    address and port (default :8080)

DOCKER_HOST and TUNNEL_TOKEN may be set and are not used: runners are the
languages of this host, and the tunnel is a program of its own.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkLimits(cfg.limits); err != nil {
				return err
			}
			cfg.limits.Sandboxes = hutch.Unlimited // see --max-sandboxes
			given := cfg.talk
			cfg.talk = conversationEnv()
			cfg.talk.only, cfg.talk.linkLife, cfg.talk.most, cfg.talk.room = true, given.linkLife, given.most, given.room
			if cfg.talk.token = os.Getenv("MCP_API_TOKEN"); cfg.talk.token == "" {
				return hutch.Errorf(hutch.Invalid, "MCP_API_TOKEN is not set: set it to what clients are to bring as their bearer token, such as the output of `openssl rand -hex 32`")
			}
			if err := checkSandboxes(cfg.maxSandboxes); err != nil {
				return err
			}
			cfg.listen = cmp.Or(os.Getenv("MCP_HTTP_ADDR"), ":8080")
			// It is called by names that nobody told it, behind tunnels and
			// proxies. A page that is made to reach it under another name
			// finds nothing that opens without a token or a signature.
			cfg.hosts = []string{"*"}
			return (&server{serveConfig: cfg, home: h, std: std}).run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.runtime, "runtime", "", "runtime: gvisor or native (default: the first that works)")
	f.IntVar(&cfg.maxSandboxes, "max-sandboxes", 100, "conversations that have a sandbox at once; the one silent the longest makes room")
	// One token stands for all chats, and a run is several operations.
	f.IntVar(&cfg.limits.Requests, "requests-per-minute", hutch.Unlimited, "HTTP requests that are taken, -1 for no limit")
	f.IntVar(&cfg.limits.Operations, "operations-per-hour", hutch.Unlimited, "calls about sandboxes, likewise; a run is several")
	durationVar(f, &cfg.talk.linkLife, "link-life", "", 0, "how long links to files are good for (default for ever)")
	cfg.talk.flags(f, 0, 0)
	f.BoolVarP(&cfg.quiet, "quiet", "q", false, "log warnings only")
	return c
}

func (s *server) openConversations(context.Context) (err error) {
	secret := s.talk.secret
	if secret == "" {
		if secret, _, err = s.home.secret("file-secret", rand.Text); err != nil {
			return err
		}
	}
	if os.Getenv("DOCKER_HOST") != "" && s.talk.only {
		s.log.Info("DOCKER_HOST is not used: runners are the languages of this host")
	}
	s.talks, err = conversation.New(s.policy, conversation.Options{
		Folder: cmp.Or(s.talk.folder, filepath.Join(s.home.dir, "conversations")), Own: s.talk.folder == "", Secret: []byte(secret),
		BaseURL: s.base(), LinkLife: s.talk.linkLife, Most: s.talk.most, Room: s.talk.room << 20, API: s.apiPage(), Log: s.log,
	})
	if err == nil {
		s.undo = append(s.undo, s.talks.Close)
	}
	return err
}

// base is how people reach the server: as configured, or from this machine.
func (s *server) base() string {
	if u, err := url.Parse(s.talk.baseURL); err == nil && u.Host != "" {
		return strings.TrimSuffix(s.talk.baseURL, "/")
	}
	host, port, err := net.SplitHostPort(s.listener.Addr().String())
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}
