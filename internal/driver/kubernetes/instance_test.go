package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"hutch/internal/driver/kubernetes/inside"
)

// failing is a connection that breaks at its nth write; 0 means never.
type failing struct {
	net.Conn
	n, writes int64
}

func (f *failing) Write(b []byte) (int, error) {
	if n := atomic.AddInt64(&f.writes, 1); f.n > 0 && n >= f.n {
		f.Conn.Close()
		return 0, errors.New("the connection is broken")
	}
	return f.Conn.Write(b)
}

// join gives i a session with a pod that accepts streams, over a connection that breaks at its nth write.
func join(t *testing.T, i *instance, n int64) {
	t.Helper()
	here, there := net.Pipe()
	pod, err := yamux.Server(there, nil)
	if err != nil {
		t.Fatal(err)
	}
	session, err := yamux.Client(&failing{Conn: here, n: n}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close(); pod.Close() })
	go func() {
		for {
			if _, err := pod.Accept(); err != nil {
				return
			}
		}
	}()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.session = session
	close(i.changed)
	i.changed = make(chan struct{})
}

// A stream is opened again after the connection broke, even if it broke while the stream was being opened.
func TestKeepOpen(t *testing.T) {
	for _, n := range []int64{1, 2, 3} {
		t.Run(fmt.Sprintf("breaks at write %d", n), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			i := (&Driver{}).newInstance("sb", record{})
			join(t, i, n)
			first, _ := i.now()
			used, returned := make(chan struct{}, 100), make(chan struct{})
			go func() {
				defer close(returned)
				i.keepOpen(ctx, inside.ToMemory, func(net.Conn) { used <- struct{}{} })
			}()
			select {
			case <-first.CloseChan():
			case <-ctx.Done():
				t.Fatal("the first connection never broke")
			}
			time.Sleep(10 * time.Millisecond) // the attempt on the first connection must fail before the second exists
			join(t, i, 0)
			for range 3 {
				select {
				case <-used:
				case <-returned:
					t.Fatal("it gave up")
				case <-ctx.Done():
					t.Fatal("no stream was opened over the second connection")
				}
			}
			close(i.done)
			select {
			case <-returned:
			case <-time.After(10 * time.Second):
				t.Error("it does not end with the pod")
			}
		})
	}
}
