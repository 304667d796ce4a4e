package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"hutch"
	"hutch/internal/delay"
)

const (
	// channel is the PostgreSQL channel on which nodes announce changed collections.
	channel = "hutch_shelves"
	// heartbeat is the time without a message after which a node checks the connection to the database, because a
	// broken network reports no error.
	heartbeat = 10 * time.Second
	// takeover is the longest time for which the lock of a node remains with a server that was killed.
	takeover = 10 * time.Second
	// sweepEvery is how often a node removes the marks of documents that were deleted long ago.
	sweepEvery = time.Hour
)

// watch passes the changes of other nodes to m.
func (p *postgres) watch(m *Mirror) {
	p.mu.Lock()
	p.mirrors[m.collection.name] = append(p.mirrors[m.collection.name], m)
	p.mu.Unlock()
	// Changes between m's first reading and now were announced before m was listening.
	p.done.Go(func() {
		for p.catchUp(p.life, m.collection.name) != nil && p.life.Err() == nil {
			delay.Wait(p.life, time.Second)
		}
	})
}

// catchUp updates the mirrors of a collection, or of all collections if the name is "". A document that cannot be read
// does not stop it.
func (p *postgres) catchUp(ctx context.Context, collection string) error {
	p.mu.Lock()
	var all []*Mirror
	for name, list := range p.mirrors {
		if collection == "" || name == collection {
			all = append(all, list...)
		}
	}
	p.mu.Unlock()
	for _, m := range all {
		switch err := m.catchUp(ctx); {
		case err == nil:
		case ctx.Err() != nil || hutch.KindOf(err) == hutch.Unavailable:
			return err
		default:
			p.opt.Log.Error("read what another node has changed", "collection", m.collection.name, "err", err)
		}
	}
	return nil
}

// listen receives the changes of other nodes until the store is closed. It sends the result of its first attempt to
// listening, once.
func (p *postgres) listen(listening chan<- error) {
	began, first := time.Now(), true
	for p.life.Err() == nil {
		err := p.listenOnce(func() {
			if first {
				first = false
				listening <- nil
			} else {
				p.opt.Log.Info("the database answers again", "database", p.where)
			}
			p.setListenErr(nil)
		})
		if p.life.Err() != nil {
			return
		}
		if first && time.Since(began) > takeover {
			listening <- err
			return
		}
		p.mu.Lock()
		known := p.listenErr != nil
		p.mu.Unlock()
		if !first && !known {
			p.opt.Log.Warn("no news of the database; trying again until there are", "database", p.where, "err", err)
		}
		p.setListenErr(err)
		delay.Wait(p.life, time.Second)
	}
}

func (p *postgres) setListenErr(err error) {
	p.mu.Lock()
	p.listenErr = err
	p.mu.Unlock()
}

// listenOnce listens on one connection, which also holds the node's lock. It returns the error that ended it.
func (p *postgres) listenOnce(begun func()) error {
	ctx, cancel := context.WithTimeout(p.life, p.opt.OperationTimeout)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return p.explained(err)
	}
	defer func() {
		last, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(last)
	}()
	if err := p.beginListening(ctx, c); err != nil {
		return err
	}
	begun()
	swept := time.Time{}
	for p.life.Err() == nil {
		if err := p.decide(c); err != nil {
			return p.explained(err)
		}
		if time.Since(swept) > sweepEvery {
			swept = time.Now()
			if err := p.sweep(c); err != nil {
				return p.explained(err)
			}
		}
		if err := p.awaitChange(c); err != nil {
			return err
		}
	}
	return nil
}

// beginListening takes the node's lock, and reads the changes from before it listened.
func (p *postgres) beginListening(ctx context.Context, c *pgx.Conn) error {
	var mine bool
	if err := c.QueryRow(ctx, `select pg_try_advisory_lock(hashtextextended($1, 0))`, "hutch node "+p.opt.Node).Scan(&mine); err != nil {
		return p.explained(err)
	}
	if !mine {
		return hutch.Errorf(hutch.Conflict, "another server runs as the node %s: end it; if this data folder is a copy of its, give this one a folder of its own", p.opt.Node)
	}
	if _, err := c.Exec(ctx, `listen `+channel); err != nil {
		return p.explained(err)
	}
	return p.catchUp(ctx, "")
}

// awaitChange waits for a change and reads it. After a long time without a change, it checks the connection.
func (p *postgres) awaitChange(c *pgx.Conn) error {
	quiet, cancel := context.WithTimeout(p.life, min(heartbeat, p.opt.OperationTimeout))
	defer cancel()
	n, err := c.WaitForNotification(quiet)
	switch {
	case err == nil:
		return p.catchUp(p.life, n.Payload)
	case p.life.Err() != nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		ask, cancel := context.WithTimeout(p.life, connectTime)
		defer cancel()
		err = c.Ping(ask)
	}
	return p.explained(err)
}

// sweep removes the marks of deleted documents if they are so old that every mirror either has seen them, or will read
// everything again.
func (p *postgres) sweep(c *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(p.life, p.opt.OperationTimeout)
	defer cancel()
	_, err := c.Exec(ctx, `delete from shelves where doc is null and changed < now() - make_interval(secs => $1)`, forgotten.Seconds())
	return err
}
