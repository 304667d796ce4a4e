package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/delay"
	"hutch/internal/objects"
)

// A fleet claims its folder of the bucket: one object there says which fleet uses the folder. A fleet that was restored
// from a backup has the keys and the folder of its original, and its database lists the same images. If both used the
// folder, each would remove images that the other needs, and a sandbox would wake twice.
//
// The nodes of the fleet write the claim again and again: a node that finds it unchanged writes it. So another fleet
// can see whether the fleet of a claim is running, without comparing clocks.
//
//	claim of                                     this fleet
//	this fleet, or none                          uses the folder
//	the fleet that this one was restored from,   waits until the claim is not written any more, and takes it over;
//	or another restore of the same backup        is refused if it is
//	a fleet that was restored from this one      is refused
//	a fleet with another authority               is refused
//
// After a takeover, the claim is unsettled for a while (claimTimes.settle), and no fleet uses the folder meanwhile.
// This is longer than a node acts without reading the claim again. So by the end of that time, a slow node of the other
// fleet has seen the new claim, or has overwritten it with its own.
//
// The claim is not authenticated, because any program that can write to the bucket can also delete everything in it.

// claimTimes are the times of a claim.
type claimTimes struct {
	beat   time.Duration // how often a node reads the claim
	fresh  time.Duration // how long a node acts on what it has read
	quiet  time.Duration // after this time without a change, the fleet of a claim counts as ended
	settle time.Duration // how long a claim that was taken over must stay unchanged
	poll   time.Duration // how often a node that starts reads the claim while it waits
}

var usualClaimTimes = claimTimes{beat: 10 * time.Second, fresh: 15 * time.Second, quiet: 30 * time.Second, settle: 20 * time.Second, poll: time.Second}

const (
	claimName = "claim"
	// maxClaim bounds the size of a claim, because the claim is not trusted.
	maxClaim = 1 << 16
	// databaseEvery is how often a node checks whether its database is still the same one.
	databaseEvery = time.Minute
	// claimTime bounds one reading or writing of the claim.
	claimTime = 20 * time.Second
)

// lineage identifies a fleet among the copies of its database: first the fingerprint of its authority, the same in all
// copies, and then one random text for each restore from a backup.
type lineage []string

// claim is the object in the bucket.
type claim struct {
	Lineage lineage `json:"lineage"`
	// Database distinguishes two databases with the same lineage: one of them is a copy that was not made by a restore
	// of Hutch.
	Database string    `json:"database,omitempty"`
	Beat     string    `json:"beat"` // a new random text each time the claim is written
	Settled  bool      `json:"settled"`
	Node     string    `json:"node"` // who wrote it and when, for human readers
	At       time.Time `json:"at"`
}

type relation int

const (
	sameFleet relation = iota
	canTakeOver
	successor // was restored from the fleet that it is compared with
	unrelated
)

// compare returns the relation of a claim's fleet to the fleet with the lineage mine.
func (c claim) compare(mine lineage, database string) relation {
	switch {
	case len(c.Lineage) == 0: // not a claim: it is replaced if it stays unchanged
		return canTakeOver
	case c.Lineage[0] != mine[0]:
		return unrelated
	case slices.Equal(c.Lineage, mine):
		if c.Database != database && c.Database != "" && database != "" {
			return canTakeOver
		}
		return sameFleet
	case len(c.Lineage) > len(mine) && slices.Equal(c.Lineage[:len(mine)], mine):
		return successor
	}
	return canTakeOver
}

// errClaiming is the error while it is not known yet whether another fleet still uses the bucket.
var errClaiming = hutch.Errorf(hutch.Unavailable, "another copy of this fleet has used the bucket: this node waits until it is sure that the other copy does not run; try again in a minute")

// claimed is the bucket of a fleet, with its claim. Its methods return errors while the fleet may not use the bucket.
type claimed struct {
	objects.Store
	key  string
	node string
	mine lineage
	// find returns what distinguishes the database from its copies; "" if it is not known.
	find  func(context.Context) string
	times claimTimes
	now   func() time.Duration // a monotonic clock
	log   *slog.Logger

	looking  sync.Mutex // held while the claim is read and written
	database string     // the last result of find
	found    time.Duration

	mu        sync.Mutex
	confirmed time.Duration // when the node last read its own fleet's claim; 0 means never
	refused   error         // why this fleet may not use the bucket
	last      string        // the claim as last read
	lastSince time.Duration // since when the claim is the same
}

// claimBucket claims the folder of a fleet in its bucket.
func claimBucket(ctx context.Context, d *Directory, node, folder string, bucket objects.Store, log *slog.Logger) (*claimed, error) {
	mine, err := d.lineage(ctx)
	if err != nil {
		return nil, err
	}
	b := &claimed{Store: bucket, key: folder + claimName, node: node, mine: mine, find: d.identifyDatabase, times: usualClaimTimes, now: sinceBoot, log: log}
	return b, b.begin(ctx)
}

// begin claims the bucket. It waits until it knows whether another fleet has the bucket, and returns an error if so. A
// bucket that does not answer is claimed later, by run.
func (b *claimed) begin(ctx context.Context) error {
	for told := false; ; {
		err := b.look(ctx)
		switch {
		case err == nil, !errors.Is(err, errClaiming) && hutch.KindOf(err) != hutch.Conflict:
			return ctx.Err()
		case !errors.Is(err, errClaiming):
			return err
		case !told:
			b.log.Warn("another copy of this fleet has used the bucket: waiting to see whether it still runs", "object", b.key)
			told = true
		}
		if err := delay.Wait(ctx, b.times.poll); err != nil {
			return err
		}
	}
}

// run reads and writes the claim until ctx is done.
func (b *claimed) run(ctx context.Context) {
	tick := time.NewTicker(b.times.beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.look(ctx)
		}
	}
}

// look reads the claim once, and writes it when it is time for that. It returns nil if this fleet may use the bucket.
func (b *claimed) look(ctx context.Context) error {
	b.looking.Lock()
	defer b.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	began := b.now()
	if b.found == 0 || began-b.found > databaseEvery { // the database can be replaced while nodes run
		b.database, b.found = b.find(ctx), began
	}
	text, err := b.read(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		if err := b.write(ctx, true); err != nil {
			return err
		}
		return b.decided(began, nil)
	}
	if err != nil {
		return err
	}
	before, stands := b.note(text, began)
	return b.judge(ctx, text, before, stands, began)
}

// note records what the claim says. It returns the previous content, and for how long the content has been the same.
func (b *claimed) note(text string, began time.Duration) (before string, stands time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before = b.last; text != before {
		b.last, b.lastSince = text, began
	}
	return before, began - b.lastSince
}

// judge decides by the content of the claim whether this fleet may use the bucket, and writes a new claim when one is
// due.
func (b *claimed) judge(ctx context.Context, text, before string, stands, began time.Duration) (err error) {
	var c claim
	if json.Unmarshal([]byte(text), &c) != nil {
		c = claim{}
	}
	is := c.compare(b.mine, b.database)
	switch {
	case is == sameFleet && c.Settled:
		if text == before { // no other node has written the claim since the last look
			err = b.write(ctx, true)
		}
		return errors.Join(b.decided(began, nil), err)
	case is == sameFleet && stands >= b.times.settle:
		if err := b.write(ctx, true); err != nil {
			return err
		}
		b.log.Info("this fleet has taken the bucket over from another copy of it", "object", b.key)
		return b.decided(began, nil)
	case is == canTakeOver && before != "" && text != before && len(c.Lineage) > 0:
		return b.decided(began, b.refusal(c, fmt.Sprintf("another copy of this fleet, with another database, uses the bucket, and its node %s runs", c.Node),
			"end that fleet, or give this one another bucket or a copy of this one with --fleet-bucket"))
	case is == canTakeOver && stands >= b.times.quiet:
		if err := b.write(ctx, false); err != nil {
			return err
		}
		return errClaiming
	case is == canTakeOver, is == sameFleet:
		if err := b.refusedWith(); err != nil { // the fleet of the claim is running
			return err
		}
		return errClaiming
	case is == successor:
		return b.decided(began, b.refusal(c, "the bucket belongs to a fleet that was restored from a backup of this one",
			fmt.Sprintf("end this fleet; to return to it instead, end the restored one for good and delete the object %s from the bucket", b.key)))
	}
	return b.decided(began, b.refusal(c, "the bucket belongs to another fleet with the same key of the secrets",
		fmt.Sprintf("give this fleet another bucket with --fleet-bucket; if the other fleet does not exist any more, delete the object %s from the bucket", b.key)))
}

func (b *claimed) refusal(c claim, why, next string) error {
	return hutch.Errorf(hutch.Conflict, "%s (last seen %s): %s", why, c.At.UTC().Format(time.RFC3339), next).With("limit", "one fleet for a bucket")
}

func (b *claimed) refusedWith() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// decided notes whether this fleet may use the bucket.
func (b *claimed) decided(at time.Duration, refused error) error {
	b.mu.Lock()
	before := b.refused
	b.refused, b.confirmed = refused, at
	b.mu.Unlock()
	switch {
	case refused != nil && before == nil:
		b.log.Error("this node may not use the bucket", "err", refused)
	case refused == nil && before != nil:
		b.log.Info("this node uses the bucket again")
	}
	return refused
}

// may returns an error if this fleet is not allowed to use the bucket now.
func (b *claimed) may(ctx context.Context) error {
	b.mu.Lock()
	known, refused := b.confirmed != 0 && b.now()-b.confirmed < b.times.fresh, b.refused
	b.mu.Unlock()
	if known {
		return refused
	}
	return b.look(ctx)
}

func (b *claimed) read(ctx context.Context) (string, error) {
	body, err := b.Store.Get(ctx, b.key)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxClaim))
	return string(text), err
}

// write writes the claim of this fleet.
func (b *claimed) write(ctx context.Context, settled bool) error {
	text, err := json.Marshal(claim{Lineage: b.mine, Database: b.database, Beat: rand.Text(), Settled: settled, Node: b.node, At: time.Now()})
	if err != nil {
		return err
	}
	if err := b.Store.Put(ctx, b.key, bytes.NewReader(text)); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last, b.lastSince = string(text), b.now()
	return nil
}

// Put implements objects.Store.
func (b *claimed) Put(ctx context.Context, key string, r io.Reader) error {
	if err := b.may(ctx); err != nil {
		return err
	}
	return b.Store.Put(ctx, key, r)
}

// Get implements objects.Store.
func (b *claimed) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := b.may(ctx); err != nil {
		return nil, err
	}
	return b.Store.Get(ctx, key)
}

// Delete implements objects.Store.
func (b *claimed) Delete(ctx context.Context, key string) error {
	if err := b.may(ctx); err != nil {
		return err
	}
	return b.Store.Delete(ctx, key)
}
