// Package drivertest tests the contract that every driver must keep.
package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// Config has the suite's settings for a driver.
type Config struct {
	// Dir makes a state folder for one test.
	Dir func(t *testing.T) string
	// New returns a driver on a state folder. Two calls with the same folder return the drivers of a daemon before and
	// after its restart.
	New func(t *testing.T, dir string) driver.Driver
	// Root is the image that instances are made from.
	Root image.Root
	// Kill kills the instance's first process from outside.
	Kill func(t *testing.T, d driver.Driver, id string)
	// Isolated reports that instances have their own user, limits and file system.
	Isolated bool
	// Saves is set for a driver.Restorer.
	Saves bool
	// Adopts is set if instances can be given another identity.
	Adopts bool
	// Layers is set for a driver.Layerer.
	Layers bool
	// Images reports that instances can be made from an image's EROFS file. OneOwner reports that all files of such an
	// instance belong to the user that commands run as.
	Images, OneOwner bool
	// ReadOnlyImages reports that instances can be made from an image's EROFS file, and that no file of the image can
	// be changed.
	ReadOnlyImages bool
	// Networked reports that instances can have a network.
	Networked bool
	// HighPorts reports that only root can serve ports below 1024.
	HighPorts bool
	// Limited lists the limits that are enforced here: "memory", "pids", "disk".
	Limited []string
}

// Run tests whether a driver keeps the contract.
func Run(t *testing.T, c Config) {
	tests := maps.Clone(always)
	if c.Isolated {
		maps.Copy(tests, isolated)
	}
	if c.Adopts {
		tests["Adopts"] = adopts
	}
	if c.Saves {
		maps.Copy(tests, saved)
	}
	if c.Layers {
		maps.Copy(tests, layered)
	}
	switch {
	case c.Images:
		maps.Copy(tests, imaged)
	case c.ReadOnlyImages:
		for _, name := range unwritten {
			tests[name] = imaged[name]
		}
	default:
		tests["RefusesImages"] = refusesImages
	}
	if c.Images && c.Saves {
		maps.Copy(tests, savedImages)
	}
	if c.Networked {
		maps.Copy(tests, networked)
	}
	if c.Networked && c.Saves {
		tests["NetworkOfTheRestored"] = networkOfTheRestored
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := c.Dir(t)
			test(t, &suite{Config: c, dir: dir, driver: c.New(t, dir)})
		})
	}
}

var always = map[string]func(*testing.T, *suite){
	"CreateThenDial":         createThenDial,
	"WrongToken":             wrongToken,
	"CreateIsAllOrNothing":   createIsAllOrNothing,
	"ManyAtOnce":             manyAtOnce,
	"Recover":                recovers,
	"RecoverAfterEnd":        recoverAfterEnd,
	"SweepKeepsClaimed":      sweepKeepsClaimed,
	"DestroyIsIdempotent":    destroyIsIdempotent,
	"DestroyEndsWhatRuns":    destroyEndsWhatRuns,
	"EndIsReported":          endIsReported,
	"UsageIsSane":            usageIsSane,
	"Freezes":                freezes,
	"Connects":               connects,
	"TwoDialsTwoConnections": twoDials,
	"ManyDialsAtOnce":        manyDials,
}

type suite struct {
	Config
	dir    string
	driver driver.Driver
}

// Limits are the limits of an instance in the suite.
var Limits = hutch.Limits{CPU: 1, Memory: 128, Disk: 32, PIDs: 64, Processes: 10}

const token = "a token that the test knows"

// spec returns the spec of an instance in the suite.
func (c Config) spec(id string) driver.Spec {
	return driver.Spec{
		ID: id, Root: c.Root, Limits: Limits,
		Boot: wire.Boot{Token: token, Home: c.Root.Account().Home, Dir: c.Root.Workdir(), Hostname: id, Env: c.Root.Env, MaxLive: Limits.Processes},
	}
}

// instance is a live instance with its agent.
type instance struct {
	driver.Instance
	agent *wire.Client
}

func (s *suite) create(t *testing.T, id string) *instance {
	t.Helper()
	inst, err := s.driver.Create(t.Context(), s.spec(id))
	if err != nil {
		t.Fatalf("create %s: %s", id, explain(err))
	}
	return own(t, inst)
}

// own makes the test destroy the instance at its end.
func own(t *testing.T, inst driver.Instance) *instance {
	p := &instance{inst, wire.NewClient(inst.Dial, token)}
	t.Cleanup(func() {
		p.agent.Close()
		if err := inst.Destroy(context.Background()); err != nil {
			t.Errorf("destroy: %s", explain(err))
		}
	})
	return p
}

func explain(err error) string {
	if e, ok := errors.AsType[*hutch.Error](err); ok && e.Cause != nil {
		return fmt.Sprintf("%v (%v)", err, e.Cause)
	}
	return err.Error()
}

// run runs a bash command and returns its output, stderr after stdout.
func (p *instance) run(t *testing.T, command string) (string, wire.Exit) {
	t.Helper()
	var stdout, stderr strings.Builder
	exit, err := p.agent.Run(t.Context(), wire.Start{ID: hutch.NewID("x"), Command: command, TimeoutMS: 60_000}, nil, func(o hutch.Output) error {
		if o.Stream == hutch.Stdout {
			stdout.Write(o.Data)
		} else {
			stderr.Write(o.Data)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("run %q: %s", command, explain(err))
	}
	return stdout.String() + stderr.String(), exit
}

// want runs a command and compares its output, without the last newline.
func (p *instance) want(t *testing.T, command, output string) {
	t.Helper()
	if got, exit := p.run(t, command); strings.TrimSuffix(got, "\n") != output || exit.Code != 0 {
		t.Errorf("%q gave %q and exit code %d, not %q", command, got, exit.Code, output)
	}
}

func createThenDial(t *testing.T, s *suite) {
	p := s.create(t, "one")
	p.want(t, "echo out; echo err >&2", "out\nerr")
	if _, exit := p.run(t, "exit 7"); exit.Code != 7 {
		t.Errorf("exit code %d, not 7", exit.Code)
	}
	first, second := p.Handle(), p.Handle()
	if !bytes.Equal(first, second) || len(first) > 4096 {
		t.Errorf("handles %s and %s", first, second)
	}
}

func wrongToken(t *testing.T, s *suite) {
	p := s.create(t, "guarded")
	forger := wire.NewClient(p.Dial, "a guess")
	defer forger.Close()
	if _, err := forger.Ping(t.Context()); err == nil {
		t.Error("a wrong token was let in")
	}
	p.want(t, "echo still here", "still here")
}

func createIsAllOrNothing(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if inst, err := s.driver.Create(ctx, s.spec("never")); err == nil {
		inst.Destroy(context.Background())
		t.Fatal("created although no caller waited")
	}
	s.create(t, "never") // no part of the first attempt is left
	n, err := s.driver.Sweep(t.Context(), func(id string) bool { return id == "never" })
	if n != 0 || err != nil {
		t.Errorf("%d leftovers, error %v", n, err)
	}
}

func manyAtOnce(t *testing.T, s *suite) {
	const n = 8
	instances := make([]driver.Instance, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { instances[i], errs[i] = s.driver.Create(t.Context(), s.spec(fmt.Sprintf("many-%d", i))) })
	}
	wg.Wait()
	for i := range n {
		if errs[i] != nil {
			t.Errorf("create: %s", explain(errs[i]))
			continue
		}
		own(t, instances[i]).want(t, fmt.Sprint("echo ", i), fmt.Sprint(i))
	}
}

func recovers(t *testing.T, s *suite) {
	p := s.create(t, "survivor")
	started, err := p.agent.Start(t.Context(), wire.Start{ID: "bg", Command: "echo before; sleep 300"})
	if err != nil {
		t.Fatal(explain(err))
	}
	p.agent.Close()

	next := s.New(t, s.dir)
	inst, err := next.Recover(t.Context(), "survivor", p.Handle())
	if err != nil {
		t.Fatalf("recover: %s", explain(err))
	}
	r := own(t, inst)
	if n, err := next.Sweep(t.Context(), func(id string) bool { return id == "survivor" }); n != 0 || err != nil {
		t.Errorf("sweep removed %d, error %v", n, err)
	}
	ps, err := r.agent.List(t.Context())
	if err != nil || len(ps) != 1 || ps[0].PID != started.PID || !ps[0].Status.Live() {
		t.Fatalf("processes after recovery: %+v, %v", ps, err)
	}
	r.want(t, "echo again", "again")
	if err := inst.Destroy(t.Context()); err != nil {
		t.Fatal(explain(err))
	}
	gone(t, p.Instance)
}

func recoverAfterEnd(t *testing.T, s *suite) {
	p := s.create(t, "dead")
	if err := p.Destroy(t.Context()); err != nil {
		t.Fatal(explain(err))
	}
	if _, err := s.New(t, s.dir).Recover(t.Context(), "dead", p.Handle()); !errors.Is(err, hutch.NotFound) {
		t.Errorf("recover of a dead instance: %v", err)
	}
	s.create(t, "dead").want(t, "echo reborn", "reborn")
}

func sweepKeepsClaimed(t *testing.T, s *suite) {
	kept, lost := s.create(t, "kept"), s.create(t, "lost")
	next := s.New(t, s.dir)
	n, err := next.Sweep(t.Context(), func(id string) bool { return id == "kept" })
	if n != 1 || err != nil {
		t.Fatalf("sweep removed %d, error %v", n, err)
	}
	gone(t, lost.Instance)
	kept.want(t, "echo kept", "kept")
	if n, err := next.Sweep(t.Context(), func(id string) bool { return id == "kept" }); n != 0 || err != nil {
		t.Errorf("the second sweep removed %d, error %v", n, err)
	}
}

// gone waits until an instance is dead.
func gone(t *testing.T, inst driver.Instance) {
	t.Helper()
	select {
	case <-inst.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the instance does not count as dead")
	}
	if conn, err := inst.Dial(t.Context()); err == nil {
		defer conn.Close()
		if _, err := wire.NewClient(func(context.Context) (net.Conn, error) { return conn, nil }, token).Ping(t.Context()); err == nil {
			t.Error("the agent of a dead instance answers")
		}
	}
}

func destroyIsIdempotent(t *testing.T, s *suite) {
	p := s.create(t, "twice")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := p.Destroy(context.Background()); err != nil {
				t.Errorf("destroy: %s", explain(err))
			}
		})
	}
	wg.Wait()
	gone(t, p.Instance)
}

func destroyEndsWhatRuns(t *testing.T, s *suite) {
	p := s.create(t, "busy")
	if _, err := p.agent.Start(t.Context(), wire.Start{ID: "stubborn", Command: "trap '' TERM HUP INT; setsid bash -c 'while :; do :; done' & while :; do sleep 1; done"}); err != nil {
		t.Fatal(explain(err))
	}
	broken := make(chan error, 1)
	started := make(chan struct{}, 1)
	go func() {
		_, err := p.agent.Run(t.Context(), wire.Start{ID: "fg", Command: "echo up; sleep 300"}, nil, func(hutch.Output) error {
			started <- struct{}{}
			return nil
		})
		broken <- err
	}()
	<-started
	if err := p.Destroy(t.Context()); err != nil {
		t.Fatal(explain(err))
	}
	if err := <-broken; !errors.Is(err, hutch.Unavailable) {
		t.Errorf("the command under way got %v", err)
	}
	gone(t, p.Instance)
}

func endIsReported(t *testing.T, s *suite) {
	p := s.create(t, "killed")
	s.Kill(t, s.driver, "killed")
	gone(t, p.Instance)
	if err := p.Destroy(t.Context()); err != nil {
		t.Errorf("destroy of a dead instance: %s", explain(err))
	}
}

func usageIsSane(t *testing.T, s *suite) {
	p := s.create(t, "measured")
	p.run(t, "i=0; while ((i < 100000)); do ((i++)); done")
	u, err := p.Usage(t.Context())
	if err != nil {
		t.Fatal(explain(err))
	}
	if u.CPUSeconds < 0 || u.Memory < 0 || u.Memory > 512<<20 || u.PIDs < 0 || u.OOMKills != 0 {
		t.Errorf("%+v", u)
	}
	if s.Isolated && (u.CPUSeconds == 0 || u.Memory == 0) {
		t.Errorf("nothing was used: %+v", u)
	}
}

func twoDials(t *testing.T, s *suite) {
	p := s.create(t, "two")
	first, err := p.Dial(t.Context())
	if err != nil {
		t.Fatal(explain(err))
	}
	defer first.Close() // this connection never sends a hello, and must not block other clients
	p.want(t, "echo through the second", "through the second")
}

func manyDials(t *testing.T, s *suite) {
	p := s.create(t, "busy")
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			agent := wire.NewClient(p.Dial, token)
			defer agent.Close()
			if _, err := agent.Ping(t.Context()); err != nil {
				t.Error(explain(err))
			}
		})
	}
	wg.Wait()
}
