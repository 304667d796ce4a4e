package secret

import (
	"bytes"
	"errors"
	"hutch/internal/headtail"
	"maps"
	"reflect"
	"slices"
	"sync"

	"hutch"
)

// Redactor replaces secrets in text by [redacted:NAME]. A nil one replaces nothing. It never changes, and is safe for
// concurrent use.
//
// It moves a window, as long as the shortest needle, over the text, and looks at the window's last three bytes. They
// usually show that no needle can begin within the next bytes, so the window skips these bytes (the algorithm of Wu
// and Manber). The longer the needles, the more it skips.
type Redactor struct {
	window  int
	longest int
	shift   []uint8              // by the hash of a window's last bytes: how far to skip
	ends    map[uint16]needleSet // by the hash of their window's last bytes
	begins  [256]needleSet       // by their first byte
	edges   func() map[string][]*needle
}

// needle is one form of one secret.
type needle struct {
	text   []byte
	marker []byte
	within *needle // the longest other needle with which the text begins
}

// needleSet is in the order of the texts. One secret can have thousands of needles with the same beginning.
type needleSet []*needle

const (
	block     = 3  // bytes that are compared at a time
	maxWindow = 32 // in bytes: a longer window would not make the search faster
)

// NewRedactor returns a redactor of values by name, or nil if it would replace nothing.
func NewRedactor(secrets map[string][]string) *Redactor {
	r := &Redactor{window: maxWindow, ends: map[uint16]needleSet{}}
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

// needles returns all forms of all secrets, in the order of their texts.
func needles(secrets map[string][]string) []*needle {
	var all []*needle
	known := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		marker := []byte("[redacted:" + name + "]")
		for _, value := range secrets[name] {
			for _, form := range forms(value) {
				if !known[form] {
					known[form] = true
					all = append(all, &needle{text: []byte(form), marker: marker})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b *needle) int { return bytes.Compare(a.text, b.text) })
	var before *needle
	for _, n := range all {
		for before != nil && !bytes.HasPrefix(n.text, before.text) {
			before = before.within
		}
		n.within, before = before, n
	}
	return all
}

// needleCost estimates what a needle takes in memory in addition to its text, in bytes.
const needleCost = 160

// Size estimates the memory of a redactor, in bytes.
func (r *Redactor) Size() (n int) {
	if r == nil {
		return 0
	}
	for _, list := range r.begins {
		for _, one := range list {
			n += needleCost + len(one.text)
		}
	}
	return n + len(r.shift)
}

// enter records how far the beginning of a needle lets the window move.
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

// find returns the position of the next needle in b, and the needle. If several needles begin at one position, it
// returns the longest. If n is nil, there is no needle in b, but one can begin at the position and continue after b;
// for a final b, the position is the end of b.
func (r *Redactor) find(b []byte, from int, final bool) (int, *needle) {
	for i := from + r.window; i <= len(b); {
		h := hash(b[i-block : i])
		if skip := r.shift[h]; skip > 0 {
			i += int(skip)
			continue
		}
		if n, open := r.ends[h].match(b[i-r.window:], final); n != nil || open {
			return i - r.window, n
		}
		i++
	}
	if final {
		return len(b), nil
	}
	for i := max(from, len(b)-r.window+1); i < len(b); i++ {
		if _, open := r.begins[b[i]].match(b[i:], false); open {
			return i, nil
		}
	}
	return len(b), nil
}

// match returns the longest needle with which b begins; open is true if b, with the text that follows it, can begin
// with a longer one.
func (s needleSet) match(b []byte, final bool) (n *needle, open bool) {
	after, _ := slices.BinarySearchFunc(s, b, func(n *needle, b []byte) int {
		if bytes.Compare(n.text, b) <= 0 {
			return -1
		}
		return 1
	})
	if !final && after < len(s) && bytes.HasPrefix(s[after].text, b) {
		return nil, true
	}
	if after == 0 {
		return nil, false
	}
	// All texts between b and a beginning of b begin with that beginning, too.
	n = s[after-1]
	for same := commonLength(n.text, b); n != nil && len(n.text) > same; {
		n = n.within
	}
	return n, false
}

// commonLength returns how many bytes two texts have in common at their beginning.
func commonLength(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// Bytes returns b with the secrets replaced: b itself if it has no secrets.
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

// String returns s with the secrets replaced.
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

// Cut returns where to cut a text that still grows, so that no secret is in two parts: after most bytes, or a few
// more. It returns 0 if that depends on the text that follows.
func (r *Redactor) Cut(b []byte, most int) int {
	if r == nil {
		return most
	}
	b = b[:min(len(b), most+r.longest)]
	for from := 0; ; {
		at, n := r.find(b, from, false)
		if n == nil {
			return min(at, most)
		}
		end := at + len(n.text)
		switch {
		case end <= most:
			from = end
		case at > 0:
			return min(at, most)
		default:
			return end
		}
	}
}

// Excerpt does the same as String, for text that can be a part of a longer text: it also replaces possible parts of a
// secret at the ends.
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

// result returns a result with the secrets replaced, and with possible parts of a secret at the place where the middle
// of the output is missing.
func (r *Redactor) result(res hutch.ExecResult) hutch.ExecResult {
	stdout, stderr := res.Stdout, res.Stderr
	if res.Truncated {
		stdout, stderr = r.joined(stdout, res.Cuts[0]), r.joined(stderr, res.Cuts[1])
	} else {
		stdout, stderr = r.Bytes(stdout), r.Bytes(stderr)
	}
	mostOut, mostErr := len(res.Stdout), len(res.Stderr)
	res.Stdout, res.Stderr = nil, nil
	res = scrub(r, res)
	res.Stdout, res.Stderr = shorten(stdout, mostOut), shorten(stderr, mostErr)
	res.Truncated = res.Truncated || len(stdout) > mostOut || len(stderr) > mostErr
	return res
}

// shorten cuts the middle out of a text that is longer than before its secrets were replaced: no more memory is
// charged for it.
func shorten(b []byte, most int) []byte {
	if len(b) <= most {
		return b
	}
	ends := headtail.Ends{Limit: most}
	ends.Add(b)
	return ends.Bytes()
}

// joined replaces secrets in two adjacent texts; the first is cut at its end and the second at its beginning.
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

// cutTail finds the beginning of a needle at the end of b that is too long to be harmless.
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
	const least = 2 // least bytes to look up
	for i := least; i <= min(len(b), r.longest); i++ {
		for _, n := range r.edges()[string(b[i-least:i])] {
			if len(n.text) < i {
				break
			}
			if i > n.harmless() && bytes.HasSuffix(n.text, b[:i]) {
				found, size = n, i
			}
		}
	}
	return found, size
}

// endings returns the needles by their last two bytes, the longest first.
func (r *Redactor) endings() map[string][]*needle {
	ends := map[string][]*needle{}
	for _, list := range r.begins {
		for _, n := range list {
			last := string(n.text[len(n.text)-2:])
			ends[last] = append(ends[last], n)
		}
	}
	for _, list := range ends {
		slices.SortStableFunc(list, func(a, b *needle) int { return len(b.text) - len(a.text) })
	}
	return ends
}

// harmless returns how many of the needle's first bytes can be shown without revealing the secret: a quarter, and at
// most eight.
func (n *needle) harmless() int { return min(len(n.text)/4, 8) }

// harmless returns how many bytes of b can be shown, although needles begin with them.
func (r *Redactor) harmless(b []byte) int {
	k := len(b)
	for _, n := range r.begins[b[0]] {
		if bytes.HasPrefix(n.text, b) {
			k = min(k, n.harmless())
		}
	}
	return k
}

// Error returns err with the secrets replaced in its message. Its cause, which is only logged, does not change.
func (r *Redactor) Error(err error) error {
	e, ok := errors.AsType[*hutch.Error](err)
	if r == nil || !ok {
		return err
	}
	shown := scrub(r, *e)
	if shown.Message == e.Message && reflect.DeepEqual(shown.Data, e.Data) {
		return err
	}
	return &shown
}
