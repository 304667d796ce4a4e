package secret

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"

	"hutch"
)

// Redactor replaces secrets in text by [redacted:NAME]. A nil one replaces
// nothing. It does not change, and is safe for concurrent use.
//
// It looks at the last three bytes of a window as long as the shortest needle,
// which mostly shows how far the window can move on at once (Wu and Manber's
// search for many needles): the more bytes needles have, the fewer it looks at.
type Redactor struct {
	window  int
	longest int
	shift   []uint8 // by the hash of a window's last bytes: how far none begins
	ends    map[uint16][]*needle
	begins  [256][]*needle // longest first
	edges   func() map[string]*needle
}

// needle is one form of one secret.
type needle struct {
	text   []byte
	marker []byte
}

const (
	block     = 3  // bytes that are looked at
	maxWindow = 32 // bytes: longer ones move no faster
)

// NewRedactor returns a redactor of values by name; nil when there is nothing
// that it would replace.
func NewRedactor(secrets map[string][]string) *Redactor {
	r := &Redactor{window: maxWindow, ends: map[uint16][]*needle{}}
	for _, n := range needles(secrets) {
		r.window = min(r.window, len(n.text))
		r.longest = max(r.longest, len(n.text))
		r.begins[n.text[0]] = append(r.begins[n.text[0]], n)
	}
	if r.longest == 0 {
		return nil
	}
	r.shift = bytes.Repeat([]byte{uint8(r.window - block + 1)}, 1<<16)
	for _, list := range r.begins {
		for _, n := range list {
			r.enter(n)
		}
	}
	r.edges = sync.OnceValue(r.endings)
	return r
}

// needles are all forms of all secrets, the longest first.
func needles(secrets map[string][]string) []*needle {
	var all []*needle
	known := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		marker := []byte("[redacted:" + name + "]")
		for _, value := range secrets[name] {
			for _, form := range forms(value) {
				if !known[form] {
					known[form] = true
					all = append(all, &needle{[]byte(form), marker})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b *needle) int {
		return cmp.Or(len(b.text)-len(a.text), bytes.Compare(a.marker, b.marker), bytes.Compare(a.text, b.text))
	})
	return all
}

// enter notes where the beginning of a needle moves the window to.
func (r *Redactor) enter(n *needle) {
	for end := block; end <= r.window; end++ {
		h := hash(n.text[end-block : end])
		r.shift[h] = min(r.shift[h], uint8(r.window-end))
	}
	h := hash(n.text[r.window-block : r.window])
	r.ends[h] = append(r.ends[h], n)
}

func hash(b []byte) uint16 {
	return uint16((uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16) * 0x9E3779B1 >> 16)
}

// find returns where the next needle begins in b, and which it is: the first
// and, of those that begin there, the longest. None is where one may begin
// whose end is still to come or, of a final b, its end.
func (r *Redactor) find(b []byte, from int, final bool) (int, *needle) {
	for i := from + r.window; i <= len(b); {
		h := hash(b[i-block : i])
		if skip := r.shift[h]; skip > 0 {
			i += int(skip)
			continue
		}
		if n, open := agree(r.ends[h], b[i-r.window:], final); n != nil || open {
			return i - r.window, n
		}
		i++
	}
	if final {
		return len(b), nil
	}
	for i := max(from, len(b)-r.window+1); i < len(b); i++ {
		if _, open := agree(r.begins[b[i]], b[i:], false); open {
			return i, nil
		}
	}
	return len(b), nil
}

// agree returns the longest of the needles that b begins with; open when it may
// yet begin with a longer one.
func agree(list []*needle, b []byte, final bool) (n *needle, open bool) {
	for _, n := range list {
		switch {
		case bytes.HasPrefix(b, n.text):
			return n, false
		case !final && bytes.HasPrefix(n.text, b):
			return nil, true
		}
	}
	return nil, false
}

// Bytes is b with the secrets replaced: b itself when there are none.
func (r *Redactor) Bytes(b []byte) []byte {
	if r == nil {
		return b
	}
	at, n := r.find(b, 0, true)
	if n == nil {
		return b
	}
	var out []byte
	for from := 0; ; at, n = r.find(b, from, true) {
		out = append(out, b[from:at]...)
		if n == nil {
			return out
		}
		out, from = append(out, n.marker...), at+len(n.text)
	}
}

// String is s with the secrets replaced.
func (r *Redactor) String(s string) string {
	if r == nil || len(s) < r.window {
		return s
	}
	b := []byte(s)
	if clean := r.Bytes(b); &clean[0] != &b[0] {
		return string(clean)
	}
	return s
}

// Excerpt is as String, for text that may have been cut out of a longer one:
// what may be the rest of a secret at its ends is replaced too.
func (r *Redactor) Excerpt(s string) string {
	if r == nil {
		return s
	}
	b := []byte(s)
	var head, tail []byte
	if n, size := r.cutHead(b); n != nil {
		head, b = n.marker, b[size:]
	}
	if n, at := r.cutTail(b); n != nil {
		tail, b = n.marker, b[:at]
	}
	return string(slices.Concat(head, r.Bytes(b), tail))
}

// result is a result with the secrets replaced, and what can be a part of a
// secret where the middle of the output is missing.
func (r *Redactor) result(res hutch.ExecResult) hutch.ExecResult {
	stdout, stderr := res.Stdout, res.Stderr
	if res.Truncated {
		stdout, stderr = r.joined(stdout, res.Cuts[0]), r.joined(stderr, res.Cuts[1])
	} else {
		stdout, stderr = r.Bytes(stdout), r.Bytes(stderr)
	}
	res.Stdout, res.Stderr = nil, nil
	res = Scrub(r, res)
	res.Stdout, res.Stderr = stdout, stderr
	return res
}

// joined replaces secrets in two texts that stand one after the other, of which
// the first is cut at its end and the second at its beginning.
func (r *Redactor) joined(b []byte, at int) []byte {
	at = min(max(at, 0), len(b))
	head, tail := b[:at:at], b[at:]
	var marker []byte
	if n, at := r.cutTail(head); n != nil {
		head, marker = head[:at], n.marker
	}
	if n, size := r.cutHead(tail); n != nil {
		tail, marker = tail[size:], n.marker
	}
	return slices.Concat(r.Bytes(head), marker, r.Bytes(tail))
}

// cutTail finds the beginning of a needle at the end of b, of more than may be
// told.
func (r *Redactor) cutTail(b []byte) (*needle, int) {
	for from := 0; ; {
		at, n := r.find(b, from, false)
		if n != nil {
			from = at + len(n.text)
			continue
		}
		for ; at < len(b); at++ {
			for _, n := range r.begins[b[at]] {
				if len(b)-at > n.harmless() && bytes.HasPrefix(n.text, b[at:]) {
					return n, at
				}
			}
		}
		return nil, 0
	}
}

// cutHead finds the end of a needle at the beginning of b.
func (r *Redactor) cutHead(b []byte) (found *needle, size int) {
	const least = 2 // bytes that are looked up
	for i := least; i <= min(len(b), r.longest); i++ {
		if n := r.edges()[string(b[i-least:i])]; n == nil {
			continue
		}
		for _, list := range r.begins {
			for _, n := range list {
				if i > n.harmless() && bytes.HasSuffix(n.text, b[:i]) {
					found, size = n, i
				}
			}
		}
	}
	return found, size
}

// endings are the last two bytes of the needles.
func (r *Redactor) endings() map[string]*needle {
	ends := map[string]*needle{}
	for _, list := range r.begins {
		for _, n := range list {
			ends[string(n.text[len(n.text)-2:])] = n
		}
	}
	return ends
}

// harmless is how many of its first bytes may be told without telling the
// secret: a quarter, and at most eight.
func (n *needle) harmless() int { return min(len(n.text)/4, 8) }

// harmless is how many bytes may be told of text with which needles begin.
func (r *Redactor) harmless(b []byte) int {
	k := len(b)
	for _, n := range r.begins[b[0]] {
		if bytes.HasPrefix(n.text, b) {
			k = min(k, n.harmless())
		}
	}
	return k
}

// Error is err with the secrets replaced in what it shows. Its cause, which is
// for the log alone, stays.
func (r *Redactor) Error(err error) error {
	e, ok := errors.AsType[*hutch.Error](err)
	if r == nil || !ok {
		return err
	}
	shown := Scrub(r, *e)
	if shown.Message == e.Message && reflect.DeepEqual(shown.Data, e.Data) {
		return err
	}
	return &shown
}
