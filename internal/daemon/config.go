package daemon

import (
	"cmp"
	"io"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/datadir"
	"hutch/internal/driver"
	"hutch/internal/engine"
	"hutch/internal/host"
	"hutch/internal/image"
	"hutch/internal/listen"
	"hutch/internal/oci"
	"hutch/internal/openid"
	"hutch/internal/trace"
)

// Config has all settings of a daemon. It needs a data folder. Every other field can be zero. The number 0 means no
// limit, unless the field's comment names a default. The daemon reads nothing from the environment.
type Config struct {
	Data    datadir.Folder
	Version hutch.Version

	// Store is the URL of a PostgreSQL database with the state; "" is a file in the data folder.
	Store string
	// Node is the name of this server among those that share Store; "" lets its first start choose one.
	Node string

	Fleet Fleet

	// Listen is an address and a port; default DefaultListen.
	Listen      string
	Connections int            // connections at once; default DefaultConnections
	Proxies     listen.Proxies // proxies whose X-Forwarded-For is believed
	TLS         TLS
	Hosts       []string // further names of this server in its clients' URLs; "*" allows all
	Origins     []string // origins of web pages that can call this server

	// Token is the local token. If it is empty, the daemon uses the token in the data folder, which the first start
	// creates.
	Token  string
	Limits hutch.TokenLimits // limits of tokens that set no limits
	Issuer auth.IssuerOptions
	// SignIn sets how people sign in to the console with the issuer. Without a client id, they cannot. The server sets
	// its Issuer; the default of Redirect is a path of the console at the host of the issuer's audience.
	SignIn openid.Options
	// Console is a host name below localhost, at which browsers on this machine open the console. With its own name,
	// the console shares no cookies with other programs of the machine. "" for none.
	Console string

	Sandboxes     Sandboxes
	Images        Images
	Secrets       Secrets
	Conversations Conversations
	Chats         Chats
	// SSH is an address and a port for SSH and SFTP; "" for none.
	SSH         string
	Backups     Backups
	Questions   Questions
	VolumeRoom  int64    // bytes that the quotas of one owner's volumes can add up to; default volume.DefaultRoom
	BucketHosts []string // HOST:PORT of bucket endpoints for volumes, which may be private addresses without TLS
	Monitor     Monitor
	// Preview is the domain whose subdomains show exposed ports; default localhost. Its scheme and port are set only if
	// they differ from this server's.
	Preview url.URL
	// E2B is the domain below which E2B's clients find this server and the ports of their sandboxes, as api.DOMAIN and
	// PORT-ID.DOMAIN; empty for none.
	E2B string
	Log Log
}

const (
	DefaultListen = "127.0.0.1:7700"
	// DefaultConnections is low enough to leave sandboxes enough open files under the usual limit.
	DefaultConnections = 4096
)

// Fleet makes a server a node of a fleet. The nodes share Store, and each answers calls for all of them.
type Fleet struct {
	Listen  string // address and port of the door for other nodes; "" for a single server
	Address string // address of the door, as other nodes reach it; default Listen
	// Memory and CPU bound the sum of the limits of awake sandboxes, in MiB and cores; default: this machine's memory,
	// and 8 times its cores. Sandboxes.Max bounds the number of awake sandboxes.
	Memory int
	CPU    float64
	// Labels are the node's labels, for node selectors. Taints are its taints. A single server can have labels too.
	Labels, Taints map[string]string
	// Join makes a server without an identity a node. It needs Store and the key of the secrets. Replace replaces an
	// absent node of the same name; its sandboxes are lost unless the bucket has them.
	Join, Replace bool
	// Bucket is where sleeping sandboxes are kept, so that any node can wake them: a folder that all nodes share, or
	// s3://BUCKET/PREFIX; "" for none. Keys are the keys of the bucket.
	Bucket string
	Keys   *credentials.Credentials
	// Checkpoints is how often awake sandboxes are saved to Bucket, so that they outlive their node; 0 is never.
	Checkpoints time.Duration
}

// TLS is the settings for TLS; the zero value is plain HTTP.
type TLS struct {
	Cert, Key string // PEM files
	Domain    string // domain whose certificates come from an ACME server
	Own       string // domain whose certificates, also for names below it, come from Hutch's own authority
	Directory string // URL of the ACME server; default Let's Encrypt
}

// Sandboxes has the runtimes, and the limits and settings of sandboxes.
type Sandboxes struct {
	Runtime string // the default runtime; "" is the first runtime that works
	// Drivers returns the runtimes, which keep their state below dir; default those of host.Server.
	Drivers func(dir string, log *slog.Logger) ([]driver.Driver, error)
	// Image says where the programs of the host image are found. Authority and Log
	// are set by the daemon.
	Image image.HostOptions

	Max         int                  // sandboxes at once; default 100
	MaxLimits   hutch.Limits         // highest limits that a sandbox can have
	Types       []hutch.InstanceType // default hutch.InstanceTypes
	Pool        int                  // most sandboxes to keep ready; 0 for none
	Warm        []engine.Warm
	ExecTimeout time.Duration // time limit of a command without its own; default 30 s
	MaxTimeout  time.Duration // the longest time limit that a command can request; default 24 h
	SleepAfter  time.Duration // idle time before a sandbox sleeps; default 10 min
	Network     hutch.Network // network of sandboxes that request no network
	DNS         string        // address and port of the DNS server for names in sandboxes; "" is this machine's
	// DestroyAll destroys all sandboxes when the daemon closes. Otherwise they keep running, and the next daemon finds
	// them.
	DestroyAll bool
	// SleepAll puts all sandboxes to sleep when the daemon closes, for machines and containers that end together with
	// the daemon.
	SleepAll bool
	// ColdCompilers skips the compilation of Go's standard library in advance.
	ColdCompilers bool
}

// Images are the sources of images, and their limits.
type Images struct {
	Registries map[string]oci.Registry // by name: registries with a mirror, and registries on private addresses
	Proxy      *url.URL                // proxy to public registries; nil for none
	Allowed    []string                // the registries that may be used; if it is empty, all may be used
	Limits     oci.Limits
	// Keep is how long unused images are kept; 0 is for ever.
	Keep time.Duration
}

// Secrets has the server's own secrets, and the key that encrypts all others.
type Secrets struct {
	Given    map[string]string          // by name: credentials that all sandboxes can request
	Brokered map[string]hutch.Brokering // credentials in Given that are only brokered: sandboxes never get the values
	Key      string                     // key that encrypts all secrets; "" uses KeyFile
	KeyFile  string                     // default in the data folder, created when it is missing
}

// Conversations are the settings for code that chats run.
type Conversations struct {
	Only     bool          // serve only conversations: no other tools, and no REST
	NoTools  bool          // no MCP tools for conversations
	Secret   string        // secret that signs links; "" is the one in the data folder
	Folder   string        // folder of their files; "" is one in the data folder
	BaseURL  string        // URL at which people reach the server; "" uses the URL for this machine
	LinkLife time.Duration // how long links are valid; 0 is for ever
	Max      int           // most conversations of one owner
	Room     int64         // bytes that one owner's files may take
	Docker   bool          // images of the Docker engine named in the environment can be runners too
}

// Backups are the settings for backups, which are copies of folders.
type Backups struct {
	To   string                   // a folder, or s3://BUCKET/PREFIX; "" is a folder in the data folder
	Keys *credentials.Credentials // keys of the bucket
	Room int64                    // most bytes of one token's backups
}

// Monitor is the settings for monitoring the daemon.
type Monitor struct {
	AuditKeep time.Duration // how long the audit log is kept; negative is for ever
	Metrics   string        // another address that serves /metrics to anyone; "" for no such address
	Prices    hutch.Prices
	Trace     trace.Options // without an endpoint, no traces are sent
}

// Log receives the daemon's log. Secrets are redacted first.
type Log struct {
	To    io.Writer // nil discards it
	JSON  bool
	Level slog.Level
	// NoRequests turns off log lines for requests, except warnings and errors.
	NoRequests bool
}

// withDefaults sets the defaults that can be set before any part is opened.
func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, DefaultListen)
	c.Connections = cmp.Or(c.Connections, DefaultConnections)
	c.Preview.Host = cmp.Or(c.Preview.Host, "localhost")
	if c.Sandboxes.Drivers == nil {
		c.Sandboxes.Drivers = host.Server{Pod: os.Getenv(host.PodVariable), OldBuilds: true}.Drivers
	}
	if c.Log.To == nil {
		c.Log.To = io.Discard
	}
	return c
}
