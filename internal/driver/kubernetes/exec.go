package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/yamux"
	core "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	"hutch/internal/driver/kubernetes/inside"
)

// relay starts a relay in a pod, and returns a multiplexer whose streams lead to the pod's first process.
func (d *Driver) relay(ctx context.Context, pod string) (*yamux.Session, error) {
	request := d.api.Post().Namespace(d.template.Namespace).Resource("pods").Name(pod).SubResource("exec").VersionedParams(&core.PodExecOptions{
		Container: containerName, Command: []string{inside.Folder + "/agent", inside.RelayCommand}, Stdin: true, Stdout: true,
	}, parameters)
	executor, err := remotecommand.NewWebSocketExecutor(d.config, "GET", request.URL().String())
	if err != nil {
		return nil, err
	}
	long, cancel := context.WithCancel(context.Background())
	ours, theirs := newPipes(cancel)
	go func() {
		err := executor.StreamWithContext(long, remotecommand.StreamOptions{Stdin: theirs.in, Stdout: theirs.out})
		if err == nil {
			err = io.EOF
		}
		ours.fail(fmt.Errorf("the stream with the pod ended: %w", err))
	}()
	session, err := yamux.Client(ours, inside.Multiplexing())
	if err != nil {
		ours.Close()
		return nil, err
	}
	if err := ping(ctx, session); err != nil {
		session.Close()
		return nil, errors.Join(err, ours.why())
	}
	return session, nil
}

// ping waits until the other end answers.
func ping(ctx context.Context, session *yamux.Session) error {
	answered := make(chan error, 1)
	go func() {
		_, err := session.Ping()
		answered <- err
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pipes joins standard input and output of a program in a pod into one connection.
type pipes struct {
	in     *io.PipeWriter
	out    *io.PipeReader
	cancel context.CancelFunc

	mu  sync.Mutex
	err error // the error that ended the program
}

// ends has the program's ends of the pipes.
type ends struct {
	in  *io.PipeReader
	out *io.PipeWriter
}

func newPipes(cancel context.CancelFunc) (*pipes, ends) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	return &pipes{in: inW, out: outR, cancel: cancel}, ends{inR, outW}
}

func (p *pipes) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p *pipes) Write(b []byte) (int, error) { return p.in.Write(b) }

// Close ends the program.
func (p *pipes) Close() error {
	p.fail(io.ErrClosedPipe)
	p.cancel()
	return nil
}

func (p *pipes) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
	p.in.Close() // the program sees the end of its input, not an error
	p.out.CloseWithError(err)
}

func (p *pipes) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
