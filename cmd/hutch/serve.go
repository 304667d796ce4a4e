package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hutch"
	"hutch/internal/backup"
	"hutch/internal/daemon"
	"hutch/internal/datadir"
	"hutch/internal/engine"
	"hutch/internal/host"
	"hutch/internal/image"
	"hutch/internal/linux/cgroup"
	"hutch/internal/listen"
	"hutch/internal/settings"
	"hutch/internal/volume"
)

// serveFlags are the flags of a server: those of its configuration, and texts that
// are parsed into it.
type serveFlags struct {
	daemon.Config
	config        string                     // path of the configuration file
	origins       map[string]settings.Origin // where the values of the flags are from
	warm          []string
	runtimes      host.Server
	types         map[string]string // instance types
	trusted       []string          // proxies
	images        imageFlags
	network       networkFlags
	dns           string
	prices        map[string]string
	logFormat     string
	previewDomain string
	ragflowToken  string // path of a file with the token
	oidcSecret    string // path of a file with the secret
	libreChat     librechatFiles
	ask           askFlags
	anthropic     string // the only host to which the key for Anthropic's API is sent; "" gives the key to sandboxes
	backupRoom    int64  // MiB
	volumeRoom    int64  // MiB
	talkRoom      int64  // MiB
	quiet         bool
	verbose       bool
}

func newServe(h *home, std streams) *cobra.Command {
	var fl serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the server: the console in a browser, MCP at /mcp, REST at /v1",
		Long: `Run the server, with MCP over streamable HTTP at /mcp and REST at /v1.

Clients bring a bearer token: the one that the first start prints and keeps in
the data folder, or one made with ` + "`hutch token create`" + `. SANDBOX_AUTH_TOKEN or
MCP_API_TOKEN in the environment stands in for the first. ANTHROPIC_API_KEY, when
set, is a secret that sandboxes can ask for; as other secrets are, it is replaced
in what they print. HUTCH_SECRET_KEY is the key that secrets are encrypted with, in place of
the one in the data folder. When the server ends, sandboxes keep running; its
next start finds them again.

Every flag can also be set in the file of --config, and by a variable: --pool by
"pool: 64" in the file, and by HUTCH_POOL=64. A flag wins over a variable, and a
variable over the file. See ` + "`hutch config --help`.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := fl.configure(c.Flags()); err != nil {
				return err
			}
			return serve(c.Context(), h, std, &fl)
		},
	}
	fl.define(c.Flags())
	return c
}

// define adds the flags of a server to f. Each flag is also a setting: see package settings.
func (fl *serveFlags) define(f *pflag.FlagSet) {
	f.StringVar(&fl.config, "config", "", "file with settings, one for each flag, e.g. /etc/hutch/hutch.yaml (default $HUTCH_CONFIG, else none)")
	f.StringVar(&fl.Listen, "listen", daemon.DefaultListen, "address and port")
	f.StringVar(&fl.Sandboxes.Runtime, "runtime", "", "default runtime: gvisor, native, docker or kubernetes (default: the first that works)")
	f.StringVar(&fl.runtimes.Pod, "kubernetes-pod", "", "file with the template of the pods of the runtime kubernetes, e.g. deploy/kubernetes/pods/pod.yaml")
	f.BoolVar(&fl.runtimes.OldBuilds, "old-builds", true, "wake what an older or newer version of Hutch put to sleep with its memory, in the kept programs of that version; false: with its files only")
	f.IntVar(&fl.Sandboxes.Max, "max-sandboxes", 100, "sandboxes at once")
	f.Float64Var(&fl.Sandboxes.MaxLimits.CPU, "max-cpu", 0, "most cores that a sandbox can be given, 0 for no ceiling")
	f.IntVar(&fl.Sandboxes.MaxLimits.Memory, "max-memory", 0, "most MiB of memory that a sandbox can be given, 0 for no ceiling (default: what the machine has)")
	f.IntVar(&fl.Sandboxes.MaxLimits.Disk, "max-disk", 20480, "most MiB of written files that a sandbox can have, 0 for no ceiling")
	f.IntVar(&fl.Sandboxes.MaxLimits.PIDs, "max-pids", maxPIDs(), "most processes and threads that a sandbox can have, 0 for no ceiling")
	f.StringToStringVar(&fl.types, "instance-type", nil, "further instance type, as NAME=CPU/MEMORY/DISK in cores and MiB, e.g. big=8/32768/65536; may be repeated")
	f.IntVar(&fl.Sandboxes.Pool, "pool", 64, "most sandboxes to keep ready; the pool grows and shrinks with use, 0 turns it off")
	f.StringArrayVar(&fl.warm, "warm", nil, "an interpreter to start in each sandbox of the pool, with modules imported, e.g. python=pandas,numpy; may be repeated")
	f.BoolVar(&fl.Sandboxes.ColdCompilers, "cold-compilers", false, "do not compile the standard library of Go half a minute after the start; then the first Go program in each sandbox compiles it")
	durationVar(f, &fl.Sandboxes.ExecTimeout, "exec-timeout", "", 30*time.Second, "time limit of a command that asks for none")
	durationVar(f, &fl.Sandboxes.MaxTimeout, "max-timeout", "", 24*time.Hour, "longest time limit that a command can ask for")
	durationVar(f, &fl.Sandboxes.SleepAfter, "sleep-after", "", 10*time.Minute, "idle time after which a sandbox sleeps")
	f.StringSliceVar(&fl.Hosts, "allow-host", nil, "further host name of this server in its clients' URLs; may be repeated")
	f.StringSliceVar(&fl.Origins, "allow-origin", nil, "web origin whose pages may call this server, e.g. https://app.example; may be repeated")
	f.IntVar(&fl.Limits.Requests, "requests-per-minute", 0, "HTTP requests of each token, -1 for no limit (default 100; none for the token in the data folder of a server on loopback)")
	f.IntVar(&fl.Limits.Operations, "operations-per-hour", 0, "calls about sandboxes of each token, -1 for no limit (default 1000)")
	f.IntVar(&fl.Limits.Sandboxes, "sandboxes-per-token", 0, "sandboxes of each token at once, -1 for no limit (default 10)")
	f.IntVar(&fl.Connections, "max-connections", daemon.DefaultConnections, "connections at once; one owner can have a quarter of them")
	f.StringSliceVar(&fl.trusted, "trusted-proxies", nil, "addresses or networks of proxies whose X-Forwarded-For is believed, e.g. 127.0.0.1,10.0.0.0/8 (default none)")
	f.BoolVar(&fl.Conversations.NoTools, "no-conversation-tools", false, "leave sandbox.run_code and sandbox.list_runners out of the MCP tools")
	tlsFlags(f, &fl.TLS)
	fl.images.flags(f)
	fl.network.flags(f, "network", "network-allow", "a new sandbox (also the most that tokens without the scope admin can allow)")
	f.StringVar(&fl.dns, "dns", "", "DNS server for the names that sandboxes look up (default: those of this machine)")
	f.StringVar(&fl.Issuer.URL, "oidc-issuer", "", "also take tokens of people from this OpenID Connect issuer, e.g. https://id.example.com")
	f.StringVar(&fl.Issuer.Audience, "oidc-audience", "", "audience that tokens of the OpenID Connect issuer must have: the URL of MCP here, e.g. https://hutch.example.com/mcp")
	f.StringVar(&fl.SignIn.ClientID, "oidc-client-id", "", "let people sign in to the console with that issuer, as this client of it")
	f.StringVar(&fl.oidcSecret, "oidc-client-secret-file", "", "file with the secret of that client (default: it has none)")
	f.StringVar(&fl.SignIn.Redirect, "oidc-redirect-url", "", "URL to which that issuer sends browsers back (default: /console/oidc/callback at the host of --oidc-audience)")
	f.StringVar(&fl.SignIn.Name, "oidc-name", "", "name of that issuer, on the button to sign in (default: its host name)")
	f.StringSliceVar(&fl.SignIn.Scopes, "oidc-scope", nil, "scope to ask that issuer for, beside openid; may be repeated (default: profile, and hutch: with each scope of tokens but admin)")
	f.StringVar(&fl.Console, "console-host", "hutch.localhost", "name below localhost to which the console leads browsers on this machine, so that other programs here do not get its cookie; empty for none")
	durationVar(f, &fl.Monitor.AuditKeep, "audit-keep", "", 30*24*time.Hour, "how long the audit log and timelines are kept; negative for ever")
	f.StringVar(&fl.Monitor.Metrics, "metrics-listen", "", "another address and port that serves /metrics to anyone, e.g. 127.0.0.1:9464")
	f.StringVar(&fl.logFormat, "log-format", "text", "format of the log: text or json")
	f.StringToStringVar(&fl.prices, "prices", nil, "what use costs: cpu (a second of a core), memory (a GiB for a second), execution, network (a GiB sent or received), wall (a second of a sandbox), e.g. cpu=0.000014,memory=0.0000045")
	f.StringVar(&fl.SSH, "ssh", "", "address and port that answer SSH and SFTP, e.g. 127.0.0.1:2222 or :2222; clients need a key: hutch ssh-config")
	f.StringVar(&fl.E2B, "e2b-domain", "", "domain below which E2B's clients find the server, at api.DOMAIN, and the ports of their sandboxes, at PORT-ID.DOMAIN; default: they use URLs")
	fl.chatFlags(f)
	f.StringVar(&fl.previewDomain, "preview-domain", "localhost", "domain whose subdomains show exposed ports: a name, for this server's own scheme and port, or a URL as seen behind a proxy, such as https://preview.example.com")
	fl.conversationFlags(f, 1000, 10<<10)
	f.StringVar(&fl.Secrets.KeyFile, "secret-key", "", "file with the key that secrets are encrypted with (default: one in the data folder, made when it is missing)")
	f.StringVar(&fl.Store, "store", "", "where the state is kept: the URL of a PostgreSQL database, e.g. postgres://hutch@db.example/hutch (default: a file in the data folder)")
	f.StringVar(&fl.Node, "node", "", "name of this server among those that share --store (default: one that the first start makes up)")
	f.StringVar(&fl.Fleet.Listen, "fleet-listen", "", "address and port for other nodes, e.g. 10.0.0.5:7701: servers that share --store then answer for each other's sandboxes")
	f.StringVar(&fl.Fleet.Address, "fleet-address", "", "address and port of --fleet-listen as other nodes reach it (default: that)")
	f.BoolVar(&fl.Fleet.Join, "fleet-join", false, "create the fleet of --store, or join it without a token; needs the key of its secrets, in HUTCH_SECRET_KEY or --secret-key")
	f.BoolVar(&fl.Fleet.Replace, "fleet-replace", false, "with --fleet-join, take the place of a node of the same name that is away; what that held is lost, except what the bucket has")
	f.IntVar(&fl.Fleet.Memory, "fleet-memory", 0, "most MiB that the memory limits of awake sandboxes on this node can add up to (default: this machine's memory)")
	f.Float64Var(&fl.Fleet.CPU, "fleet-cpu", 0, "most cores that the CPU limits of awake sandboxes on this node can add up to (default: 8 times this machine's)")
	f.StringToStringVar(&fl.Fleet.Labels, "node-label", nil, "label of this node, `KEY=VALUE`, e.g. zone=a, for sandboxes with a node selector; may be repeated")
	f.StringToStringVar(&fl.Fleet.Taints, "node-taint", nil, "taint of this node, `KEY=VALUE`, e.g. gpu=yes: it gets only sandboxes that tolerate all its taints; may be repeated")
	f.StringVar(&fl.Fleet.Bucket, "fleet-bucket", "", "where sandboxes of a fleet are kept while they sleep, so that any node can wake them: s3://BUCKET/PREFIX?endpoint=URL&region=REGION, or a folder that all nodes share")
	durationVar(f, &fl.Fleet.Checkpoints, "checkpoint-every", "", 0, "how often gVisor sandboxes that are awake are saved in --fleet-bucket while they run, so that they continue on another node when theirs fails; 0 is never")
	f.StringVar(&fl.Backups.To, "backups", "", "where backups are kept: a folder, or s3://BUCKET/PREFIX?endpoint=URL&region=REGION (default: in the data folder)")
	f.Int64Var(&fl.volumeRoom, "volume-room", volume.DefaultRoom>>20, "MiB that the quotas of the volumes of one token may add up to")
	f.StringSliceVar(&fl.BucketHosts, "bucket-host", nil, "endpoint of buckets of volumes, as HOST:PORT, that may have a private or loopback address and no TLS; may be repeated")
	f.Int64Var(&fl.backupRoom, "backup-room", backup.DefaultRoom>>20, "MiB that the backups of one token may take")
	f.StringVar(&fl.anthropic, "broker-anthropic", "", "keep ANTHROPIC_API_KEY out of sandboxes, and add it to what they send to `HOST` (default api.anthropic.com)")
	f.Lookup("broker-anthropic").NoOptDefVal = "api.anthropic.com"
	fl.ask.define(f, &fl.Questions)
	f.BoolVar(&fl.Sandboxes.DestroyAll, "destroy-on-exit", false, "destroy all sandboxes when the server ends, instead of leaving them running")
	f.BoolVar(&fl.Sandboxes.SleepAll, "sleep-on-exit", false, "put all sandboxes to sleep when the server ends, for containers and machines that end with it")
	f.BoolVarP(&fl.quiet, "quiet", "q", false, "log warnings only")
	f.BoolVarP(&fl.verbose, "verbose", "v", false, "log requests, also at a terminal")
}

// serve runs a server until ctx is done.
func serve(ctx context.Context, h *home, std streams, fl *serveFlags) error {
	if err := fl.complete(); err != nil {
		return fl.explainOrigin(err)
	}
	if err := h.open(); err != nil {
		return err
	}
	return h.runDaemon(ctx, std, fl)
}

// complete checks the flags and completes the configuration with them and the environment.
func (fl *serveFlags) complete() (err error) {
	sb := &fl.Sandboxes
	if err := cmp.Or(checkLimits(fl.Limits), checkMost(sb.MaxLimits), checkPool(sb.Pool), checkSandboxes(sb.Max), checkTLS(fl.TLS), checkRuntime(sb.Runtime), checkStore(fl.Store), checkNodeLabels("--node-label", fl.Fleet.Labels), checkNodeLabels("--node-taint", fl.Fleet.Taints)); err != nil {
		return err
	}
	if sb.Network, err = fl.network.parse(); err != nil {
		return err
	}
	if sb.DNS, err = checkDNS(fl.dns); err != nil {
		return err
	}
	if sb.Types, err = parseTypes(fl.types); err != nil {
		return err
	}
	if sb.Warm, err = parseWarm(fl.warm); err != nil {
		return err
	}
	if sb.DestroyAll && sb.SleepAll {
		return usageError{errors.New("--destroy-on-exit and --sleep-on-exit exclude each other: give one of them")}
	}
	if fl.Console != "" && !strings.HasSuffix(fl.Console, ".localhost") {
		return usageError{fmt.Errorf("--console-host is %q: give a name that ends with .localhost, or nothing; another name of the server is --allow-host", fl.Console)}
	}
	if fl.SignIn.Secret, err = secretIn("--oidc-client-secret-file", fl.oidcSecret); err != nil {
		return err
	}
	if err := fl.completeChats(); err != nil {
		return err
	}
	if err := fl.images.set(&fl.Images); err != nil {
		return err
	}
	if fl.Proxies, err = listen.ParseProxies(fl.trusted); err != nil {
		return usageError{fmt.Errorf("--trusted-proxies: %w", err)}
	}
	if fl.Preview, err = parsePreviewDomain(fl.previewDomain); err != nil {
		return err
	}
	if fl.Monitor.Prices, err = parsePrices(fl.prices); err != nil {
		return err
	}
	if fl.Log.JSON, err = isJSON(fl.logFormat); err != nil {
		return err
	}
	if err := fl.ask.set(&fl.Questions); err != nil {
		return err
	}
	fl.Backups.Room, fl.Conversations.Room, fl.VolumeRoom = fl.backupRoom<<20, fl.talkRoom<<20, fl.volumeRoom<<20
	if fl.quiet {
		fl.Log.Level = slog.LevelWarn
	}
	fl.fromEnvironment()
	return nil
}

// fromEnvironment applies the environment's settings. Conversations run code that anyone in a chat can have written: a
// server with only conversations gives them no secrets.
func (fl *serveFlags) fromEnvironment() {
	fl.Version = thisVersion()
	fl.Sandboxes.Image = hostPrograms()
	talk := &fl.Conversations
	talk.Secret, talk.Folder, talk.BaseURL = os.Getenv("FILE_SECRET"), os.Getenv("SANDBOX_ROOT"), os.Getenv("PUBLIC_BASE_URL")
	if !talk.Only {
		fl.Secrets.Given = secrets()
		fl.Monitor.Trace = traceEnv()
	}
	if fl.anthropic != "" {
		fl.Secrets.Brokered = map[string]hutch.Brokering{hutch.AnthropicKey: {Hosts: []string{fl.anthropic}}}
	}
	if fl.Secrets.KeyFile == "" {
		fl.Secrets.Key = os.Getenv("HUTCH_SECRET_KEY")
	}
	// The keys are found as Amazon's own programs find them.
	fl.Backups.Keys = credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{}})
	fl.Fleet.Keys = fl.Backups.Keys
}

// hostPrograms returns where the host image finds the programs of this machine.
func hostPrograms() image.HostOptions {
	userHome, _ := os.UserHomeDir()
	return image.HostOptions{Path: os.Getenv("PATH"), Home: userHome}
}

// runDaemon runs a daemon on the data folder until ctx is done.
func (h *home) runDaemon(ctx context.Context, std streams, fl *serveFlags) (err error) {
	token := localToken{fl.Token, "MCP_API_TOKEN"} // a server of conversations has no other token
	if token.secret == "" {
		token = environmentToken()
	}
	fl.Data, fl.Token = datadir.Folder(h.dir), token.secret
	fl.Sandboxes.Drivers = fl.runtimes.Drivers
	fl.Log.To = std.err
	fl.Log.NoRequests = !fl.verbose && showsTerminal(std.err) // requests would hide all other messages
	d, err := daemon.Open(ctx, fl.Config)
	if err != nil {
		if context.Cause(ctx) != nil {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	banner{d, fl, h, token, std}.write(std.out)
	return d.Serve(ctx)
}

// conversationFlags limit the stored data of one owner's conversations.
func (fl *serveFlags) conversationFlags(f *pflag.FlagSet, most int, room int64) {
	f.IntVar(&fl.Conversations.Max, "conversations-per-token", most, "conversations of one token at once, 0 for no limit")
	f.Int64Var(&fl.talkRoom, "conversation-room", room, "MiB of files that the conversations of one token may keep, 0 for no limit")
}

func parseWarm(texts []string) (list []engine.Warm, err error) {
	for _, text := range texts {
		w, err := engine.ParseWarm(text)
		if err != nil {
			return nil, usageError{fmt.Errorf("--warm %s: %w", text, err)}
		}
		list = append(list, w)
	}
	return list, nil
}

func checkRuntime(name string) error {
	if err := host.CheckRuntime(name); err != nil {
		return usageError{err}
	}
	return nil
}

func checkNodeLabels(flag string, labels map[string]string) error {
	if err := hutch.CheckNodeLabels(labels); err != nil {
		return usageError{fmt.Errorf("%s: %s", flag, hutch.AsError(err).Message)}
	}
	return nil
}

func checkLimits(l hutch.TokenLimits) error {
	if min(l.Requests, l.Operations, l.Sandboxes) < hutch.Unlimited {
		return usageError{fmt.Errorf("--requests-per-minute, --operations-per-hour or --sandboxes-per-token is below %d: give a number, or %[1]d for none", hutch.Unlimited)}
	}
	return nil
}

func checkMost(l hutch.Limits) error {
	if min(l.CPU, float64(l.Memory), float64(l.Disk), float64(l.PIDs)) < 0 {
		return usageError{errors.New("--max-cpu, --max-memory, --max-disk or --max-pids is negative: give a number, or 0 for none")}
	}
	return nil
}

// maxPIDs returns the default for the highest number of processes of a sandbox: at most an eighth of the machine's.
func maxPIDs() int {
	const most = 32768
	if all := cgroup.MaxPIDs(); all > 0 {
		return min(most, all/8)
	}
	return most
}

func checkPool(n int) error {
	if n < 0 || n > 10_000 {
		return usageError{fmt.Errorf("--pool is %d: give a number from 0 to 10000", n)}
	}
	return nil
}

func checkSandboxes(n int) error {
	if n < 1 {
		return usageError{fmt.Errorf("--max-sandboxes is %d: give 1 or more", n)}
	}
	return nil
}
