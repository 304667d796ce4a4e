package build

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
)

// A Dockerfile is a program that its writer chose, and the frontend that reads it is made for the machine of that writer: it
// cannot be stopped, and nothing bounds its memory. So it runs in a process of its own: this program once more, under a
// name by which it knows what it is to do, with a limit of memory and of time. It can open no file and no connection: of
// the URLs of a Dockerfile the frontend asks some servers itself, from the server's own network. It asks for the images that a Dockerfile
// begins with, and at the end it tells the graph. What [measure] counts is known there before it happens, so that most
// errors say what is too large; the limits hold for what is not counted.
const (
	frontendName   = "hutch-read-dockerfile"
	frontendMemory = 1 << 30         // bytes beyond what it begins with
	frontendTime   = 60              // seconds of a processor
	frontendWait   = 3 * time.Minute // until it says the next thing
)

func init() {
	if filepath.Base(os.Args[0]) == frontendName {
		os.Exit(frontend(os.Stdin, os.Stdout))
	}
}

// question is what the frontend gets first.
type question struct {
	Text         []byte
	Args, Labels map[string]string
	Target       string
}

// news is what the frontend says: one of these.
type news struct {
	Image   string // wanted; the answer is a base
	Warning string
	Graph   *definition // the last
	Failure *failure    // likewise
}

// base is an image that a Dockerfile begins with.
type base struct {
	Digest string
	Config []byte
}

// definition is a graph as the frontend gives it: the operations in order, what is known of each by its digest, and the
// configuration of the image.
type definition struct {
	Operations [][]byte
	About      map[string]about
	Config     []byte
}

type about struct {
	Name  string
	Again bool
}

// failure is an error for the caller.
type failure struct {
	Kind    hutch.Kind
	Message string
	Data    map[string]any
}

// parse makes the graph of a Dockerfile.
func parse(ctx context.Context, text []byte, req hutch.BuildRequest, resolve baseResolver, warn func(string)) (*graph, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args, cmd.Env, cmd.Dir = []string{frontendName}, []string{}, "/"
	in, err := cmd.StdinPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start the frontend of builds: %w", err)
	}
	defer func() { cancel(); cmd.Wait() }()
	d, err := converse(ctx, func() { cmd.Process.Kill() }, in, out, question{text, req.Args, req.Labels, req.Target}, resolve, warn)
	if err != nil {
		return nil, err
	}
	return newGraph(d)
}

// converse asks the frontend, and answers what it asks. It ends one that says nothing for long.
func converse(ctx context.Context, end func(), in io.Writer, out io.Reader, q question, resolve baseResolver, warn func(string)) (definition, error) {
	to, from := gob.NewEncoder(in), gob.NewDecoder(out)
	err := to.Encode(q)
	for err == nil {
		var n news
		late := time.AfterFunc(frontendWait, end)
		err = from.Decode(&n)
		if inTime := late.Stop(); err != nil || !inTime {
			break
		}
		switch {
		case n.Graph != nil:
			return *n.Graph, nil
		case n.Failure != nil:
			return definition{}, &hutch.Error{Kind: n.Failure.Kind, Message: n.Failure.Message, Data: n.Failure.Data}
		case n.Warning != "":
			warn(n.Warning)
		default:
			digest, config, missing := resolve(ctx, n.Image)
			if missing != nil {
				return definition{}, missing
			}
			err = to.Encode(base{digest, config})
		}
	}
	if ctx.Err() != nil {
		return definition{}, context.Cause(ctx)
	}
	return definition{}, hutch.Errorf(hutch.Exhausted, "the Dockerfile takes more memory or time to read than a build can have: make it smaller").With("limit", "dockerfile").Because(err)
}

// frontend is the process that reads a Dockerfile.
func frontend(in io.Reader, out io.Writer) int {
	if err := confine(); err != nil {
		return 1
	}
	from := gob.NewDecoder(in)
	var q question
	if from.Decode(&q) != nil {
		return 1
	}
	tell := teller{to: gob.NewEncoder(out)}
	ask := func(_ context.Context, ref string) (string, []byte, error) {
		var b base
		if tell.say(news{Image: ref}) != 0 || from.Decode(&b) != nil {
			os.Exit(1) // nobody waits for the graph
		}
		return b.Digest, b.Config, nil
	}
	d, err := convert(context.Background(), q, ask, func(text string) { tell.say(news{Warning: text}) })
	if err != nil {
		e := hutch.AsError(err)
		return tell.say(news{Failure: &failure{e.Kind, e.Message, e.Data}})
	}
	return tell.say(news{Graph: &d})
}

// teller says one thing at a time.
type teller struct {
	mu sync.Mutex
	to *gob.Encoder
}

func (t *teller) say(n news) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.to.Encode(n) != nil {
		return 1
	}
	return 0
}

var errNoNetwork = errors.New("the frontend has no network")

// confine bounds this process. It is the first to go when the machine has no memory left. What is open stays open, and
// nothing more can be.
func confine() error {
	debug.SetMaxStack(frontendMemory / 4)
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errNoNetwork }}
	var pages uint64
	text, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(text), &pages)
	}
	memory := pages*uint64(os.Getpagesize()) + frontendMemory
	return errors.Join(err,
		os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
		unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{}),
		unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{}),
		unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: frontendTime, Max: frontendTime}),
		unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: memory, Max: memory}))
}
