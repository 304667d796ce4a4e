package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"hutch"
	"hutch/internal/travel"
)

// An arrival is a sandbox that this node has fetched. It is undecided when the database's answer to arrived was lost,
// or when this node ended before that answer. The engine then keeps the files: the directory may have recorded the
// sandbox here, or may record it a moment later, and the other copies can be bad. Settling an arrival asks the
// directory again.

// arrivalOf returns what the engine notes about a sandbox that is being fetched.
func arrivalOf(h Holder) travel.Arrival {
	return travel.Arrival{Owner: h.Owner, Sandbox: h.ID, From: h.Node, Image: h.Image.Key, Checkpoint: h.Image.Checkpoint}
}

// holderOf returns the sandbox of an arrival in the form that [carrier.arrived] needs.
func holderOf(a travel.Arrival) Holder {
	return Holder{Name: Name{a.Owner, a.Sandbox}, Node: a.From, Image: &travel.Image{Key: a.Image, Checkpoint: a.Checkpoint}}
}

// undecided returns the error for a sandbox whose arrival may or may not have been recorded.
func undecided(err error) error {
	if err == nil || errors.Is(err, errMoved) {
		return err
	}
	return fmt.Errorf("%w: %w", travel.ErrUndecided, err)
}

// settleAll settles the arrivals here, as far as the database answers, and returns those that stay undecided.
func (c *carrier) settleAll(ctx context.Context) (pending []Name) {
	list, err := c.Engine.Arrivals()
	if err != nil {
		c.r.f.log.Error("the sandboxes that came from other nodes could not be listed", "err", err)
	}
	for _, a := range list {
		name := Name{a.Owner, a.Sandbox}
		if c.settle(ctx, name) != nil { // it logs its error, and the next round tries again
			pending = append(pending, name)
		}
	}
	return pending
}

// settle settles the arrival of a sandbox, if there is one. Afterwards the sandbox is here, or its files are removed.
// If the database returns an error, the arrival stays undecided.
func (c *carrier) settle(ctx context.Context, name Name) error {
	if c.r.has(name) {
		return nil
	}
	end, err := c.lockTransfer(ctx, name)
	if err != nil {
		return err
	}
	defer end()
	return c.settleLocked(ctx, name)
}

// settleLocked does the same as settle for a caller that holds the transfer lock.
func (c *carrier) settleLocked(ctx context.Context, name Name) error {
	list, err := c.Engine.Arrivals()
	if err != nil && !errors.Is(err, travel.ErrBadNote) { // settleAll logs ErrBadNote
		return err
	}
	i := slices.IndexFunc(list, func(a travel.Arrival) bool { return Name{a.Owner, a.Sandbox} == name })
	if i < 0 || c.r.has(name) {
		return nil
	}
	defer c.r.expect(name)() // so that report does not free the sandbox's row meanwhile
	h := holderOf(list[i])
	err = c.Engine.Settle(ctx, list[i], func(ctx context.Context) error {
		return undecided(c.recordArrival(ctx, h))
	})
	switch {
	case errors.Is(err, errMoved) || hutch.KindOf(err) == hutch.NotFound:
		c.r.f.log.Info("a sandbox whose files had come here is on another node or destroyed: the files are removed", "sandbox", name.ID)
		return nil
	case err != nil:
		c.r.f.log.Warn("it is not known yet whether a sandbox has come here: its files are kept", "sandbox", name.ID, "err", err, "cause", hutch.AsError(err).Cause)
		return err
	}
	c.cameHere(h)
	c.r.f.log.Info("a sandbox has come here, although the answer of the database was lost", "sandbox", name.ID)
	return nil
}

// cameHere notes that a sandbox has been fetched to this node.
func (c *carrier) cameHere(h Holder) {
	c.setKey(h.Name, h.Image.Key)
	c.r.note(h.Name, false)
	if !h.Image.Checkpoint.IsZero() { // the sandbox was awake on its earlier node
		c.r.f.background(func(ctx context.Context) { c.resume(ctx, h) })
	}
}
