// Package escape attacks sandboxes from inside, on every runtime. For each attack it
// says what a success would give the attacker, and how the attack must end.
//
// An attack is a Python program, attacks/<name>.py, that makes attempts and reports
// each. The test reads the list of attempts from the source: an attempt that is not
// reported was not made, and fails the test like a successful one. Secrets are given
// to an attack backwards, so that it finds only those that leaked.
package escape

import (
	"embed"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver/drivertest"
	"hutch/internal/hutchtest"
)

//go:embed attacks
var sources embed.FS

// attack is a program that runs in its own sandbox.
type attack struct {
	name  string
	gives string // what success would give
	// but lists the attempts that are allowed to succeed on a runtime, and why they are not escapes.
	but map[string]allowances
}

type allowances map[string]string

var attacks = []attack{
	{name: "mount", gives: "a view of the host's files, or a /proc without masks"},
	{name: "namespaces", gives: "all capabilities in a namespace of one's own, and the parts of the kernel that need them", but: map[string]allowances{
		"gvisor": {
			"a new user namespace":                  sentryOnly,
			"new namespaces of all kinds":           sentryOnly,
			"new ones without a user namespace":     "gVisor has no time namespaces, and ignores the wish",
			"clone with a user namespace":           sentryOnly,
			"clone3 with a user namespace":          sentryOnly,
			"mount as root of a new user namespace": sentryOnly,
		},
	}},
	{name: "ptrace", gives: "the agent's memory and descriptors, its token among them"},
	{name: "agent", gives: "the agent's memory and descriptors, by /proc"},
	{name: "token", gives: "the token that lets its bearer be the daemon"},
	{name: "proc_sys", gives: "programs that the host's kernel runs as root"},
	{name: "sys", gives: "devices and settings of the host"},
	{name: "hidden", gives: "what the kernel tells about other programs, and where it lies in memory", but: map[string]allowances{
		"gvisor": {"the kernel's log by syslog": "gVisor's own log, which tells jokes"},
	}},
	{name: "sockets", gives: "the host's network, or rarely tested parts of the kernel", but: map[string]allowances{
		"gvisor": {"rare protocols over TCP": "gVisor's own TCP, which takes the option and does nothing"},
	}},
	{name: "kernel", gives: "code in the kernel"},
	{name: "machine", gives: "the host's clock, name and power", but: map[string]allowances{
		"gvisor": {
			"a better place in the queue":   "a number that gVisor keeps; the host schedules the whole sandbox as ever",
			"never to be killed for memory": "a number that gVisor keeps; the host's limit is on the whole sandbox",
		},
	}},
	{name: "keyring", gives: "keys that the kernel keeps for every process of a user id", but: map[string]allowances{
		"gvisor": {"join a session by name": sentryOnly},
	}},
	{name: "cgroup", gives: "no limits, or a program that the host runs as root"},
	{name: "devices", gives: "the host's memory and disks", but: map[string]allowances{
		"gvisor": {
			"networks":         "gVisor's own /dev/net/tun, for which its own stack asks for CAP_NET_ADMIN",
			"file systems":     "gVisor's own /dev/fuse, which serves mounts that only its root can make",
			"any other device": "these two",
		},
	}},
	{name: "masks", gives: "what is hidden in /proc"},
	{name: "setuid", gives: "root"},
	{name: "host_sockets", gives: "the host's services, an engine for containers among them"},
	{name: "network", gives: "the host's network, and credentials from the cloud's metadata"},
	{name: "descriptors", gives: "a folder of the host, by what the daemon or the agent left open"},
	{name: "overwrite", gives: "the host's programs, the agent first"},
	{name: "terminal", gives: "words typed into the terminal of who runs the daemon"},
	{name: "handles", gives: "any file of a disk of which one file is seen"},
	{name: "processes", gives: "the host's processes", but: map[string]allowances{
		// The agent and the attack have the same user id, and the kernel protects the first process of a namespace only
		// from the worst signals.
		"native, rootless": {
			"kill the agent": "it ignores what the kernel delivers",
			"stop the agent": "the kernel delivers none of it",
			"slow the agent": "its own sandbox is the only one that is slower",
		},
	}},
	{name: "ipc", gives: "memory shared by others"},
	{name: "crash", gives: "files outside, or a program that the host runs as root on a dump"},
	{name: "secrets", gives: "passwords, keys and tokens of the host"},
	{name: "impersonate", gives: "commands to the agent, or answers to the daemon"},
	{name: "shared", gives: "what the host and other sandboxes run, or a way to hold them up", but: map[string]allowances{
		"gvisor": {
			"watch by signals":               sentryOnly,
			"a lease on a file of the image": sentryOnly,
			"the room on the host's disk":    "how much the disk of the image holds, and has free; no more of it",
			"the host's memory in numbers":   sentryOnly,
		},
		// An ordinary user cannot create device nodes, so sandboxes have the host's.
		"native, rootless": {"watch a device": "that somebody opens /dev/null"},
	}},
	{name: "neighbour", gives: "the sandbox beside this one"},
}

// sentryOnly is the reason why what gVisor grants is harmless: its kernel in user space implements it without the
// host's kernel.
const sentryOnly = "an object of gVisor's own kernel; the host's makes none"

func TestMain(m *testing.M) { hutchtest.Main(m, func() { os.RemoveAll(sharedProbe) }) }

func TestAttacks(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			f := newField(t, runtime)
			f.startNeighbour(t)
			f.attacks(t, attacks)
		})
	}
}

// Copies of a sandbox must pass the same attacks, and further ones, because they share files.
func TestAttacksOnCopies(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root's sandboxes share files")
	}
	f := newField(t, "native")
	f.begin = f.hostile(t)
	f.startNeighbour(t)
	if kind := f.sh(t, "neighbour", "echo changed > folder/shared; stat -f -c %T /"); kind != "overlayfs\n" {
		t.Fatalf("the neighbour's root is a %s: it shares nothing", kind)
	}
	f.attacks(t, append(slices.Clone(attacks), attack{name: "layer", gives: "files of the host, or of other copies"}))
}

// hostile returns a snapshot that has everything that an attacker can prepare for its copies.
func (f *field) hostile(t *testing.T) string {
	t.Helper()
	id := f.sandbox(t, hutch.CreateRequest{})
	f.sh(t, id, `mkdir folder; echo below > folder/shared; ln -s / root; ln -s ../../../../../.. up; cp /usr/bin/id setuid; chmod 6755 setuid
		mknod folder/white c 0 0 2>/dev/null; head -c 5000000 /dev/urandom > large`)
	snap, err := f.svc.Snapshot(t.Context(), id, hutch.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return snap.ID
}

// attacks runs attacks in parallel.
func (f *field) attacks(t *testing.T, list []attack) {
	t.Run("attacks", func(t *testing.T) {
		for _, a := range list {
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				f.attack(t, a)
			})
		}
	})
	f.bait.check(t)
}

func TestRootless(t *testing.T) {
	t.Parallel()
	shareProbe(t)
	hutchtest.Rootless(t, "TestAttacks|TestRootInside|TestRootOfAnImage")
}

// sharedProbe is the folder with the probe for ordinary users.
var sharedProbe string

var writeProbe = sync.OnceValue(func() error {
	program, err := drivertest.Probe()
	if err != nil {
		return err
	}
	if sharedProbe, err = os.MkdirTemp("", "hutch-probe-"); err != nil {
		return err
	}
	path := filepath.Join(sharedProbe, "probe")
	os.Setenv(drivertest.ProbeEnv, path) // this process has its own
	return errors.Join(os.Chmod(sharedProbe, 0o711), os.WriteFile(path, program, 0o755))
})

// shareProbe lets ordinary users use the probe: they may be unable to build it.
func shareProbe(t *testing.T) {
	t.Helper()
	if err := writeProbe(); err != nil {
		t.Fatal(err)
	}
}

// TestSubordinate is TestRootless with a user that has subordinate ids, which sandboxes of images use.
func TestSubordinate(t *testing.T) {
	t.Parallel()
	shareProbe(t)
	hutchtest.Subordinate(t, "TestRootOfAnImage/native|TestHostileImage/native|TestSharedIDs")
}

// attack runs one attack in a sandbox, and checks on the sandbox after it.
func (f *field) attack(t *testing.T, a attack) {
	id := f.sandbox(t, hutch.CreateRequest{})
	source := program(t, a.name)
	r := f.run(t, id, hutch.ExecRequest{Language: "python", Command: source, Env: f.env(t, id)})
	if r.TimedOut || r.ExitCode != 0 {
		t.Errorf("the attack itself failed with exit code %d, timed out: %v\n%s\n%s", r.ExitCode, r.TimedOut, r.Stdout, r.Stderr)
	}
	tried := outcomes(string(r.Stdout))
	for _, name := range attempts(source) {
		outcome, made := tried[name]
		why, may := a.allowed(f.runtime)[name]
		switch {
		case !made:
			t.Errorf("%s: was not tried", name)
		case strings.HasPrefix(outcome, "reached") && !may:
			t.Errorf("%s: %s; it would give %s", name, outcome, a.gives)
		case may:
			t.Logf("%s: %s (%s)", name, outcome, why)
		default:
			t.Logf("%s: %s", name, outcome)
		}
	}
	f.checkWorks(t, id)
}

// allowed returns the attempts that are allowed to succeed: on the runtime, and on the runtime with this kind of
// daemon.
func (a attack) allowed(runtime string) allowances {
	all := allowances{}
	for _, kind := range []string{runtime, runtime + ", " + privilege()} {
		for name, why := range a.but[kind] {
			all[name] = why
		}
	}
	return all
}

func program(t *testing.T, name string) string {
	t.Helper()
	var text string
	for _, file := range []string{"prelude", name} {
		b, err := sources.ReadFile("attacks/" + file + ".py")
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	return text
}

var attemptLine = regexp.MustCompile(`(?m)^attempt\("([^"]+)"`)

// attempts returns the attempts that a program will make, from its source.
func attempts(source string) (names []string) {
	for _, m := range attemptLine.FindAllStringSubmatch(source, -1) {
		names = append(names, m[1])
	}
	return names
}

// outcomes returns the attempts that a program reported.
func outcomes(said string) map[string]string {
	tried := map[string]string{}
	for line := range strings.Lines(said) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), "\t", 3)
		if i := strings.Index(fields[0], "tried"); i >= 0 && len(fields) == 3 {
			tried[fields[1]] = fields[2]
		}
	}
	return tried
}

// TestAllowancesAreOfAttempts checks that every allowance names an attempt that exists.
func TestAllowancesAreOfAttempts(t *testing.T) {
	for _, a := range attacks {
		names := attempts(program(t, a.name))
		if len(names) == 0 {
			t.Errorf("%s makes no attempt", a.name)
		}
		for runtime, some := range a.but {
			for name := range some {
				if !slices.Contains(names, name) {
					t.Errorf("%s on %s: there is no attempt %q", a.name, runtime, name)
				}
			}
		}
	}
}

// patience bounds every attack.
const patience = 60 * time.Second
