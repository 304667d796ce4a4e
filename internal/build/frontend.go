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

// A Dockerfile is a program from an untrusted author, and the frontend that reads it was made for the author's own
// machine: it cannot be stopped, and nothing limits its memory. So it runs in a separate process: this program, started
// under a special name, with limits on memory and time. It can open no file and no connection, because the frontend
// itself would fetch some URLs of a Dockerfile from the server's network. It asks for the base images of a Dockerfile,
// and at the end it sends the graph. The estimate of [measure] is checked there first, so that most errors say what is
// too large; the limits cover everything else.
const (
	frontendName   = "hutch-read-dockerfile"
	frontendMemory = 1 << 30         // bytes beyond its memory at the start
	frontendTime   = 60              // seconds of a processor
	frontendWait   = 3 * time.Minute // longest time until the next message
)

func init() {
	if filepath.Base(os.Args[0]) == frontendName {
		os.Exit(frontend(os.Stdin, os.Stdout))
	}
}

// question is the first message to the frontend.
type question struct {
	Text         []byte
	Args, Labels map[string]string
	Target       string
}

// news is a message of the frontend. One field is set.
type news struct {
	Image   string // image that the frontend needs; the answer is a base
	Warning string
	Graph   *definition // the last message
	Failure *failure    // also the last message
}

// base is an image that a Dockerfile begins with.
type base struct {
	Digest string
	Config []byte
}

// definition is a graph as the frontend returns it: the operations in order, the metadata of each by its digest, and
// the configuration of the image.
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

// converse runs the frontend, and answers its requests. It ends a frontend that sends nothing for too long.
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

// frontend runs in the process that reads a Dockerfile, and returns its exit code.
func frontend(in io.Reader, out io.Writer) int {
	if err := confine(); err != nil {
		return 1
	}
	from := gob.NewDecoder(in)
	var q question
	if from.Decode(&q) != nil {
		return 1
	}
	tell := messageSender{to: gob.NewEncoder(out)}
	ask := func(_ context.Context, ref string) (string, []byte, error) {
		var b base
		if tell.send(news{Image: ref}) != 0 || from.Decode(&b) != nil {
			os.Exit(1) // no process waits for the graph
		}
		return b.Digest, b.Config, nil
	}
	d, err := convert(context.Background(), q, ask, func(text string) { tell.send(news{Warning: text}) })
	if err != nil {
		e := hutch.AsError(err)
		return tell.send(news{Failure: &failure{e.Kind, e.Message, e.Data}})
	}
	return tell.send(news{Graph: &d})
}

// messageSender sends one message at a time.
type messageSender struct {
	mu sync.Mutex
	to *gob.Encoder
}

func (t *messageSender) send(n news) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.to.Encode(n) != nil {
		return 1
	}
	return 0
}

var errNoNetwork = errors.New("the frontend has no network")

// confine limits this process. It is the first to be killed when the machine has no memory left. Open files stay open,
// and no more can be opened.
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
