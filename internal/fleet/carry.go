package fleet

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/ctxlock"
	"hutch/internal/delay"
	"hutch/internal/objects"
	"hutch/internal/travel"
	"hutch/internal/verb"
)

// Travel has the options for moving sleeping sandboxes between nodes through a bucket. All fields except Checkpoints
// are required.
type Travel struct {
	Bucket objects.Store // bucket that all nodes share
	Key    []byte        // key of the images, the same on all nodes
	Engine Sleepers
	// Checkpoints is how often checkpoints of awake sandboxes are written to the bucket; 0 is never.
	Checkpoints time.Duration
}

// Sleepers moves the sandboxes of a node to and from a bucket. The methods are documented in package engine.
type Sleepers interface {
	Machine(ctx context.Context) travel.Machine
	HasBuild(runtime, build string) bool
	SendBuild(runtime, build string, w io.Writer) error
	ReceiveBuild(runtime, build string, r io.Reader) error
	Hibernate(ctx context.Context, id string, req hutch.HibernateRequest) (hutch.Sandbox, error)
	Asleep(ctx context.Context, owner, id string, do func(ctx context.Context, img travel.Image, send func(io.Writer) error) error) error
	Depart(ctx context.Context, owner, id string, leave func(context.Context) error) error
	Evict(ctx context.Context, owner, id string) error
	Retire(ctx context.Context, owner, id string) (hutch.Destruction, error)
	Checkpoint(ctx context.Context, owner, id string, before travel.Activity, do func(ctx context.Context, img travel.Image, send func(io.Writer) error) error) (travel.Activity, error)
	Resume(ctx context.Context, id string) (hutch.Sandbox, error)
	PortsInStore(ctx context.Context, owner, id string) ([]hutch.Port, error)
	Snapshotters
	Arrive(ctx context.Context, a travel.Arrival, read func(of string, to func(io.Reader) error) error, commit func(context.Context) error) error
	Arrivals() ([]travel.Arrival, error)
	CameAwake() []travel.Arrival
	Settle(ctx context.Context, a travel.Arrival, commit func(context.Context) error) error
}

const (
	// carriers is how many images a node reads or writes at once in the background.
	carriers = 4
	// carryTime bounds one transfer.
	carryTime = 30 * time.Minute
	// retryKeep is the pause before a sandbox is sent or fetched again after an error of the bucket.
	retryKeep = 30 * time.Second
	// deadFor is how long a node is dead before others fetch its sandboxes from the bucket. A sandbox is fetched at
	// once when it is used.
	deadFor = 5 * time.Minute
	// arriveTries is how often a node tries to record a sandbox that it has fetched, with a second between tries.
	arriveTries = 30
	// resumeTries is how often a node tries to wake a sandbox that was awake on its earlier node, with a second between
	// tries.
	resumeTries = 30
	// lostAfter is the age at which an image that belongs to no sandbox is removed.
	lostAfter = 24 * time.Hour
)

// carrier writes the sleeping sandboxes of a node to the bucket, and fetches others from it.
type carrier struct {
	Travel
	r          *resident
	folder     string // folder of this fleet in the bucket: several fleets can share one
	machine    travel.Machine
	slots      chan struct{}
	settleTime time.Duration // limit of one try to record or settle an arrival, because callers wait for it

	mu      sync.Mutex
	kept    map[Name]string        // keys in the bucket of this node's sandboxes
	points  map[Name]point         // checkpoints of the sandboxes of this node
	busy    map[Name]chan struct{} // open transfers; closed at their ends
	failed  map[Name]time.Time     // when a sandbox last could not be sent or fetched
	counted map[Transfer]Outcomes
	rounds  sync.Mutex // held while a background round runs
	cleaned time.Time
	saving  sync.Mutex      // held while a checkpoint is made: one at a time
	keeping ctxlock.Lock    // held while the programs of a build are written to the bucket; guards builds
	builds  map[string]bool // builds that the bucket has

	snapshots     keptSnapshots
	snapshotLocks ctxlock.Locks // by id: held while a snapshot is written to the bucket or fetched
}

// folderOf returns the folder of the fleet whose images are encrypted with key.
func folderOf(key []byte) string {
	sum := sha256.Sum256(append([]byte("hutch fleet folder\x00"), key...))
	return hex.EncodeToString(sum[:8]) + "/"
}

func newCarrier(t Travel, r *resident) *carrier {
	return &carrier{
		Travel: t, r: r, folder: folderOf(t.Key), slots: make(chan struct{}, carriers), settleTime: 10 * time.Second,
		kept: map[Name]string{}, points: map[Name]point{}, busy: map[Name]chan struct{}{}, failed: map[Name]time.Time{}, counted: map[Transfer]Outcomes{}, keeping: ctxlock.New(), builds: map[string]bool{}, cleaned: time.Now(),
		snapshots: keptSnapshots{all: map[string]keptSnapshot{}, old: map[string]bool{}, failed: map[string]failure{}},
	}
}

func (c *carrier) me() string      { return c.r.f.node.info.ID }
func (c *carrier) dir() *Directory { return c.r.f.dir }

// begin finds out which images can wake here, and learns which sandboxes of this node the bucket has.
func (c *carrier) begin(ctx context.Context) error {
	c.machine = c.Engine.Machine(ctx)
	if err := c.dir().setMachine(ctx, c.me(), c.machine); err != nil {
		return err
	}
	if c.Checkpoints == 0 {
		old, err := c.dir().dropCheckpoints(ctx, c.me())
		if err != nil {
			return err
		}
		for _, key := range old {
			c.drop(key)
		}
	}
	pending := c.settleAll(ctx) // before the claims of an earlier process are dropped, because arrivals need the claims
	if err := c.dir().dropClaims(ctx, c.me()); err != nil {
		return err
	}
	if err := c.dir().dropOwnClaims(ctx, c.me(), pending); err != nil { // claims of an earlier process of this node
		return err
	}
	list, err := c.dir().Held(ctx, c.me())
	for _, h := range list {
		if h.Image != nil && !c.isBad(h) {
			c.kept[h.Name] = h.Image.Key
		}
		if h.Checkpoint != nil {
			c.points[h.Name] = point{key: h.Checkpoint.Key, placed: h.Placed, at: h.Checkpoint.Checkpoint}
		}
	}
	if err != nil {
		return err
	}
	for _, a := range c.Engine.CameAwake() {
		c.r.f.background(func(ctx context.Context) { c.resume(ctx, holderOf(a)) })
	}
	return c.readSnapshots(ctx)
}

// isBad reports whether another node found the bucket's image of a sandbox of this node bad while this node was away.
// Then this node writes the image to the bucket again.
func (c *carrier) isBad(h Holder) bool {
	self, _ := c.r.f.node.find(c.me())
	return h.Stays != "" && self.State != hutch.NodeDraining // on a draining node, Stays is why the sandbox cannot leave
}

// sendAgain makes the next round write a sandbox to the bucket again, or make a new checkpoint of it.
func (c *carrier) sendAgain(name Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, name) // until then the directory has the old key, so the object stays
	if p, ok := c.points[name]; ok {
		p.at, p.did = time.Time{}, travel.Activity{}
		c.points[name] = p
	}
}

// sendBadAgain makes the next round write those sandboxes again whose images another node found bad. The other node may
// have recorded that after this node returned.
func (c *carrier) sendBadAgain(ctx context.Context) error {
	list, err := c.dir().staying(ctx, c.me())
	for _, h := range list {
		if c.isBad(h) {
			c.sendAgain(h.Name)
		}
	}
	return err
}

// lockTransfer blocks other transfers of a sandbox until end is called.
func (c *carrier) lockTransfer(ctx context.Context, name Name) (end func(), err error) {
	for {
		c.mu.Lock()
		other := c.busy[name]
		if other == nil {
			mine := make(chan struct{})
			c.busy[name] = mine
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.busy, name)
				close(mine)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// keep writes a sleeping sandbox to the bucket, if the bucket does not have it.
func (c *carrier) keep(ctx context.Context, name Name) error {
	end, err := c.lockTransfer(ctx, name)
	if err != nil {
		return err
	}
	defer end()
	if c.keyOf(name) != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, carryTime)
	defer cancel()
	return c.Engine.Asleep(ctx, name.Owner, name.ID, func(ctx context.Context, of travel.Image, send func(io.Writer) error) error {
		img, err := c.write(ctx, name, of, send, func(img travel.Image) error { return c.dir().keep(ctx, c.me(), name, img) })
		if err != nil && ctx.Err() != nil { // the sandbox was used in between
			return err
		}
		if c.did(Saved, err); err != nil {
			return err
		}
		c.setKey(name, img.Key)
		c.setPoint(name, point{})
		return nil
	})
}

// write writes an image to the bucket, and then notes it in the directory.
func (c *carrier) write(ctx context.Context, name Name, of travel.Image, send func(io.Writer) error, note func(travel.Image) error) (travel.Image, error) {
	return c.writeAs(ctx, "", sealedAs(name, of.RecordKey), of, send, note)
}

// writeAs does the same as write, for an image that is bound to the text sealed (see sealedAs) and has a name in the
// bucket that begins with kind.
func (c *carrier) writeAs(ctx context.Context, kind, sealed string, of travel.Image, send func(io.Writer) error, note func(travel.Image) error) (travel.Image, error) {
	if err := c.keepBuild(ctx, of.Needs); err != nil {
		return travel.Image{}, fmt.Errorf("write the programs that it needs to the bucket: %w", err)
	}
	key := c.folder + kind + strconv.FormatInt(time.Now().Unix(), 10) + "-" + rand.Text()
	img, err := travel.Write(ctx, c.Bucket, c.Key, key, sealed, send)
	if err != nil {
		return img, fmt.Errorf("write it to the bucket: %w", err)
	}
	img.RecordKey, img.Needs, img.Checkpoint = of.RecordKey, of.Needs, of.Checkpoint
	if err = note(img); errors.Is(err, errMoved) { // after another error the directory may have the key
		c.drop(key)
	}
	if err == nil {
		err = c.keepOldBuild(ctx, of.Needs)
	}
	return img, err
}

// sealedAs binds an image to one sandbox: another sandbox with the same id, earlier or later, cannot open it.
func sealedAs(name Name, record string) string {
	return fmt.Sprintf("%d:%s%d:%s%s", len(name.Owner), name.Owner, len(name.ID), name.ID, record)
}

func (c *carrier) keyOf(name Name) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept[name]
}

// setKey notes the key of a sandbox's image in the bucket; "" for no image.
func (c *carrier) setKey(name Name, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.failed, name)
	if c.kept[name] = key; key == "" {
		delete(c.kept, name)
	}
}

// drop removes an image that is no longer needed. If that fails, clean removes it later.
func (c *carrier) drop(key string) {
	if key == "" {
		return
	}
	c.r.f.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := c.Bucket.Delete(ctx, key); err != nil {
			c.r.f.log.Info("an image stays in the bucket for now", "key", key, "err", err)
		}
	})
}

// forget drops the image of a sandbox that has left this node or is destroyed.
func (c *carrier) forget(name Name) {
	key := c.keyOf(name)
	c.setKey(name, "")
	c.setPoint(name, point{})
	c.drop(key)
}

// waking is called before a sandbox here wakes: from then on its image is out of date.
func (c *carrier) waking(ctx context.Context, name Name) error {
	if err := c.r.f.node.serving(); err != nil {
		return err
	}
	old, err := c.r.reserveWake(ctx, name, c.Checkpoints > 0)
	if errors.Is(err, errMoved) {
		c.r.f.background(func(ctx context.Context) { c.discard(ctx, name) }) // in the background, because the caller holds the sandbox's lock
	}
	if err != nil {
		return err
	}
	if c.Checkpoints == 0 {
		c.drop(old)
	} else if old != "" {
		c.setPoint(name, point{key: old, at: time.Now()})
	}
	return nil
}

// discard removes from this node a sandbox that moved to another one. If it is running here, it is ended, because the
// other node continues from its checkpoint.
func (c *carrier) discard(ctx context.Context, name Name) {
	c.mu.Lock()
	delete(c.kept, name) // not the objects in the bucket: they belong to the other node now
	delete(c.points, name)
	c.mu.Unlock()
	err := c.Engine.Evict(ctx, name.Owner, name.ID)
	if err != nil && hutch.KindOf(err) != hutch.NotFound {
		c.r.f.log.Error("a sandbox that another node has now could not be removed here", "sandbox", name.ID, "err", err)
		return
	}
	c.r.drop(name)
	c.r.f.log.Warn("another node took over a sandbox while this one was away: the copy here is removed", "sandbox", name.ID)
}

// returned is called when this node can serve again after its lease had ended, so that other nodes may have taken over
// its sandboxes.
func (c *carrier) returned(ctx context.Context) error {
	known := c.r.known() // read before the list: a known sandbox that the list lacks has moved away
	if err := c.dir().dropClaims(ctx, c.me()); err != nil {
		return err
	}
	list, err := c.dir().Held(ctx, c.me())
	if err != nil {
		return err
	}
	mine := map[Name]bool{}
	for _, h := range list {
		if mine[h.Name] = true; c.isBad(h) {
			c.sendAgain(h.Name)
		}
	}
	for name := range known {
		if !mine[name] {
			c.discard(ctx, name)
		}
	}
	return c.readSnapshots(ctx)
}

// fetch brings to this node a sandbox from the bucket that the directory has assigned to this node, or for which this
// node is the fetcher (see fetcherOf).
func (c *carrier) fetch(ctx context.Context, h Holder) error {
	h.Image = h.inBucket()
	end, err := c.lockTransfer(ctx, h.Name)
	if err != nil {
		return err
	}
	defer end()
	if err := c.settleLocked(ctx, h.Name); err != nil {
		return err
	}
	if c.r.has(h.Name) {
		return nil
	}
	ctx, cancel := c.transferContext(ctx)
	defer cancel()
	defer c.r.expect(h.Name)()
	began := time.Now()
	if err := c.receive(ctx, h); err != nil {
		return c.notFetched(ctx, h, err)
	}
	c.r.f.log.Info("fetched a sandbox from the bucket", "sandbox", h.ID, "bytes", h.Image.Size, "took", time.Since(began))
	c.cameHere(h)
	return nil
}

// transferContext returns the context of a transfer from the bucket. The transfer continues after its caller has left,
// because the next caller needs it too. It ends with this node.
func (c *carrier) transferContext(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), carryTime)
	stop := context.AfterFunc(c.r.f.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// receive reads a sandbox from the bucket, and then records that this node has it.
func (c *carrier) receive(ctx context.Context, h Holder) error {
	if err := c.machine.Lacks(h.Image.Needs); err != nil {
		return hutch.Errorf(hutch.Unavailable, "the sandbox %q cannot wake on the node %s: %v; it stays in the bucket", h.ID, c.me(), err)
	}
	if err := c.bringBuild(ctx, h.Image.Needs); err != nil {
		return hutch.Errorf(hutch.Unavailable, "the sandbox %q stays in the bucket: its programs could not be fetched to the node %s: %v", h.ID, c.me(), err).Because(err)
	}
	err := c.Engine.Arrive(ctx, arrivalOf(h), func(record string, to func(io.Reader) error) error {
		return travel.Read(ctx, c.Bucket, c.Key, *h.Image, sealedAs(h.Name, record), to)
	}, func(context.Context) error { return c.arrived(ctx, h) })
	if !errors.Is(err, errMoved) {
		c.did(Fetched, err)
	}
	return err
}

// notFetched gives up the claim to a sandbox that could not be fetched, and returns the error for callers. If the
// arrival is undecided, the claim stays.
func (c *carrier) notFetched(ctx context.Context, h Holder, err error) error {
	if errors.Is(err, errMoved) { // its earlier node is back, or the sandbox was destroyed
		return errMoved
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // a new context, because the transfer may have taken too long, or this node may be ending
	defer cancel()
	c.noteLost(ctx, h, err)
	if !errors.Is(err, travel.ErrUndecided) { // without the claim, settling the arrival would remove the files here
		if failed := c.dir().dropClaim(ctx, h.Name, c.me()); failed != nil {
			c.r.f.log.Warn("the fleet's directory was not told that a sandbox could not be fetched", "sandbox", h.ID, "err", failed)
		}
	}
	c.r.f.log.Warn("a sandbox could not be fetched from the bucket, and stays there", "sandbox", h.ID, "err", err, "cause", hutch.AsError(err).Cause)
	if _, ok := errors.AsType[*hutch.Error](err); ok {
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the sandbox %q could not be fetched from the fleet's bucket: try again in a moment; the log of the node %s has the cause", h.ID, c.me()).Because(err)
}

// fetchLater fetches a sandbox in the background.
func (c *carrier) fetchLater(ctx context.Context, h Holder) {
	if c.hasFailed(h.Name) {
		return
	}
	if err := c.fetch(ctx, h); err != nil && !errors.Is(err, errMoved) && ctx.Err() == nil {
		c.noteFailed(h.Name)
	}
}

// noteLost notes the reason in the directory when the image of a sandbox is lost, or was changed.
func (c *carrier) noteLost(ctx context.Context, h Holder, err error) {
	if errors.Is(err, travel.ErrLost) || hutch.KindOf(err) == hutch.Denied {
		c.dir().recordLost(ctx, h, hutch.AsError(err).Message)
	}
}

// fetcherOf returns the live node that is to fetch a sandbox that is only in the bucket. If no node is chosen yet, or
// the chosen node for a dead node's sandbox is not ready any more, it chooses one, with a preference for the node named
// in first.
func (c *carrier) fetcherOf(ctx context.Context, h *Holder, first string) (node string, err error) {
	if node = h.Node; h.Here { // h.Here: the node with the sandbox is away
		node = h.Fetcher
	}
	if info, ok := c.r.f.node.find(node); ok && info.Alive && (!h.Here || info.State == hutch.NodeReady) {
		return node, nil
	}
	if node, err = c.dir().nodeFor(ctx, h.cargo(), first, ""); err != nil {
		return "", err
	}
	if h.Here {
		return node, c.dir().claim(ctx, *h, node)
	}
	err = c.dir().take(ctx, *h, node)
	h.Node = node
	return node, err
}

// Destroy implements hutch.Service. A sandbox that is on no node, and that cannot move to one, is destroyed in the
// bucket.
func (f *Fleet) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	receipt, err := f.Service.Destroy(ctx, id, force)
	if err == nil || f.carrier == nil || f.node.serving() != nil || hutch.CheckID(id) != nil {
		return receipt, err
	}
	h, ok, failed := f.dir.holder(ctx, nameIn(ctx, id))
	if failed != nil || !ok || !h.Away {
		return receipt, err
	}
	if failed := f.dir.abandon(ctx, h, f.node.info.ID); failed != nil {
		return receipt, err
	}
	if img := h.inBucket(); img != nil {
		f.carrier.drop(img.Key)
	}
	return f.carrier.Engine.Retire(ctx, h.Owner, h.ID)
}

// arrived records that this node has fetched a sandbox. It tries again when the database's answer is lost. If no try is
// answered, the arrival is undecided: the files here must stay, because the directory may have recorded the sandbox
// here.
func (c *carrier) arrived(ctx context.Context, h Holder) (err error) {
	for range arriveTries {
		if err = c.recordArrival(context.WithoutCancel(ctx), h); err == nil || errors.Is(err, errMoved) {
			return err
		}
		if delay.Wait(ctx, time.Second) != nil {
			break
		}
	}
	return undecided(err)
}

// recordArrival tries once to record an arrival. It fails if the database does not answer in time.
func (c *carrier) recordArrival(ctx context.Context, h Holder) error {
	ctx, cancel := context.WithTimeout(ctx, c.settleTime)
	defer cancel()
	return c.dir().arrived(ctx, h, c.me())
}

// fetchToNode makes a live node fetch a sandbox that only the bucket has, and returns that node.
func (f *Fleet) fetchToNode(ctx context.Context, h Holder) (node string, err error) {
	if f.carrier == nil {
		return "", hutch.Errorf(hutch.Unavailable, "the sandbox %q is in the fleet's bucket, which this node does not know: start it with --fleet-bucket", h.ID)
	}
	if node, err = f.carrier.fetcherOf(ctx, &h, f.node.info.ID); err != nil {
		return "", err
	}
	if node == f.node.info.ID {
		return node, f.carrier.fetch(ctx, h)
	}
	p, err := f.peer(node)
	if err != nil {
		return "", err
	}
	_, err = p.Sandbox(caller.WithOwner(ctx, caller.Owner{ID: h.Owner}), h.ID) // the other node fetches the sandbox when it is asked for it
	if err = plain(err); isMissing(err) {
		err = errMoved // it is on a node again, because that node has returned
	}
	return node, err
}

// around is a wrap.Hook. Before a call about a sandbox of this node that is only in the bucket, it fetches that
// sandbox. If there is no capacity here to wake a sandbox, the sandbox moves to another node.
func (r *resident) around(ctx context.Context, c verb.Call, _ any, run func(context.Context) error) error {
	f := r.f
	name := nameIn(ctx, c.Sandbox)
	if c.Sandbox == "" || hutch.CheckID(c.Sandbox) != nil {
		return run(ctx)
	}
	if f.carrier == nil || r.has(name) {
		return r.withRoom(ctx, c, name, run)
	}
	err := f.carrier.settle(ctx, name)
	if err != nil {
		return err
	}
	h, ok, err := f.dir.holder(ctx, name)
	if err == nil && ok && h.comesTo(f.node.info.ID) {
		err = f.carrier.fetch(ctx, h)
	}
	if err != nil {
		return err
	}
	return r.withRoom(ctx, c, name, run)
}

// round does the background work: it writes sleeping sandboxes to the bucket, fetches sandboxes that were handed over
// to this node, and empties a drained node.
func (c *carrier) round(ctx context.Context, list []hutch.Sandbox) {
	if !c.rounds.TryLock() {
		return
	}
	defer c.rounds.Unlock()
	c.settleAll(ctx)
	self, _ := c.r.f.node.find(c.me())
	if self.State == hutch.NodeDraining {
		each(c, ctx, list, c.sendAway)
		return
	}
	c.adoptOrphans(ctx)
	if coming, err := c.dir().toFetch(ctx, c.me()); err == nil {
		each(c, ctx, coming, c.fetchLater)
	}
	each(c, ctx, list, c.keepLater)
	c.clean(ctx)
}

// each calls do for several sandboxes at once.
func each[T any](c *carrier, ctx context.Context, list []T, do func(context.Context, T)) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, one := range list {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		all.Go(func() {
			defer func() { <-c.slots }()
			do(ctx, one)
		})
	}
}

// keepLater writes a sandbox to the bucket in the background, as keep does.
func (c *carrier) keepLater(ctx context.Context, sb hutch.Sandbox) {
	name := Name{sb.Owner, sb.ID}
	if !sb.Status.Sleeps() {
		return
	}
	if c.keyOf(name) != "" || c.hasFailed(name) {
		return
	}
	if err := c.keepNow(ctx, name); errors.Is(err, errMoved) {
		c.r.correct(ctx, sb)
	}
}

// noteFailed notes that a sandbox could not be sent or fetched.
func (c *carrier) noteFailed(name Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed[name] = time.Now()
}

// hasFailed reports whether sending or fetching a sandbox failed less than retryKeep ago.
func (c *carrier) hasFailed(name Name) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, failed := c.failed[name]
	if failed && time.Since(at) >= retryKeep {
		delete(c.failed, name)
		failed = false
	}
	return failed
}

// keepAll writes the sleeping sandboxes here to the bucket. It returns after one attempt for each of them.
func (c *carrier) keepAll(ctx context.Context) {
	list, err := c.r.all(ctx)
	if err != nil {
		c.r.f.log.Warn("what sleeps here could not be listed for the bucket", "err", err)
		return
	}
	each(c, ctx, list, func(ctx context.Context, sb hutch.Sandbox) {
		if sb.Status.Sleeps() {
			c.keepNow(ctx, Name{sb.Owner, sb.ID})
		}
	})
}

func (c *carrier) keepNow(ctx context.Context, name Name) error {
	err := c.keep(ctx, name)
	if err != nil && ctx.Err() == nil {
		c.noteFailed(name)
		c.r.f.log.Warn("a sandbox that sleeps is on this node only", "sandbox", name.ID, "err", err)
	}
	return err
}

// sendAway puts a sandbox of a drained node to sleep and moves it to another node. If the sandbox cannot leave, it is
// not changed, and the directory records why.
func (c *carrier) sendAway(ctx context.Context, sb hutch.Sandbox) {
	name := Name{sb.Owner, sb.ID}
	err := c.handOver(ctx, sb, name)
	c.did(Left, err)
	why := ""
	if err != nil && ctx.Err() == nil {
		why = err.Error() // the full error, because an operator reads the reason
		c.r.f.log.Warn("a sandbox cannot leave this node", "sandbox", sb.ID, "err", err)
	}
	if err != nil {
		c.dir().recordStay(ctx, c.me(), name, why)
	}
}

func (c *carrier) handOver(ctx context.Context, sb hutch.Sandbox, name Name) error {
	ctx, cancel := context.WithTimeout(ctx, carryTime)
	defer cancel()
	if !sb.Status.Sleeps() {
		v, err := c.Engine.Hibernate(caller.WithOwner(ctx, caller.Owner{ID: name.Owner}), name.ID, hutch.HibernateRequest{})
		if err == nil && !v.Status.Sleeps() {
			err = hutch.Errorf(hutch.Conflict, "it does not sleep")
		}
		if err != nil {
			return err
		}
		if err := c.dir().noteAwake(ctx, c.me(), []entry{{Name: name}}); err != nil {
			return err
		}
		c.r.note(name, false)
	}
	if err := c.keep(ctx, name); err != nil {
		return err
	}
	h, ok, err := c.dir().holder(ctx, name)
	switch {
	case err != nil:
		return err
	case ok && h.Node != c.me(): // the sandbox was handed over before, but the answer was lost
		c.discard(ctx, name)
		return nil
	case !ok || h.Image == nil:
		c.setKey(name, "") // so that it is sent again
		return hutch.Errorf(hutch.Conflict, "it was used meanwhile")
	}
	to, err := c.dir().nodeFor(ctx, h.cargo(), "", c.me())
	if err != nil {
		return err
	}
	// The copy here will be removed, so read the bucket's copy back first.
	if err := travel.Check(ctx, c.Bucket, *h.Image); err != nil {
		c.setKey(name, "") // so that it is sent again; until then the directory has the old key, so the object stays
		return hutch.Errorf(hutch.Unavailable, "the bucket does not have what was written to it").Because(err)
	}
	err = c.Engine.Depart(ctx, name.Owner, name.ID, func(ctx context.Context) error { return c.dir().handOver(ctx, c.me(), h, to) })
	if err != nil {
		return err
	}
	c.setKey(name, "")
	c.r.drop(name)
	c.r.f.log.Info("handed a sandbox over", "sandbox", name.ID, "to", to)
	return nil
}

// adoptOrphans takes over sandboxes of nodes that have been dead for a while. Each of them is fetched by one node.
func (c *carrier) adoptOrphans(ctx context.Context) {
	if _, dead := c.r.f.node.others(); len(dead) == 0 {
		return
	}
	list, err := c.dir().orphans(ctx, deadFor)
	if err != nil {
		return
	}
	var mine []Holder
	for _, h := range list {
		if c.hasFailed(h.Name) {
			continue
		}
		if to, err := c.fetcherOf(ctx, &h, ""); err == nil && to == c.me() { // else another node has claimed it first
			mine = append(mine, h)
		}
	}
	each(c, ctx, mine, c.fetchLater)
}

// cleanEvery is how often a node looks for images that belong to no sandbox.
const cleanEvery = time.Hour

// clean removes images that were left behind because a node died or the bucket was unavailable.
func (c *carrier) clean(ctx context.Context) {
	if time.Since(c.cleaned) < cleanEvery {
		return
	}
	c.cleaned = time.Now()
	c.cleanSnapshots(ctx)
	keys, err := c.Bucket.List(ctx, c.folder)
	if err != nil {
		return
	}
	used, err := c.dir().images(ctx) // read after the list of keys, so that it includes every used image in that list
	if err != nil {
		return
	}
	for _, key := range keys {
		at, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(key, c.folder), snapshotKey), "-")
		made, err := strconv.ParseInt(at, 10, 64)
		if err == nil && !used[key] && time.Since(time.Unix(made, 0)) > lostAfter {
			c.drop(key)
		}
	}
	c.cleanBuilds(ctx, keys)
}
