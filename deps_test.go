package hutch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	sys      = "golang.org/x/sys/unix"
	mcpSDK   = "github.com/modelcontextprotocol/go-sdk/..."
	anything = "..."
)

// layer is a set of packages, and what they can import.
type layer struct {
	names string
	may   []string
}

// layers says which package can import which, from the bottom up; "hutch" stands for the module, whatever its path.
// The first line that matches a package counts; "..." at the end stands for all packages below. Every package can
// import the standard library, and none can import cmd. Tests can import anything.
var layers = []layer{
	// The vocabulary: anything may import it, so it imports nothing.
	{"hutch", nil},

	// Packages that use only the kernel.
	{"hutch/internal/linux/pressure", []string{"hutch/internal/linux/cgroup", sys}}, // pressure looks at the limits of control groups
	{"hutch/internal/linux/subid", []string{"hutch/internal/linux/clone", sys}},
	{"hutch/internal/linux/...", []string{sys, "golang.org/x/net/bpf", "github.com/elastic/go-seccomp-bpf/..."}},
	{"hutch/internal/image/gocache", nil}, // runs in every sandbox, compiled by the host's Go
	{"hutch/internal/account", []string{"hutch"}},
	{"hutch/internal/image", []string{"hutch", "hutch/internal/account", "hutch/internal/linux/names", "hutch/internal/linux/subid", "hutch/internal/linux/tun", sys, "software.sslmate.com/src/go-pkcs12", "github.com/erofs/go-erofs"}},
	{"hutch/internal/text", nil},
	{"hutch/internal/tarball", []string{sys}},
	{"hutch/internal/tarfile", nil},
	{"hutch/internal/flowcontrol", nil},
	{"hutch/internal/pipe", nil},
	{"hutch/internal/durable", []string{"hutch", sys}},
	{"hutch/internal/settings", []string{"github.com/spf13/pflag", "go.yaml.in/yaml/v3"}},
	{"hutch/internal/servers", []string{"hutch", "hutch/internal/durable", "hutch/internal/netaddr"}},
	{"hutch/internal/headtail", []string{"hutch"}},
	{"hutch/internal/jsoncount", nil},
	{"hutch/internal/membudget", []string{"hutch/internal/jsoncount"}},
	{"hutch/internal/caller", []string{"hutch", "hutch/internal/membudget"}},
	{"hutch/internal/credential", nil},
	{"hutch/internal/ceiling", []string{"hutch", "hutch/internal/caller"}},
	{"hutch/internal/ctxlock", nil},
	{"hutch/internal/delay", nil},
	{"hutch/internal/fairqueue", nil},
	{"hutch/internal/netaddr", nil},
	{"hutch/internal/files", []string{"hutch", "github.com/bmatcuk/doublestar/v4", sys}},

	// Both ends of the protocol. The agent is in every sandbox: keep it small.
	{"hutch/internal/wire", []string{"hutch", sys}},
	{"hutch/internal/runner", []string{"hutch", "hutch/internal/wire", "github.com/evanw/esbuild/pkg/api", sys}},
	{"hutch/internal/kernel", []string{"hutch", "hutch/internal/runner", "hutch/internal/text", "hutch/internal/wire"}},
	{"hutch/internal/agent", []string{"hutch", "hutch/internal/account", "hutch/internal/files", "hutch/internal/flowcontrol", "hutch/internal/wire", "hutch/internal/linux/...", sys}},

	{"hutch/internal/git", []string{"hutch", "hutch/internal/text"}},

	// The host's end of a sandbox's network.
	{"hutch/internal/netstack", []string{"hutch/internal/linux/tun", "golang.org/x/time/rate", "gvisor.dev/gvisor/pkg/...", sys}},

	// Runtimes implement the contract of driver, and do not import each other.
	{"hutch/internal/driver", []string{"hutch", "hutch/internal/image", "hutch/internal/wire"}},
	{"hutch/internal/driver/fake", []string{"hutch", "hutch/internal/driver", "hutch/internal/image", "hutch/internal/wire", "hutch/internal/agent"}},
	{"hutch/internal/driver/native/...", []string{
		"hutch", "hutch/internal/driver", "hutch/internal/driver/native/...",
		"hutch/internal/image", "hutch/internal/tarball", "hutch/internal/wire", "hutch/internal/agent", "hutch/internal/linux/...", "hutch/internal/ctxlock", sys,
	}},
	{"hutch/internal/driver/docker/inside", []string{"hutch/internal/wire", sys}}, // runs in every container
	{"hutch/internal/driver/docker", []string{
		"hutch", "hutch/internal/delay", "hutch/internal/driver", "hutch/internal/image", "hutch/internal/wire", "hutch/internal/linux/...", "hutch/internal/ctxlock", sys,
		"github.com/containerd/errdefs", "github.com/moby/moby/api/...", "github.com/moby/moby/client",
	}},
	{"hutch/internal/driver/memguard", []string{"hutch/internal/delay", "hutch/internal/linux/cgroup"}},
	{"hutch/internal/driver/kubernetes/inside", []string{"hutch/internal/driver/memguard", "hutch/internal/linux/...", "hutch/internal/tarball", "hutch/internal/wire", "github.com/hashicorp/yamux", sys}}, // runs in every pod
	{"hutch/internal/driver/kubernetes", []string{
		"hutch", "hutch/internal/delay", "hutch/internal/driver", "hutch/internal/driver/kubernetes/inside", "hutch/internal/driver/memguard", "hutch/internal/image", "hutch/internal/wire", "hutch/internal/linux/...", "hutch/internal/ctxlock", sys,
		"github.com/hashicorp/yamux", "k8s.io/api/core/v1", "k8s.io/apimachinery/...", "k8s.io/client-go/...", "sigs.k8s.io/yaml",
	}},
	{"hutch/internal/driver/gvisor/filter", []string{"gvisor.dev/gvisor/..."}},
	{"hutch/internal/driver/gvisor/contract", nil},
	{"hutch/internal/driver/gvisor/gofer", []string{"hutch/internal/driver/gvisor/filter", "gvisor.dev/gvisor/...", sys}},
	{"hutch/internal/driver/gvisor/...", []string{
		"hutch", "hutch/internal/delay", "hutch/internal/driver", "hutch/internal/driver/memguard", "hutch/internal/driver/gvisor/...", "hutch/internal/tarfile",
		"hutch/internal/durable", "hutch/internal/image", "hutch/internal/tarball", "hutch/internal/wire", "hutch/internal/linux/...", sys,
		"github.com/opencontainers/runtime-spec/specs-go",
	}},

	{"hutch/internal/listen", []string{"golang.org/x/crypto/acme/..."}},

	// Packages for the network of sandboxes.
	{"hutch/internal/egress", []string{"hutch", "hutch/internal/broker", "hutch/internal/listen", "hutch/internal/netaddr", "hutch/internal/netstack", "hutch/internal/secret", "golang.org/x/net/dns/dnsmessage", "golang.org/x/net/proxy", "golang.org/x/time/rate"}},

	// Ready instances of any kind.
	{"hutch/internal/pool", []string{"hutch"}},

	// The engine imports the contract of runtimes, but no runtime.
	{"hutch/internal/store", []string{"hutch", "hutch/internal/delay", "hutch/internal/driver", "hutch/internal/durable", "modernc.org/sqlite/...", "github.com/jackc/pgx/v5/...", "golang.org/x/crypto/chacha20poly1305"}},
	{"hutch/internal/snapshots", []string{"hutch", "hutch/internal/driver", "hutch/internal/durable", "hutch/internal/store", sys}},
	{"hutch/internal/box", []string{"hutch", "hutch/internal/caller", "hutch/internal/driver", "hutch/internal/netstack", "hutch/internal/snapshots", "hutch/internal/store", "hutch/internal/ctxlock", "hutch/internal/wire"}},
	{"hutch/internal/saved", []string{"hutch", "hutch/internal/tarfile", "hutch/internal/durable", "hutch/internal/image", "hutch/internal/travel", "hutch/internal/wire", "github.com/klauspost/compress/zstd"}},
	{"hutch/internal/compare", []string{"hutch"}},
	{"hutch/internal/instance", []string{
		"hutch", "hutch/internal/driver", "hutch/internal/fairqueue", "hutch/internal/image", "hutch/internal/kernel", "hutch/internal/pool", "hutch/internal/saved", "hutch/internal/snapshots", "hutch/internal/wire", sys,
	}},
	{"hutch/internal/mount", []string{"hutch", "hutch/internal/wire"}},
	{"hutch/internal/exposure", []string{"hutch", "hutch/internal/store"}},
	{"hutch/internal/ledger", []string{"hutch", "hutch/internal/store"}},
	{"hutch/internal/bucket", []string{"hutch", "hutch/internal/netaddr", "github.com/minio/minio-go/v7/..."}},
	{"hutch/internal/objects", []string{"hutch", "hutch/internal/bucket", "hutch/internal/durable", "github.com/minio/minio-go/v7/..."}},
	{"hutch/internal/travel", []string{"hutch", "hutch/internal/objects", "github.com/klauspost/compress/zstd", "golang.org/x/crypto/chacha20poly1305"}},
	{"hutch/internal/resumable", []string{"hutch"}},
	{"hutch/internal/linesearch", []string{"hutch"}},
	{"hutch/internal/screen", []string{"hutch", "hutch/internal/caller"}},
	{"hutch/internal/coderesult", []string{"hutch", "hutch/internal/headtail", "hutch/internal/kernel"}},
	{"hutch/internal/engine", []string{
		"hutch", "hutch/internal/caller", "hutch/internal/ceiling", "hutch/internal/coderesult", "hutch/internal/linesearch", "hutch/internal/resumable", "hutch/internal/box", "hutch/internal/compare", "hutch/internal/delay", "hutch/internal/driver", "hutch/internal/durable", "hutch/internal/exposure", "hutch/internal/fairqueue", "hutch/internal/image", "hutch/internal/instance", "hutch/internal/ledger", "hutch/internal/mount", "hutch/internal/saved", "hutch/internal/wire", "hutch/internal/headtail", "hutch/internal/git", "hutch/internal/kernel", "hutch/internal/netstack", "hutch/internal/pipe", "hutch/internal/pool", "hutch/internal/runner", "hutch/internal/screen", "hutch/internal/snapshots", "hutch/internal/store", "hutch/internal/text", "hutch/internal/travel", "hutch/internal/ctxlock",
	}},

	{"hutch/internal/volume", []string{"hutch", "hutch/internal/bucket", "hutch/internal/caller", "hutch/internal/durable", "hutch/internal/fairqueue", "hutch/internal/pipe", "hutch/internal/ctxlock", "github.com/klauspost/compress/zstd"}},

	// Surfaces call a hutch.Service, whichever implementation it is.
	{"hutch/internal/httpio", nil},
	{"hutch/internal/problem", []string{"hutch"}},
	{"hutch/internal/jsonfault", []string{"hutch"}},
	{"hutch/internal/yamlfault", nil},
	{"hutch/internal/guesses", nil},
	{"hutch/internal/tunnel", nil},
	{"hutch/internal/preview", []string{"hutch", "hutch/internal/caller", "hutch/internal/credential", "hutch/internal/guesses", "hutch/internal/httpio", "hutch/internal/problem"}},
	{"hutch/internal/stream", []string{"hutch", "hutch/internal/problem", "hutch/internal/text", "github.com/coder/websocket"}},
	{"hutch/internal/verb", []string{"hutch"}},
	{"hutch/internal/wrap", []string{"hutch", "hutch/internal/verb"}},
	{"hutch/internal/audit", []string{"hutch", "hutch/internal/caller", "hutch/internal/text", "hutch/internal/verb"}},
	{"hutch/internal/timeline", []string{"hutch", "hutch/internal/audit", "hutch/internal/caller", "hutch/internal/verb"}},
	{"hutch/internal/history", []string{"hutch", "hutch/internal/caller", "hutch/internal/durable"}},
	{"hutch/internal/auth", []string{"hutch", "hutch/internal/caller", "hutch/internal/store", "github.com/coreos/go-oidc/v3/oidc"}},
	{"hutch/internal/openid", []string{"hutch", "hutch/internal/netaddr", "github.com/coreos/go-oidc/v3/oidc", "golang.org/x/oauth2"}},
	{"hutch/internal/quota", []string{"hutch", "hutch/internal/store"}},
	{"hutch/internal/policy", []string{"hutch", "hutch/internal/caller", "hutch/internal/ceiling", "hutch/internal/audit", "hutch/internal/quota", "hutch/internal/store", "hutch/internal/verb", "hutch/internal/wrap"}},
	{"hutch/internal/guard", []string{"hutch", "hutch/internal/caller", "hutch/internal/credential", "hutch/internal/httpio", "hutch/internal/netaddr", "hutch/internal/problem", "hutch/internal/quota", "hutch/internal/membudget"}},
	{"hutch/internal/mcp", []string{"hutch", "hutch/internal/caller", "hutch/internal/coding", "hutch/internal/conversation", "hutch/internal/httpio", "hutch/internal/jsonfault", "hutch/internal/problem", "hutch/internal/text", mcpSDK, "github.com/google/jsonschema-go/...", "github.com/segmentio/encoding/json"}},
	{"hutch/internal/metrics", []string{"hutch", "hutch/internal/audit", "github.com/prometheus/client_golang/..."}},
	{"hutch/internal/trace", []string{"hutch", "hutch/internal/caller", "hutch/internal/audit", "go.opentelemetry.io/..."}},
	{"hutch/internal/sshkeys", []string{"hutch", "hutch/internal/caller", "hutch/internal/store", "golang.org/x/crypto/ssh"}},
	{"hutch/internal/sshd/sftpfs", []string{"hutch", "hutch/internal/membudget", "github.com/pkg/sftp"}},
	{"hutch/internal/sshd", []string{"hutch", "hutch/internal/caller", "hutch/internal/listen", "hutch/internal/netaddr", "hutch/internal/membudget", "hutch/internal/sshkeys", "hutch/internal/sshd/sftpfs", "hutch/internal/tunnel", "golang.org/x/crypto/ssh"}},
	{"hutch/internal/owners", []string{"hutch", "hutch/internal/caller"}},
	{"hutch/internal/conversation", []string{"hutch", "hutch/internal/tarfile", "hutch/internal/caller", "hutch/internal/durable", "hutch/internal/httpio", "hutch/internal/problem", "hutch/internal/ctxlock"}},
	{"hutch/internal/backup", []string{"hutch", "hutch/internal/caller", "hutch/internal/objects", "hutch/internal/pipe", "hutch/internal/ctxlock", "github.com/klauspost/compress/zstd"}},
	{"hutch/internal/secret", []string{"hutch", "hutch/internal/caller", "hutch/internal/store", "hutch/internal/verb", "hutch/internal/wrap", "hutch/internal/durable", "hutch/internal/headtail", "filippo.io/age"}},
	{"hutch/internal/oci/rootfs", []string{"hutch", "hutch/internal/account", "hutch/internal/pipe", "github.com/erofs/go-erofs", "github.com/klauspost/compress/gzip", "github.com/klauspost/compress/zstd", "github.com/mikelolasagasti/xz"}},
	{"hutch/internal/oci/registry", []string{"hutch", "hutch/internal/netaddr", "github.com/google/go-containerregistry/pkg/..."}},
	{"hutch/internal/oci", []string{"hutch", "hutch/internal/tarfile", "hutch/internal/delay", "hutch/internal/durable", "hutch/internal/fairqueue", "hutch/internal/jsoncount", "hutch/internal/linux/subid", "hutch/internal/oci/...", "hutch/internal/pipe", "hutch/internal/ctxlock", "github.com/google/go-containerregistry/pkg/...", "github.com/klauspost/compress/gzip"}},
	{"hutch/internal/build/context", []string{"github.com/moby/patternmatcher/..."}},
	{"hutch/internal/build/export", []string{"hutch", "github.com/google/go-containerregistry/..."}},
	{"hutch/internal/build", []string{
		"hutch", "hutch/internal/caller", "hutch/internal/image", "hutch/internal/oci/...", "hutch/internal/pipe", "hutch/internal/ctxlock", "github.com/erofs/go-erofs", "google.golang.org/protobuf/proto",
		"github.com/moby/buildkit/...", "github.com/moby/patternmatcher/...", "github.com/opencontainers/go-digest", "github.com/opencontainers/image-spec/specs-go/v1", "github.com/tonistiigi/dchapes-mode", sys,
	}},
	{"hutch/internal/buildlog", []string{"hutch", "hutch/internal/caller", "hutch/internal/secret"}},
	{"hutch/internal/images", []string{"hutch", sys, "hutch/internal/buildlog", "hutch/internal/caller", "hutch/internal/image", "hutch/internal/oci", "hutch/internal/pipe", "github.com/erofs/go-erofs"}},
	{"hutch/internal/docker", []string{"hutch", "hutch/internal/caller", "hutch/internal/delay", "github.com/moby/moby/client"}},
	{"hutch/internal/authority", []string{"hutch", "hutch/internal/durable"}},
	{"hutch/internal/broker", []string{"hutch", "hutch/internal/authority", "hutch/internal/listen", "hutch/internal/problem", "hutch/internal/secret"}},
	{"hutch/internal/console", []string{"hutch", "hutch/internal/audit", "hutch/internal/caller", "hutch/internal/credential", "hutch/internal/guesses", "hutch/internal/httpio", "hutch/internal/netaddr", "hutch/internal/openid", "hutch/internal/problem", "hutch/internal/verb"}},
	{"hutch/api", []string{"go.yaml.in/yaml/v3"}},
	{"hutch/internal/watchlink", []string{"hutch", "hutch/internal/audit", "hutch/internal/caller", "hutch/internal/store"}},
	{"hutch/internal/rest", []string{"hutch", "hutch/internal/caller", "hutch/api", "hutch/internal/audit", "hutch/internal/verb", "hutch/internal/httpio", "hutch/internal/jsonfault", "hutch/internal/problem", "hutch/internal/stream", "hutch/internal/flowcontrol", "hutch/internal/watchlink", "github.com/coder/websocket"}},

	// Questions become programs that a hutch.Service runs.
	{"hutch/internal/ask", []string{"hutch", "hutch/internal/caller", "hutch/internal/runner", "hutch/internal/text", "github.com/anthropics/anthropic-sdk-go", "github.com/anthropics/anthropic-sdk-go/option", "hutch/internal/yamlfault", "go.yaml.in/yaml/v3"}},

	// Translations of other products' APIs.
	{"hutch/internal/compat/e2b/seam", []string{"hutch"}},
	{"hutch/internal/compat/e2b/envd", []string{"hutch", "hutch/internal/caller", "hutch/internal/compat/e2b/seam", "hutch/internal/httpio", "hutch/internal/jsonfault"}},
	{"hutch/internal/compat/e2b/interpreter", []string{"hutch", "hutch/internal/caller", "hutch/internal/compat/e2b/seam", "hutch/internal/httpio", "hutch/internal/jsoncount", "hutch/internal/jsonfault", "hutch/internal/text"}},
	{"hutch/internal/compat/e2b/recipe", []string{"hutch"}},
	{"hutch/internal/compat/e2b", []string{"hutch", "hutch/internal/caller", "hutch/internal/compat/e2b/...", "hutch/internal/httpio", "hutch/internal/jsonfault"}},
	{"hutch/internal/compat/bridge", []string{"hutch", "hutch/internal/compat", "hutch/internal/httpio", "hutch/internal/pipe", "hutch/internal/ctxlock", "github.com/coder/websocket"}},
	{"hutch/internal/compat/swerex", []string{"hutch", "hutch/internal/caller", "hutch/internal/compat", "hutch/internal/httpio", "hutch/internal/pipe"}},
	{"hutch/internal/compat/piston", []string{"hutch", "hutch/internal/compat", "hutch/internal/httpio", sys}},
	{"hutch/internal/compat/judge0", []string{"hutch", "hutch/internal/compat", sys}},
	{"hutch/internal/compat/jupyter", []string{"hutch", "hutch/internal/caller", "hutch/internal/compat", "hutch/internal/httpio", "hutch/internal/problem", "hutch/internal/text", "hutch/internal/ctxlock", "hutch/internal/flowcontrol", "github.com/coder/websocket"}},
	{"hutch/internal/compat/dify", []string{"hutch", "hutch/internal/compat"}},
	{"hutch/internal/compat/librechat", []string{"hutch", "hutch/internal/compat", "hutch/internal/httpio", "hutch/internal/pipe", "github.com/go-jose/go-jose/v4/...", sys}},
	{"hutch/internal/compat/openterminal", []string{"hutch", "hutch/internal/caller", "hutch/internal/compat", "hutch/internal/httpio", "hutch/internal/preview", "github.com/coder/websocket", sys}},
	{"hutch/internal/compat/ragflow", []string{"hutch", "hutch/internal/compat"}},
	{"hutch/internal/compat/execute", []string{"hutch", "hutch/internal/compat", "hutch/internal/httpio"}},
	{"hutch/internal/compat", []string{"hutch", "hutch/internal/caller", "hutch/internal/httpio", "hutch/internal/jsonfault"}},

	// Agents of other services, whose tools run here.
	{"hutch/internal/worker", []string{"hutch", "hutch/internal/delay", "hutch/internal/headtail", "hutch/internal/files", "hutch/internal/jsonfault", "github.com/anthropics/anthropic-sdk-go/..."}},

	{"hutch/client", []string{"hutch", "hutch/internal/audit", "hutch/internal/delay", "hutch/internal/problem", "hutch/internal/stream", "hutch/internal/verb", "github.com/coder/websocket"}},

	// Objects of Kubernetes become sandboxes of any hutch.Service.
	{"hutch/internal/controller/router", []string{"hutch", "hutch/internal/caller", "hutch/internal/compat", "hutch/internal/httpio", "hutch/internal/netaddr", "hutch/internal/problem", "hutch/internal/membudget"}},
	{"hutch/internal/controller", []string{"hutch", "hutch/internal/controller/router", "hutch/internal/delay", "hutch/internal/jsonfault", "k8s.io/apimachinery/pkg/...", "k8s.io/client-go/dynamic", "k8s.io/client-go/tools/...", "k8s.io/client-go/util/workqueue", "k8s.io/klog/v2"}},

	// Several machines as one: a hutch.Service that uses the services of all machines.
	{"hutch/internal/fleet", []string{"hutch", "hutch/client", "hutch/internal/caller", "hutch/internal/ctxlock", "hutch/internal/delay", "hutch/internal/durable", "hutch/internal/listen", "hutch/internal/objects", "hutch/internal/problem", "hutch/internal/rest", "hutch/internal/membudget", "hutch/internal/store", "hutch/internal/travel", "hutch/internal/verb", "hutch/internal/wrap", "filippo.io/age", "github.com/jackc/pgx/v5/...", "golang.org/x/sync/singleflight", sys}},

	// Backups of a whole data folder.
	{"hutch/internal/installation", []string{"hutch", "hutch/internal/tarfile", "hutch/internal/datadir", "hutch/internal/durable", "hutch/internal/secret", "hutch/internal/store", "hutch/internal/travel", sys}},

	// The data folder and the machine, for every program that runs an engine.
	{"hutch/internal/datadir", []string{"hutch", "hutch/internal/durable", sys}},
	{"hutch/internal/host", []string{"hutch", "hutch/internal/driver", "hutch/internal/driver/docker", "hutch/internal/driver/gvisor", "hutch/internal/driver/kubernetes", "hutch/internal/driver/native", "hutch/internal/egress", "hutch/internal/engine", "hutch/internal/image", "hutch/internal/linux/tun", "hutch/internal/runner"}},

	// Workflows: a client of the server, and a folder of its own.
	{"hutch/internal/flow", []string{"hutch", "hutch/internal/tarfile", "hutch/internal/datadir", "hutch/internal/delay", "hutch/internal/durable", "hutch/internal/files", "hutch/internal/yamlfault", "go.yaml.in/yaml/v3"}},

	// The package that wires the server together. No surface imports it, and it does not read the command line.
	{"hutch/internal/daemon", []string{
		"hutch", "hutch/internal/ask", "hutch/internal/audit", "hutch/internal/auth", "hutch/internal/authority", "hutch/internal/backup", "hutch/internal/broker", "hutch/internal/build", "hutch/internal/caller", "hutch/internal/coding", "hutch/internal/compat/...", "hutch/internal/console", "hutch/internal/conversation", "hutch/internal/datadir", "hutch/internal/delay", "hutch/internal/docker", "hutch/internal/driver", "hutch/internal/durable", "hutch/internal/egress", "hutch/internal/engine", "hutch/internal/fleet", "hutch/internal/guard", "hutch/internal/history", "hutch/internal/host", "hutch/internal/image", "hutch/internal/images", "hutch/internal/installation", "hutch/internal/oci",
		"hutch/internal/linux/pressure", "hutch/internal/listen", "hutch/internal/mcp", "hutch/internal/metrics", "hutch/internal/netaddr", "hutch/internal/objects", "hutch/internal/openid", "hutch/internal/owners", "hutch/internal/policy", "hutch/internal/preview", "hutch/internal/problem", "hutch/internal/quota", "hutch/internal/rest", "hutch/internal/membudget", "hutch/internal/secret", "hutch/internal/sshd", "hutch/internal/sshkeys", "hutch/internal/store", "hutch/internal/timeline", "hutch/internal/trace", "hutch/internal/volume", "hutch/internal/watchlink", "hutch/internal/wrap",
		"github.com/minio/minio-go/v7/pkg/credentials", "golang.org/x/crypto/ssh",
	}},

	// Coding agents, which call the verbs.
	{"hutch/internal/patch", []string{"hutch"}},
	{"hutch/internal/coding", []string{"hutch", "hutch/internal/caller", "hutch/internal/compat", "hutch/internal/files", "hutch/internal/httpio", "hutch/internal/jsonfault", "hutch/internal/patch", "hutch/internal/problem", "hutch/internal/text", "hutch/internal/yamlfault", "go.yaml.in/yaml/v3"}},

	// For tests only: no line above names these.
	{"hutch/internal/fakeservice", []string{"hutch"}},
	{"hutch/internal/servicetest", []string{"hutch"}},
	{"hutch/internal/driver/drivertest/probe", []string{sys}}, // runs in sandboxes of the suite
	{"hutch/internal/driver/drivertest", []string{"hutch", "github.com/erofs/go-erofs", "hutch/internal/driver", "hutch/internal/image", "hutch/internal/linux/subid", "hutch/internal/netstack", "hutch/internal/wire", sys}},
	{"hutch/internal/hutchtest/...", []string{anything}},
	{"hutch/test/...", []string{anything}},
	{"hutch/bench/...", []string{anything}},
	{"hutch/tools/...", nil},

	// Programs like those that our users write.
	{"hutch/examples/...", []string{"hutch", "hutch/client", mcpSDK}},

	// The programs.
	{"hutch/cmd/hutch-agent", []string{
		"hutch", "hutch/internal/agent", "hutch/internal/wire", "hutch/internal/linux/...",
		"hutch/internal/driver/docker/inside", "hutch/internal/driver/kubernetes/inside", "hutch/internal/driver/native/inside", "hutch/internal/tarball", "hutch/internal/driver/gvisor/inside", sys,
	}},
	{"hutch/cmd/hutch-gofer", []string{"hutch/internal/driver/gvisor/gofer", sys}},
	{"hutch/cmd/hutch-runsc", []string{"hutch/internal/driver/gvisor/contract", "hutch/internal/driver/gvisor/filter", "hutch/internal/driver/gvisor/gofer", "hutch/internal/linux/mount", "gvisor.dev/gvisor/...", "github.com/opencontainers/runtime-spec/specs-go", sys}},
	{"hutch/cmd/hutch", []string{
		"hutch", "hutch/client", "hutch/internal/agent", "hutch/internal/ask", "hutch/internal/audit", "hutch/internal/auth", "hutch/internal/authority", "hutch/internal/backup", "hutch/internal/broker", "hutch/internal/build/context", "hutch/internal/build/export", "hutch/internal/coding", "hutch/internal/controller", "hutch/internal/daemon", "hutch/internal/durable", "hutch/internal/datadir", "hutch/internal/delay", "hutch/internal/driver", "hutch/internal/engine", "hutch/internal/files", "hutch/internal/fleet", "hutch/internal/flow", "hutch/internal/images", "hutch/internal/installation", "hutch/internal/oci",
		"hutch/internal/host", "hutch/internal/image", "hutch/internal/linux/cgroup", "hutch/internal/linux/pressure", "hutch/internal/listen", "hutch/internal/mcp", "hutch/internal/netaddr", "hutch/internal/patch", "hutch/internal/pipe", "hutch/internal/runner", "hutch/internal/secret", "hutch/internal/servers", "hutch/internal/settings", "hutch/internal/sshd", "hutch/internal/store", "hutch/internal/stream", "hutch/internal/tunnel", "hutch/internal/text", "hutch/internal/trace", "hutch/internal/volume", "hutch/internal/worker",
		"github.com/google/go-containerregistry/pkg/authn", "github.com/google/go-containerregistry/pkg/name", "github.com/minio/minio-go/v7/pkg/credentials", "github.com/spf13/cobra", "github.com/spf13/cobra/doc", "github.com/spf13/pflag", "golang.org/x/crypto/ssh", "golang.org/x/term", sys,
	}},
}

// testOnly are the packages that are in no program.
var testOnly = []string{"hutch/internal/fakeservice", "hutch/internal/servicetest", "hutch/internal/driver/drivertest", "hutch/internal/driver/fake", "hutch/internal/hutchtest", "hutch/internal/hutchtest/browser", "hutch/internal/hutchtest/compattest", "hutch/internal/hutchtest/disk", "hutch/internal/hutchtest/testimage", "hutch/internal/hutchtest/fakeengine", "hutch/internal/hutchtest/issuer", "hutch/internal/hutchtest/managedagents", "hutch/internal/hutchtest/messages", "hutch/internal/hutchtest/plot", "hutch/internal/hutchtest/s3", "hutch/internal/hutchtest/server", "hutch/internal/hutchtest/tokens"}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		i := slices.IndexFunc(layers, func(l layer) bool { return covers(l.names, p.path) })
		if i < 0 {
			t.Errorf("%s is in no layer: add a line for it to layers in deps_test.go, as far down as it can stand", p.path)
			continue
		}
		for _, im := range p.imports {
			switch {
			case covers("hutch/cmd/...", im.path):
				t.Errorf("%s: %s imports %s: a program is imported by nothing; move what both need to a package", im.at, p.path, im.path)
			case im.test || isStandard(im.path):
			case slices.Contains(testOnly, im.path) && strings.HasPrefix(p.path, "hutch/cmd/"):
				t.Errorf("%s: %s imports %s, which is for tests", im.at, p.path, im.path)
			case !slices.ContainsFunc(layers[i].may, func(pattern string) bool { return covers(pattern, im.path) }):
				t.Errorf("%s: %s may not import %s, only the standard library and %q: ask for what it needs by an interface or a value, or say in deps_test.go why it may",
					im.at, p.path, im.path, layers[i].may)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		want := "Package " + p.name + " "
		if p.name == "main" {
			want = "Command " + path.Base(p.path) + " "
		}
		switch {
		case p.doc == "":
			t.Errorf("%s has no package comment: begin one of its files with one that starts with %q and says the one idea", p.path, want)
		case p.name != "main" && !strings.HasPrefix(p.doc, want):
			t.Errorf("the package comment of %s starts with %.40q: start with %q", p.path, p.doc, want)
		}
	}
}

func TestPackageNames(t *testing.T) {
	const deepest = 3 // folders below internal
	for _, p := range packages(t) {
		for _, name := range []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "base", "shared", "lib"} {
			if path.Base(p.path) == name || p.name == name {
				t.Errorf("%s: %q says nothing: name it after what it does", p.path, name)
			}
		}
		if _, below, ok := strings.Cut(p.path, "/internal/"); ok && strings.Count(below, "/") >= deepest {
			t.Errorf("%s is more than %d folders deep: move it up", p.path, deepest)
		}
	}
}

// large are the types with more than 100 methods. ARCHITECTURE.md says why.
var large = []string{"client.Client", "internal/compat/e2b.Server", "internal/daemon.Daemon", "internal/rest.Handler"}

func TestSizeOfTypes(t *testing.T) {
	const most = 100
	var found []string
	for name, n := range methods(t) {
		if n <= most {
			continue
		}
		if found = append(found, name); !slices.Contains(large, name) {
			t.Errorf("%s has %d methods, more than %d: find the part of it that needs the least of its fields, and make that a type or a package", name, n, most)
		}
	}
	for _, name := range large {
		if !slices.Contains(found, name) {
			t.Errorf("%s has at most %d methods now: remove it from the list of large types, here and in ARCHITECTURE.md", name, most)
		}
	}
}

var methodOf = regexp.MustCompile(`(?m)^func \((?:\w+ )?\*?(\w+)(?:\[[^]]*\])?\) `)

// methods counts the methods that are declared on each type, without those of tests.
func methods(t *testing.T) map[string]int {
	t.Helper()
	count := map[string]int{}
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skip(file)
		}
		if filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(file)
		for _, m := range methodOf.FindAllSubmatch(text, -1) {
			count[filepath.ToSlash(filepath.Dir(file))+"."+string(m[1])]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// goPackage is one folder of Go source.
type goPackage struct {
	path, name string
	doc        string // the package comment
	imports    []goImport
}

type goImport struct {
	path string
	at   token.Position
	test bool // in a test
}

// packages reads the head of every Go file of the module, below the folder
// that this test runs in.
func packages(t *testing.T) []*goPackage {
	t.Helper()
	byPath := map[string]*goPackage{}
	var list []*goPackage
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skip(file)
		}
		if filepath.Ext(file) != ".go" {
			return nil
		}
		at := path.Join("hutch", filepath.ToSlash(filepath.Dir(file)))
		if byPath[at] == nil {
			byPath[at] = &goPackage{path: at}
			list = append(list, byPath[at])
		}
		return byPath[at].read(file)
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// skip leaves out folders that are not part of this module.
func skip(dir string) error {
	name := filepath.Base(dir)
	if dir == "." {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || name[0] == '.' || name == "testdata" || name == "node_modules" || dir == "bin" {
		return filepath.SkipDir
	}
	return nil
}

func (p *goPackage) read(file string) error {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, file, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	test := strings.HasSuffix(file, "_test.go")
	if p.name == "" || !test {
		p.name = f.Name.Name
	}
	p.doc += f.Doc.Text()
	for _, im := range f.Imports {
		p.imports = append(p.imports, goImport{importPath(im), files.Position(im.Pos()), test})
	}
	return nil
}

// importPath is the imported path, with "hutch" in place of the module's path.
func importPath(im *ast.ImportSpec) string {
	s, _ := strconv.Unquote(im.Path.Value) // the parser has checked it
	if below, ok := strings.CutPrefix(s, modulePath()); ok && (below == "" || below[0] == '/') {
		return "hutch" + below
	}
	return s
}

// modulePath is the path in go.mod, which `make module` changes.
var modulePath = sync.OnceValue(func() string {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		panic(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(first, "module ")
})

// covers reports whether a pattern names a package.
func covers(pattern, name string) bool {
	prefix, all := strings.CutSuffix(pattern, "...")
	if !all {
		return name == pattern
	}
	return strings.HasPrefix(name+"/", prefix)
}

func isStandard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return first != "hutch" && !strings.Contains(first, ".")
}
