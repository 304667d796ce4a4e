package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/auth"
	"hutch/internal/backup"
	"hutch/internal/broker"
	"hutch/internal/conversation"
	"hutch/internal/driver"
	"hutch/internal/engine"
	"hutch/internal/guard"
	"hutch/internal/linux/cgroup"
	"hutch/internal/linux/pressure"
	"hutch/internal/listen"
	"hutch/internal/mcp"
	"hutch/internal/metrics"
	"hutch/internal/policy"
	"hutch/internal/preview"
	"hutch/internal/problem"
	"hutch/internal/quota"
	"hutch/internal/rest"
	"hutch/internal/room"
	"hutch/internal/secret"
	"hutch/internal/store"
)

// serveConfig is all that can be set of a server.
type serveConfig struct {
	listen       string
	runtime      string
	maxSandboxes int
	maxLimits    hutch.Limits // of each sandbox
	pool         int
	warm         []string
	execTimeout  time.Duration
	maxTimeout   time.Duration
	sleepAfter   time.Duration
	hosts        []string
	origins      []string
	limits       hutch.TokenLimits
	connections  int
	trusted      []string // proxies
	proxies      listen.Proxies
	secure       tlsConfig
	issuer       auth.IssuerOptions
	quiet        bool
	verbose      bool
	destroyAll   bool         // sandboxes, when the server ends
	network      networkFlags // of sandboxes that are asked for without one
	dns          string
	brokering    brokerConfig
	secretKey    string
	talk         conversationConfig
	backupsTo    string
	backupRoom   int64 // MiB
	monitor      monitorConfig
	preview      previewConfig
	// coldCompilers leaves out what first Go programs would be quicker by.
	coldCompilers bool
}

func newServe(h *home, std streams) *cobra.Command {
	var cfg serveConfig
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the server: MCP at /mcp, REST at /v1",
		Long: `Run the server, with MCP over streamable HTTP at /mcp and REST at /v1.

Clients bring a bearer token: the one that the first start prints and keeps in
the data folder, or one made with ` + "`hutch token create`" + `. SANDBOX_AUTH_TOKEN or
MCP_API_TOKEN in the environment stands in for the first. ANTHROPIC_API_KEY, when
set, is a secret that sandboxes can ask for; as other secrets are, it is replaced
in what they print. HUTCH_SECRET_KEY is the key that secrets are encrypted with, in place of
the one in the data folder. When the server ends, sandboxes go on running; its
next start finds them again.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("max-memory") { // not asked of the machine for every other command
				cfg.maxLimits.Memory = int(pressure.Total() >> 20)
			}
			if err := cmp.Or(checkLimits(cfg.limits), checkMost(cfg.maxLimits), checkPool(cfg.pool), checkSandboxes(cfg.maxSandboxes), cfg.secure.check(), cfg.preview.check()); err != nil {
				return err
			}
			if _, err := cfg.network.network().Canonical(); err != nil {
				return usageError{err}
			}
			var err error
			if cfg.dns, err = checkDNS(cfg.dns); err != nil {
				return err
			}
			if cfg.proxies, err = listen.ParseProxies(cfg.trusted); err != nil {
				return usageError{fmt.Errorf("--trusted-proxies: %w", err)}
			}
			noTools := cfg.talk.noTools
			given := cfg.talk
			cfg.talk, cfg.monitor.trace = conversationEnv(), traceEnv()
			cfg.talk.most, cfg.talk.room = given.most, given.room
			cfg.talk.noTools = noTools
			return (&server{serveConfig: cfg, home: h, std: std}).run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.listen, "listen", defaultListen, "address and port")
	f.StringVar(&cfg.runtime, "runtime", "", "default runtime: gvisor or native (default: the first that works)")
	f.IntVar(&cfg.maxSandboxes, "max-sandboxes", 100, "sandboxes at once")
	f.Float64Var(&cfg.maxLimits.CPU, "max-cpu", 0, "most cores that a sandbox can be given, 0 for no ceiling")
	f.IntVar(&cfg.maxLimits.Memory, "max-memory", 0, "most MiB of memory that a sandbox can be given, 0 for no ceiling (default: what the machine has)")
	f.IntVar(&cfg.maxLimits.Disk, "max-disk", 10240, "most MiB of written files that a sandbox can have, 0 for no ceiling")
	f.IntVar(&cfg.maxLimits.PIDs, "max-pids", maxPIDs(), "most processes and threads that a sandbox can have, 0 for no ceiling")
	f.IntVar(&cfg.pool, "pool", 64, "most sandboxes to keep ready; the pool grows and shrinks with use, 0 turns it off")
	f.StringArrayVar(&cfg.warm, "warm", nil, "an interpreter to start in each sandbox of the pool, with modules imported, e.g. python=pandas,numpy; may be repeated")
	f.BoolVar(&cfg.coldCompilers, "cold-compilers", false, "do not compile the standard library of Go ahead, half a minute after the start; the first Go program in each sandbox then does")
	durationVar(f, &cfg.execTimeout, "exec-timeout", "", 30*time.Second, "time limit of a command that asks for none")
	durationVar(f, &cfg.maxTimeout, "max-timeout", "", 24*time.Hour, "longest time limit that a command can ask for")
	durationVar(f, &cfg.sleepAfter, "sleep-after", "", 10*time.Minute, "idle time after which a sandbox sleeps")
	f.StringSliceVar(&cfg.hosts, "allow-host", nil, "further host name of this server in its clients' URLs; may be repeated")
	f.StringSliceVar(&cfg.origins, "allow-origin", nil, "web origin whose pages may call this server, e.g. https://app.example; may be repeated")
	f.IntVar(&cfg.limits.Requests, "requests-per-minute", 0, "HTTP requests of each token, -1 for no limit (default 100; none for the token in the data folder of a server on loopback)")
	f.IntVar(&cfg.limits.Operations, "operations-per-hour", 0, "calls about sandboxes of each token, -1 for no limit (default 1000)")
	f.IntVar(&cfg.limits.Sandboxes, "sandboxes-per-token", 0, "sandboxes of each token at once, -1 for no limit (default 10)")
	f.IntVar(&cfg.connections, "max-connections", defaultConnections, "connections at once; one owner can have a quarter of them")
	f.StringSliceVar(&cfg.trusted, "trusted-proxies", nil, "addresses or networks of proxies whose X-Forwarded-For is believed, e.g. 127.0.0.1,10.0.0.0/8 (default none)")
	f.BoolVar(&cfg.talk.noTools, "no-conversation-tools", false, "leave sandbox.run_code and sandbox.list_runners out of the MCP tools")
	cfg.secure.flags(f)
	cfg.network.flags(f, "network", "network-allow", "a new sandbox (also the most that tokens without the scope admin can allow)")
	f.StringVar(&cfg.dns, "dns", "", "DNS server that names are asked of (default: those of this machine)")
	f.StringVar(&cfg.issuer.URL, "oidc-issuer", "", "also take tokens of people from this OpenID Connect issuer, e.g. https://id.example.com")
	f.StringVar(&cfg.issuer.Audience, "oidc-audience", "", "audience that tokens of the OpenID Connect issuer must have: the URL of MCP here, e.g. https://hutch.example.com/mcp")
	cfg.monitor.flags(f)
	cfg.preview.flags(f)
	cfg.talk.flags(f, 1000, 10<<10)
	f.StringVar(&cfg.secretKey, "secret-key", "", "file with the key that secrets are encrypted with (default: one in the data folder, made when it is missing)")
	f.StringVar(&cfg.backupsTo, "backups", "", "where backups are kept: a folder, or s3://BUCKET/PREFIX?endpoint=URL&region=REGION (default: in the data folder)")
	f.Int64Var(&cfg.backupRoom, "backup-room", backup.DefaultRoom>>20, "MiB that the backups of one token may take")
	brokerFlags(f, &cfg.brokering)
	f.BoolVar(&cfg.destroyAll, "destroy-on-exit", false, "destroy all sandboxes when the server ends, instead of leaving them running")
	f.BoolVarP(&cfg.quiet, "quiet", "q", false, "log warnings only")
	f.BoolVarP(&cfg.verbose, "verbose", "v", false, "log requests, also at a terminal")
	return c
}

func checkLimits(l hutch.TokenLimits) error {
	if min(l.Requests, l.Operations, l.Sandboxes) < hutch.Unlimited {
		return usageError{fmt.Errorf("a limit of tokens is below %d: give a number, or %[1]d for none", hutch.Unlimited)}
	}
	return nil
}

func checkMost(l hutch.Limits) error {
	if min(l.CPU, float64(l.Memory), float64(l.Disk), float64(l.PIDs)) < 0 {
		return usageError{errors.New("a ceiling of limits is negative: give a number, or 0 for none")}
	}
	return nil
}

// maxPIDs is how many processes a sandbox can have at most, unless the server is
// told otherwise: no more than an eighth of the machine's.
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

// server is the daemon while it runs.
type server struct {
	serveConfig
	home *home
	std  streams

	log        *slog.Logger
	dir        string
	token      localToken
	store      *store.Store
	vault      *secret.Vault
	authority  *broker.Authority
	broker     *broker.Broker
	watched    chan struct{} // closed when the observers are there
	people     *auth.Issuer  // nil for nobody
	tokens     *auth.Registry
	requests   *quota.Meter
	operations *quota.Meter
	runtimes   []driver.Driver
	engine     *engine.Engine
	redacted   *secret.RedactedService // around the engine
	backups    *backup.Backups
	policy     *policy.Policy
	talks      *conversation.Server
	mcp        *mcp.Handler
	rest       *rest.Handler
	tls        *tls.Config // nil for none
	audit      *audit.Log
	metrics    *metrics.Metrics
	traffic    *metrics.Traffic
	observers  audit.Observers
	prices     hutch.Prices
	listener   *listen.Gate
	unbelieved sync.Once       // a proxy that is not trusted was named in the log
	life       context.Context // done when the server is to end
	undo       []func() error  // newest last

	storeReady, runtimeReady check
}

func (s *server) run(ctx context.Context) (err error) {
	level := slog.LevelInfo
	if s.quiet {
		level = slog.LevelWarn
	}
	s.vault = secret.Given(s.talk.secrets())
	if s.log, err = s.monitor.logger(secret.Writer(s.std.err, s.redactor), level); err != nil {
		return err
	}
	if s.prices, err = s.monitor.price(); err != nil {
		return err
	}
	s.life = ctx
	s.storeReady = check{every: time.Second, do: s.checkStore}
	s.runtimeReady = check{every: time.Minute, do: s.checkRuntime}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"open the data folder", s.openHome},
		{"open the store", s.openStore},
		{"open the secrets", s.openSecrets},
		{"set up brokering", s.openBroker},
		{"open the audit log", s.openAudit},
		{"read the tokens", s.openTokens},
		{"read what tokens have used", s.openMeters},
		{"set up TLS", s.openTLS},
		{"listen", s.open},
		{"look for runtimes", s.findRuntimes},
		{"start the engine", s.startEngine},
		{"open the metrics and traces", s.openMonitors},
		{"open the backups", s.openBackups},
		{"read what is shared", s.openPolicy},
		{"open the conversations", s.openConversations},
		{"compile ahead", s.warmCompilers},
	} {
		if err := step.do(ctx); err != nil {
			if context.Cause(ctx) != nil {
				return nil
			}
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return s.serve(ctx)
}

// close undoes the steps that were done, the last one first.
func (s *server) close() error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	return errors.Join(errs...)
}

func (s *server) openHome(context.Context) (err error) {
	if err := s.home.open(); err != nil {
		return err
	}
	folder := "server"
	if s.talk.only {
		folder = "conversation" // beside that of another server
	}
	if s.dir, err = s.home.folder(folder); err != nil {
		return err
	}
	f, free, err := lockPatiently(s.dir)
	if err != nil {
		return err
	}
	if !free {
		return hutch.Errorf(hutch.Conflict, "another server uses the data folder %s: end it, or choose another folder with --data", s.home.dir)
	}
	s.undo = append(s.undo, f.Close)
	if s.token = (localToken{secret: s.talk.token, env: "MCP_API_TOKEN"}); s.token.secret == "" {
		s.token, err = s.home.mintToken()
	}
	return err
}

func (s *server) open(ctx context.Context) (err error) {
	if err := s.mayListen(ctx); err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, family(s.listen), s.listen)
	if err != nil {
		return hutch.Errorf(hutch.Unavailable, "%v: choose another address with --listen", err)
	}
	s.listener = listen.NewGate(l, listen.GateOptions{Most: cmp.Or(s.connections, defaultConnections), Shared: s.proxies.Has})
	if err := writeAddress(s.dir, s.url()); err != nil {
		return err
	}
	s.undo = append(s.undo, func() error { return os.Remove(addressFile(s.dir)) })
	s.undo = append(s.undo, func() error {
		if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return nil
}

func (s *server) openStore(ctx context.Context) (err error) {
	if s.store, err = store.Open(ctx, filepath.Join(s.dir, "hutch.db")); err != nil {
		return err
	}
	s.undo = append(s.undo, s.store.Close)
	return nil
}

func (s *server) openTokens(ctx context.Context) (err error) {
	if err := s.openIssuer(); err != nil {
		return err
	}
	s.tokens, err = auth.Open(ctx, auth.Options{
		Shelf: s.store.Shelf("tokens"), Local: s.token.secret, LocalLimits: s.limits, LocalFree: s.ownToken(), Defaults: s.limits, Issuer: s.people, Log: s.log,
	})
	return err
}

func (s *server) openMeters(ctx context.Context) (err error) {
	meter := func(unit, limit string, window time.Duration) *quota.Meter {
		m, failed := quota.Open(ctx, quota.Options{Shelf: s.store.Shelf(limit), Window: window, What: unit, Limit: limit})
		if err = errors.Join(err, failed); failed == nil {
			s.undo = append(s.undo, func() error { return m.Close(context.Background()) })
		}
		return m
	}
	s.requests = meter("requests of a minute", "requestsPerMinute", time.Minute)
	s.operations = meter("operations of an hour", "operationsPerHour", time.Hour)
	return err
}

// ownToken reports whether the token without set-up is one person's own, on
// their own machine: it then has no limits.
func (s *server) ownToken() bool { return s.token.env == "" && onLoopback(s.listen) }

// onLoopback reports whether only this machine can reach an address. It is true
// of what is not an address: Listen reports what is wrong with it.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// mayListen refuses to stand open to a network with a token that nobody chose:
// whoever wants that has said so by setting or creating one.
func (s *server) mayListen(ctx context.Context) error {
	if s.token.env != "" || onLoopback(s.listen) {
		return nil
	}
	list, err := s.tokens.Tokens(ctx)
	if err != nil || slices.ContainsFunc(list, func(t hutch.Token) bool { return t.Live(time.Now()) }) {
		return err
	}
	return hutch.Errorf(hutch.Denied, "%s can be reached from other machines, and no token was set: set SANDBOX_AUTH_TOKEN, or create a token with `hutch token create`, or listen on 127.0.0.1", s.listen)
}

func (s *server) openPolicy(ctx context.Context) (err error) {
	s.policy, err = policy.New(ctx, s.redacted, policy.Options{
		Network: s.network.network(), Tokens: s.tokens, Secrets: s.vault, Backups: s.backups, Accounts: s.engine, Pools: s.engine, Audit: s.audit, Observer: s.observers, Operations: s.operations, Grants: s.store.Shelf("grants"),
		Redact: func(text string) string { return s.redactor().String(text) }, Log: s.log,
	})
	return err
}

func (s *server) openSecrets(context.Context) (err error) {
	path := filepath.Join(s.dir, "secrets.age")
	var key *secret.Key
	if text := os.Getenv("HUTCH_SECRET_KEY"); text != "" && s.secretKey == "" {
		key, err = secret.ParseKey(text)
	} else {
		key, err = secret.LoadKey(cmp.Or(s.secretKey, filepath.Join(s.dir, "secrets.key")), path)
	}
	if err != nil {
		return err
	}
	v, err := secret.Open(path, key, s.talk.secrets())
	if err == nil {
		s.vault = v
	}
	return err
}

// redactor is for the logs, in which calls of all are.
func (s *server) redactor() *secret.Redactor { return s.vault.All() }

func (s *server) findRuntimes(ctx context.Context) error {
	all, err := drivers(s.dir, s.log)
	if err != nil {
		return err
	}
	inhabited, err := s.store.Runtimes(ctx)
	if err != nil {
		return err
	}
	s.runtimes, err = working(ctx, all, s.runtime, inhabited, s.log)
	return err
}

func (s *server) startEngine(ctx context.Context) error {
	pool, err := s.poolOptions()
	if err != nil {
		return err
	}
	s.traffic = metrics.NewTraffic()
	s.engine = engine.New(engine.Options{
		Dir: s.dir, Drivers: s.runtimes, Pool: pool,
		Image: images(s.home.images(), s.authority.Certificate(), s.log), Store: s.store,
		MaxSandboxes: s.maxSandboxes, MaxLimits: s.maxLimits, ExecTimeout: s.execTimeout, MaxTimeout: s.maxTimeout, SleepAfter: s.sleepAfter,
		Gateway: gateways(s.dns, s.traffic, s.completeExit), Network: s.network.network(),
		Prices: s.prices, Ephemeral: s.talk.only || s.destroyAll, Secret: s.vault.Value, Log: s.log,
		PreviewURL: s.previewURL, Memory: engine.Memory{Exhausted: pressure.Exhausted, Kills: pressure.Kills},
	})
	if err := s.engine.Start(ctx); err != nil {
		return err
	}
	s.redacted = secret.Redact(s.engine, s.vault.Redactor)
	s.undo = append(s.undo, func() error {
		ctx, cancel := s.closeTime()
		defer cancel()
		return s.engine.Close(ctx)
	})
	return nil
}

// poolOptions are what sandboxes are kept ready. When nobody asks for any that is
// a few of the usual kind, of which a server of conversations alone makes none.
// Copies of snapshots may take an eighth of the memory that there is.
func (s *server) poolOptions() (engine.Pool, error) {
	p := engine.Pool{Max: s.pool, Min: 2, Room: pressure.Total() / 8, Short: pressure.Memory}
	if s.talk.only {
		p.Min = 0
	}
	for _, text := range s.warm {
		w, err := engine.ParseWarm(text)
		if err != nil {
			return p, usageError{fmt.Errorf("--warm %s: %w", text, err)}
		}
		p.Warm = append(p.Warm, w)
	}
	return p, nil
}

// closeTime is how long the engine may take to close, which destroys sandboxes
// if it is to.
func (s *server) closeTime() (context.Context, context.CancelFunc) {
	if s.destroyAll {
		return context.WithTimeout(context.Background(), 2*time.Minute)
	}
	return grace()
}

// grace is how long the end of the server may take.
func grace() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// serve answers requests until ctx is done.
func (s *server) serve(ctx context.Context) error {
	opt := mcp.Options{Version: version, Log: s.log, OnlyConversations: s.talk.only}
	if !s.talk.noTools {
		opt.Conversations = s.talks
	}
	s.mcp = mcp.NewHandler(s.policy, opt)
	s.rest = rest.NewHandler(s.policy, rest.Options{Tokens: s.policy, Sharing: s.policy, Secrets: s.policy, Backups: s.policy, Accounts: s.policy, Pools: s.policy, Audit: s.policy, Log: s.log, Version: thisVersion()})
	base, cut := context.WithCancel(context.Background())
	defer cut()
	handler := s.handler()
	defer handler.Close()
	hs := &http.Server{
		Handler:           s.listener.Handler(handler),
		ConnContext:       s.listener.Context,
		TLSConfig:         s.tls,
		Protocols:         listen.Protocols(),
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() {
		if hs.TLSConfig == nil {
			failed <- hs.Serve(s.listener)
		} else {
			failed <- hs.ServeTLS(s.listener, "", "")
		}
	}()
	s.announce(s.std.out)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	if s.destroyAll {
		s.log.Info("ending; all sandboxes are destroyed", "cause", context.Cause(ctx))
	} else {
		s.log.Info("ending; sandboxes keep running (hutch down ends them)", "cause", context.Cause(ctx))
	}
	end, cancel := grace()
	defer cancel()
	s.listener.Close()
	s.mcp.Close(end)
	s.rest.Close()
	cut() // what still runs for a client ends with its request
	hs.Shutdown(end)
	hs.Close()
	<-failed
	return nil
}

func (s *server) handler() *preview.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.mcp)
	if !s.talk.only {
		mux.Handle("/v1/", s.rest)
		mux.Handle("/v1", s.rest)
		mux.Handle("/", s.rest) // says that nothing is there
	}
	s.talks.Routes(mux)
	s.monitorRoutes(mux)
	return s.previews(guard.New(mux, guard.Options{
		Metadata: s.issuerRoutes(mux), Check: s.tokens.Check, Requests: s.requests, Refuse: refuse,
		Hosts: s.hosts, Origins: s.origins, Unbounded: rest.Uploads, Open: isOpen, Room: forCallers(pressure.Total()), Claim: listen.Claim, Log: s.requestLog(),
	}))
}

// forCallers is how much memory the server has for what its callers send and have
// not read yet: a 32nd of the machine's, as some of it is there several times
// while it is put into its form. One owner has a quarter of it, and at least
// what the largest calls need.
func forCallers(memory int64) *room.Room {
	total := max(memory/32, 256<<20)
	return room.New(int(total), int(max(total/4, 128<<20)))
}

// refuse answers a request over a limit, as its surface has it.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.URL.Path == "/mcp" {
		mcp.Refuse(w, r, err)
		return
	}
	problem.Write(w, err)
}
