package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"hutch"
)

// previewPath is the path at which a door answers which port a preview's label belongs to. The answer is one line of
// JSON. The response stays open until the port is no longer exposed in this way; then connections through other nodes
// are cut, too.
const previewPath = "/fleet/preview"

const (
	lookTime = 3 * time.Second // how long nodes can take to answer whether they have a label
	// fetchTime bounds how long a visitor waits for a sandbox from the bucket. The transfer continues after that.
	fetchTime = time.Minute
	// mostLooks limits simultaneous look-ups of the labels of one owner, and of labels without a known owner, because
	// anyone can ask for a label. mostFetches limits the look-ups that wait for a sandbox from the bucket, which takes
	// longer.
	mostLooks, mostFetches = 64, 16
	// mostShown bounds the labels of other nodes that are remembered, each with an open stream.
	mostShown = 10_000
)

// shownPreview is a hutch.Preview in an answer to another node.
type shownPreview struct {
	hutch.Port
	Owner string
	Key   []byte
}

func (d *door) preview(w http.ResponseWriter, r *http.Request) {
	p, err := d.f.previewHere(r.URL.Query().Get("label"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if json.NewEncoder(w).Encode(shownPreview{p.Port, p.Owner, p.Key}) != nil || http.NewResponseController(w).Flush() != nil {
		return
	}
	select {
	case <-p.Life.Done():
	case <-r.Context().Done():
	}
}

// previews are the previews of other nodes that this node knows.
type previews struct {
	mu     sync.Mutex
	shown  map[string]remembered // by label
	counts map[string]int        // number of entries in shown, by owner
	// looking has the look-ups of labels, so that visitors of one label share one look-up.
	looking        singleflight.Group
	looks, fetches slots
}

// remembered is a preview of another node, and the function that closes its stream.
type remembered struct {
	hutch.Preview
	end context.CancelFunc
}

func newPreviews() previews {
	return previews{
		shown: map[string]remembered{}, counts: map[string]int{},
		looks: slots{most: mostLooks, taken: map[labelOwner]int{}}, fetches: slots{most: mostFetches, taken: map[labelOwner]int{}},
	}
}

// keep remembers a preview. If there are too many previews, it forgets one of the owner with the most. The next visitor
// of that preview makes the node search for it again.
func (p *previews) keep(label string, preview remembered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked(label)
	if len(p.shown) >= mostShown {
		p.endOneLocked()
	}
	p.shown[label] = preview
	p.counts[preview.Owner]++
}

func (p *previews) endOneLocked() {
	most, of := 0, ""
	for owner, n := range p.counts {
		if n > most {
			most, of = n, owner
		}
	}
	for label, preview := range p.shown {
		if preview.Owner == of {
			p.forgetLocked(label)
			preview.end()
			return
		}
	}
}

// forget removes a preview that has ended. It does not remove a later preview with the same label.
func (p *previews) forget(label string, life context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown[label].Life == life {
		p.forgetLocked(label)
	}
}

func (p *previews) forgetLocked(label string) {
	old, ok := p.shown[label]
	if !ok {
		return
	}
	delete(p.shown, label)
	if p.counts[old.Owner]--; p.counts[old.Owner] == 0 {
		delete(p.counts, old.Owner)
	}
}

// labelOwner is the owner of a label. The zero value stands for all labels without a known owner.
type labelOwner struct {
	id    string
	known bool
}

// slots limits how much is done at a time for each owner.
type slots struct {
	most  int
	mu    sync.Mutex
	taken map[labelOwner]int
}

// within calls do if a slot of the owner is free, and reports whether a slot was free.
func (s *slots) within(owner labelOwner, do func()) bool {
	if !s.take(owner) {
		return false
	}
	defer s.give(owner)
	do()
	return true
}

func (s *slots) take(owner labelOwner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[owner] == s.most {
		return false
	}
	s.taken[owner]++
	return true
}

func (s *slots) give(owner labelOwner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[owner]--; s.taken[owner] == 0 {
		delete(s.taken, owner)
	}
}

// Preview implements hutch.Previews: it finds a label on this node or on another one.
func (f *Fleet) Preview(label string) (hutch.Preview, error) {
	if f.node.serving() != nil {
		return hutch.Preview{}, errNotAnswered
	}
	if p, err := f.previewHere(label); err == nil {
		return p, nil
	}
	f.previews.mu.Lock()
	known, ok := f.previews.shown[label]
	f.previews.mu.Unlock()
	if ok && known.Life.Err() == nil {
		return known.Preview, nil
	}
	found, err, _ := f.previews.looking.Do(label, func() (any, error) { return f.search(label) })
	return found.(hutch.Preview), err
}

// Errors of look-ups. A visitor can be a stranger, so they name no node and no sandbox.
var (
	errNotAnswered = hutch.Errorf(hutch.Unavailable, "whether there is such a preview could not be found out, because a machine of this server or its database did not answer in time: try again in a moment")
	errManyLooks   = hutch.Errorf(hutch.Unavailable, "too many previews are looked up at once: try again in a moment")
	errFetching    = hutch.Errorf(hutch.Unavailable, "the sandbox of this preview could not be brought to a machine yet: try again in a moment")
)

// search looks for a label on the other nodes and in the bucket.
func (f *Fleet) search(label string) (p hutch.Preview, err error) {
	var owner labelOwner
	if f.opt.LabelOwner != nil {
		owner.id, owner.known = f.opt.LabelOwner(label)
	}
	if !f.previews.looks.within(owner, func() { p, err = f.look(label) }) {
		return p, errManyLooks
	}
	if err == nil || f.carrier == nil {
		return p, err
	}
	unclear := err
	if !f.previews.fetches.within(owner, func() {
		if err = f.fetchLabel(label); err != nil {
			return
		}
		if p, err = f.previewHere(label); err != nil {
			p, err = f.look(label)
		}
	}) {
		return p, errManyLooks
	}
	if errors.Is(err, hutch.NotFound) {
		err = unclear
	}
	return p, err
}

// previewHere returns the target of a label of this node.
func (f *Fleet) previewHere(label string) (hutch.Preview, error) {
	if f.opt.Previews == nil {
		return hutch.Preview{}, hutch.ErrNoPreview
	}
	return f.opt.Previews.Preview(label)
}

// fetchLabel brings the sandbox of a label to a node, if only the bucket has the sandbox.
func (f *Fleet) fetchLabel(label string) error {
	ctx, cancel := context.WithTimeout(f.life, fetchTime)
	defer cancel()
	list, err := f.dir.ofLabel(ctx, label)
	if err != nil {
		f.log.Warn("look for the sandbox of a preview", "err", err)
		return errNotAnswered
	}
	result := error(hutch.ErrNoPreview)
	for _, h := range list {
		ports, err := f.carrier.Engine.PortsInStore(ctx, h.Owner, h.ID)
		has := slices.ContainsFunc(ports, func(p hutch.Port) bool { return p.Label() == label })
		switch {
		case errors.Is(err, hutch.NotFound), err == nil && !has: // the label belongs to another sandbox with such an id
			continue
		case err != nil:
			result = errNotAnswered
		default:
			if _, _, err = f.find(ctx, h.Name); err == nil {
				return nil
			}
			result = errFetching
		}
		f.log.Warn("fetch the sandbox of a preview", "sandbox", h.ID, "err", err)
	}
	return result
}

// look asks all live nodes for a label at once. The answer of the first node that has the label is kept open. The error
// is ErrNoPreview only if all nodes have answered.
func (f *Fleet) look(label string) (hutch.Preview, error) {
	others, _ := f.node.others()
	found := make(chan hutch.Preview, len(others))
	none := make(chan error, len(others))
	for _, info := range others {
		f.background(func(context.Context) {
			if err := f.lookAt(info, label, found); err != nil {
				none <- err
			}
		})
	}
	limit := time.After(lookTime)
	result := error(hutch.ErrNoPreview)
	for range others {
		select {
		case p := <-found:
			return p, nil
		case err := <-none:
			if !errors.Is(err, hutch.NotFound) {
				result = errNotAnswered
			}
		case <-limit:
			return hutch.Preview{}, errNotAnswered
		}
	}
	return hutch.Preview{}, result
}

// lookAt asks one node for a label, sends what it finds to found, and returns when the answer has ended. The error is
// ErrNoPreview if the node does not have the label.
func (f *Fleet) lookAt(info NodeInfo, label string, found chan<- hutch.Preview) error {
	p, err := f.peers.of(info)
	if err != nil {
		return err
	}
	life, end := context.WithCancel(f.life)
	defer end()
	late := time.AfterFunc(lookTime, end)
	req, err := http.NewRequestWithContext(life, http.MethodGet, "https://"+info.ID+"."+domain+previewPath+"?"+url.Values{"label": {label}}.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	var shown shownPreview
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return hutch.ErrNoPreview
	default:
		return errNotAnswered
	}
	line, err := lines.ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &shown) != nil || !late.Stop() {
		return errNotAnswered
	}
	preview := hutch.Preview{Port: shown.Port, Owner: shown.Owner, Key: shown.Key, Life: life}
	f.previews.keep(label, remembered{preview, end})
	defer f.previews.forget(label, life)
	found <- preview
	lines.ReadByte() // returns when the port, the node or this process ends
	return nil
}
