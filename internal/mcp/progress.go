package mcp

import (
	"context"
	"fmt"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
)

const (
	progressEvery = 100 * time.Millisecond // shortest time between notifications
	heartbeat     = 5 * time.Second        // many clients give up on a call that is silent for longer
	maxProgress   = 1024                   // bytes of output in one notification
)

// progress sends the client a command's output while it runs, and before that the layers of an image that is pulled, if
// the client asked for that with a token. It counts the output in any case.
type progress struct {
	ctx   context.Context
	req   *sdk.CallToolRequest
	token any
	limit hutch.Seconds // 0 when not known
	began time.Time

	mu     sync.Mutex // held while sending, so that notifications keep their order
	total  map[hutch.Stream]int64
	latest []byte // the end of the output that was not sent yet
	sent   time.Duration
	timer  *time.Timer
	closed bool
}

func follow(ctx context.Context, req *sdk.CallToolRequest, limit hutch.Seconds) *progress {
	p := &progress{
		ctx: ctx, req: req, token: req.Params.GetProgressToken(), limit: limit,
		began: time.Now(), total: make(map[hutch.Stream]int64, 2),
	}
	if p.token != nil {
		p.mu.Lock() // locked, because tick reads the timer
		defer p.mu.Unlock()
		p.timer = time.AfterFunc(heartbeat, p.tick)
	}
	return p
}

// add receives output.
func (p *progress) add(o hutch.Output) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total[o.Stream] += int64(len(o.Data)) + o.Lost
	p.showLocked(o.Data)
	return nil
}

// pull receives the state of a layer of an image that is pulled.
func (p *progress) pull(t hutch.Transfer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = 0 // it is a limit of the command, not of the pull
	p.showLocked(fmt.Appendf(nil, "layer %.19s %s: %d of %d bytes\n", t.Layer, t.State, t.Done, t.Total))
	return nil
}

// showLocked sends text, or holds it back for a moment.
func (p *progress) showLocked(text []byte) {
	if p.token == nil || p.closed || len(text) == 0 {
		return
	}
	p.latest = append(p.latest, text[max(0, len(text)-maxProgress):]...)
	if n := len(p.latest); n > maxProgress {
		p.latest = append(p.latest[:0], wholeStart(p.latest[n-maxProgress:])...)
	}
	if wait := progressEvery - (time.Since(p.began) - p.sent); wait > 0 && p.sent > 0 {
		p.timer.Reset(wait)
	} else {
		p.sendLocked()
	}
}

// tick sends what add held back, or a heartbeat.
func (p *progress) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.sendLocked()
	}
}

// close sends the rest; nothing is sent after it.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.token == nil {
		return
	}
	if len(p.latest) > 0 {
		p.sendLocked()
	}
	p.timer.Stop()
}

// sendLocked notifies the client. Progress is in seconds, because only the time is sure to grow. An error means that
// the client has disconnected. It is ignored, because the context also ends then.
func (p *progress) sendLocked() {
	p.sent = max(time.Since(p.began), p.sent+time.Millisecond)
	text := wholeRunes(p.latest)
	p.req.Session.NotifyProgress(p.ctx, &sdk.ProgressNotificationParams{
		ProgressToken: p.token,
		Progress:      p.sent.Seconds(),
		Total:         float64(p.limit),
		Message:       readable(text),
	})
	p.latest = append(p.latest[:0], p.latest[len(text):]...)
	p.timer.Reset(heartbeat)
}
