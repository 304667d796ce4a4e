package kubernetes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hutch"
	"hutch/internal/ctxlock"
	"hutch/internal/delay"
	"hutch/internal/driver"
	"hutch/internal/driver/kubernetes/inside"
)

var _ driver.Archiver = (*instance)(nil)

// record is the data needed to find an instance again.
type record struct {
	Pod     string    `json:"pod"`
	UID     types.UID `json:"uid"`
	Network bool      `json:"network,omitempty"` // the instance has a network device
	Memory  int64     `json:"memory,omitempty"`  // the memory limit, in bytes
}

// instance is an instance.
type instance struct {
	driver     *Driver
	id         string
	record     record
	done       chan struct{} // closed by keep
	destroying ctxlock.Lock  // held by the caller that destroys
	gone       bool          // the instance was destroyed

	mu      sync.Mutex
	session *yamux.Session // nil while the stream with the pod is broken
	changed chan struct{}  // closed when the session changes
}

func (d *Driver) newInstance(id string, r record) *instance {
	return &instance{driver: d, id: id, record: r, done: make(chan struct{}), destroying: ctxlock.New(), changed: make(chan struct{})}
}

// ID implements driver.Instance.
func (i *instance) ID() string { return i.id }

// Handle returns the record.
func (i *instance) Handle() driver.Handle {
	b, _ := json.Marshal(i.record) // text can always be encoded
	return b
}

// Done implements driver.Instance.
func (i *instance) Done() <-chan struct{} { return i.done }

// connect opens the stream with the pod.
func (i *instance) connect(ctx context.Context) error {
	session, err := i.driver.relay(ctx, i.record.Pod)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.session = session
	close(i.changed)
	i.changed = make(chan struct{})
	return nil
}

// now returns the session with the pod. Without a session, it returns a channel that is closed when a session exists.
func (i *instance) now() (*yamux.Session, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.session != nil && i.session.IsClosed() {
		i.session = nil
	}
	return i.session, i.changed
}

// reconnectTime bounds one attempt to open the stream with the pod again.
const reconnectTime = 30 * time.Second

// keep opens the stream with the pod again whenever it breaks, until the pod has ended.
func (i *instance) keep() {
	defer close(i.done)
	for {
		session, _ := i.now()
		if session != nil {
			<-session.CloseChan()
		}
		for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
			if i.ended() {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), reconnectTime)
			err := i.connect(ctx)
			cancel()
			if err == nil {
				break
			}
			time.Sleep(wait)
		}
	}
}

// ended reports whether the pod has certainly ended.
func (i *instance) ended() bool {
	ctx, cancel := context.WithTimeout(context.Background(), reconnectTime)
	defer cancel()
	pod, err := i.driver.get(ctx, i.record.Pod)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return pod.UID != i.record.UID || dead(pod)
}

// open opens a stream for a purpose of package inside.
func (i *instance) open(ctx context.Context, purpose byte) (net.Conn, error) {
	for {
		session, changed := i.now()
		if session == nil {
			select {
			case <-changed:
			case <-i.done:
				return nil, errors.New("the pod has ended")
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			continue
		}
		stream, err := session.OpenStream()
		if err != nil {
			if session.IsClosed() {
				continue
			}
			return nil, err
		}
		if _, err := stream.Write([]byte{purpose}); err != nil {
			stream.Close()
			if session.IsClosed() {
				continue
			}
			return nil, err
		}
		return stream, nil
	}
}

// keepOpen opens a stream for a purpose and calls use with it, and repeats that when use returns, until ctx is done or
// the pod has ended.
func (i *instance) keepOpen(ctx context.Context, purpose byte, use func(net.Conn)) {
	for {
		if stream, err := i.open(ctx, purpose); err == nil {
			stop := context.AfterFunc(ctx, func() { stream.Close() })
			use(stream)
			stop()
			stream.Close()
		}
		select {
		case <-i.done:
			return
		default:
		}
		if delay.Wait(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

// Dial implements driver.Instance.
func (i *instance) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := i.open(ctx, inside.ToAgent)
	if err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the sandbox %q cannot be reached: look at its status, or destroy it and make a new one", i.id).Because(err)
	}
	return conn, nil
}

// mostReply bounds an answer of a pod, in bytes.
const mostReply = 64 << 10

// Usage implements driver.Instance.
func (i *instance) Usage(ctx context.Context) (driver.Usage, error) {
	conn, err := i.open(ctx, inside.ToUsage)
	if err != nil {
		return driver.Usage{}, fmt.Errorf("read the use of sandbox %s: %w", i.id, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var u inside.Usage
	if err := json.NewDecoder(io.LimitReader(conn, mostReply)).Decode(&u); err != nil {
		return driver.Usage{}, fmt.Errorf("read the use of sandbox %s: %w", i.id, err)
	}
	return driver.Usage{CPUSeconds: u.CPUSeconds, Memory: u.Memory, MemoryPeak: u.MemoryPeak, PIDs: u.PIDs, Disk: u.Disk, OOMKills: u.OOMKills}, nil
}

// Archive implements driver.Archiver.
func (i *instance) Archive(ctx context.Context, w io.Writer) error {
	conn, err := i.open(ctx, inside.ToFiles)
	if err != nil {
		return fmt.Errorf("archive the files of sandbox %s: %w", i.id, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var reply inside.Reply
	r := bufio.NewReader(conn)
	if err := inside.Unchunk(w, r); err != nil {
		return fmt.Errorf("archive the files of sandbox %s: %w", i.id, err)
	}
	if err := json.NewDecoder(io.LimitReader(r, mostReply)).Decode(&reply); err != nil {
		return fmt.Errorf("archive the files of sandbox %s: %w", i.id, err)
	}
	if reply.Error != "" {
		return fmt.Errorf("archive the files of sandbox %s: %.300q", i.id, reply.Error)
	}
	return nil
}

// Destroy implements driver.Instance.
func (i *instance) Destroy(ctx context.Context) error {
	if err := i.destroying.Take(ctx); err != nil {
		return i.destroyError(err)
	}
	defer i.destroying.Put()
	if i.gone {
		return nil
	}
	if err := i.driver.remove(ctx, i.record.Pod, i.record.UID); err != nil {
		return i.destroyError(err)
	}
	i.gone = true
	if session, _ := i.now(); session != nil {
		session.Close()
	}
	return nil
}

func (i *instance) destroyError(err error) error {
	return hutch.Errorf(hutch.Unavailable, "the sandbox %q is not all gone yet: destroy it again", i.id).Because(err)
}

// remove deletes a pod and waits until its machine has ended it. Without a uid, it deletes any pod with that name.
func (d *Driver) remove(ctx context.Context, name string, uid types.UID) error {
	grace := int64(1)
	options := &meta.DeleteOptions{GracePeriodSeconds: &grace}
	if uid != "" {
		options.Preconditions = &meta.Preconditions{UID: &uid}
	}
	err := d.api.Delete().Namespace(d.template.Namespace).Resource("pods").Name(name).Body(options).Do(ctx).Error()
	if apierrors.IsNotFound(err) || uid != "" && apierrors.IsConflict(err) { // another pod has the name by now
		return nil
	} else if err != nil {
		return fmt.Errorf("delete a pod: %w", err)
	}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		pod, err := d.get(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && uid != "" && pod.UID != uid:
			return nil
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("wait for the end of a pod: %w", err)
		}
		if delay.Wait(ctx, wait) != nil {
			return fmt.Errorf("wait for the end of a pod: %w", context.Cause(ctx))
		}
	}
}

// Recover implements driver.Driver.
func (d *Driver) Recover(ctx context.Context, id string, h driver.Handle) (driver.Instance, error) {
	if err := hutch.CheckID(id); err != nil {
		return nil, err
	}
	if _, err := d.client(); err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(h, &r); err != nil {
		return nil, fmt.Errorf("read the handle of sandbox %s: %w", id, err)
	}
	i := d.newInstance(id, r)
	pod, err := d.get(ctx, r.Pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("find the pod of sandbox %s: %w", id, err)
	}
	if err != nil || pod.UID != r.UID || dead(pod) {
		close(i.done)
		if err := i.Destroy(ctx); err != nil {
			return nil, err
		}
		return nil, hutch.Errorf(hutch.NotFound, "the sandbox %q no longer runs", id)
	}
	if err := i.connect(ctx); err != nil {
		return nil, fmt.Errorf("reach the pod of sandbox %s: %w", id, err)
	}
	go i.keep()
	return i, nil
}

// Sweep implements driver.Driver.
func (d *Driver) Sweep(ctx context.Context, keep func(id string) bool) (int, error) {
	if !d.used() {
		return 0, nil
	}
	api, err := d.client()
	if err != nil {
		return 0, err
	}
	server, err := d.id()
	if err != nil {
		return 0, err
	}
	selected := ours(server)
	var all core.PodList
	if err := api.Get().Namespace(d.template.Namespace).Resource("pods").VersionedParams(&selected, parameters).Do(ctx).Into(&all); err != nil {
		return 0, fmt.Errorf("list the pods of this server: %w", err)
	}
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		errs error
		n    int
	)
	turns := make(chan struct{}, sweepAtOnce)
	for _, pod := range all.Items {
		// Labels can be copied, but only the driver gives this name.
		id := pod.Labels[sandboxLabel]
		if pod.Name != podName(server, id) || keep(id) {
			continue
		}
		turns <- struct{}{}
		wg.Go(func() {
			err := d.remove(ctx, pod.Name, pod.UID)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = errors.Join(errs, fmt.Errorf("sweep sandbox %s: %w", id, err))
			} else {
				n++
			}
			<-turns
		})
	}
	wg.Wait()
	return n, errs
}

// sweepAtOnce is how many pods are removed in parallel, because each removal takes seconds.
const sweepAtOnce = 16
