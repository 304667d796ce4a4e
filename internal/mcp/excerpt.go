package mcp

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxShown is how many bytes of output a result shows, of both streams
// together.
const maxShown = 20_000

// printed is what a program wrote to one of its streams: data is all of it, or
// its beginning and end in equal parts when total is more.
type printed struct {
	data  []byte
	total int64
}

// share divides maxShown: each stream may have half, and what one leaves the
// other may use.
func share(stdout, stderr int) (forOut, forErr int) {
	const half = maxShown / 2
	forErr = min(stderr, max(half, maxShown-stdout))
	return maxShown - forErr, forErr
}

// excerpt returns p's beginning and end in at most budget bytes, with a mark
// between them that says how much is missing and how to see it.
func (p printed) excerpt(budget int) []byte {
	if p.total <= int64(len(p.data)) && len(p.data) <= budget {
		return p.data
	}
	keep := min(budget, len(p.data))
	head := wholeEnd(p.data[:(keep+1)/2])
	tail := wholeStart(p.data[len(p.data)-keep/2:])
	omitted := max(p.total, int64(len(p.data))) - int64(len(head)+len(tail))
	mark := fmt.Sprintf("\n[… %d of %d bytes left out. To read them, run it again with its output in a file (… > /tmp/out 2>&1) and look at parts of that with grep, or sed -n '200,400p' …]\n",
		omitted, max(p.total, int64(len(p.data))))
	return bytes.Join([][]byte{head, tail}, []byte(mark))
}

// lineSlack is how far a cut moves to fall between lines.
const lineSlack = 200

// wholeEnd drops a piece of a line, or at least of a character, from the end.
func wholeEnd(b []byte) []byte {
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 && len(b)-i <= lineSlack {
		return b[:i+1]
	}
	return wholeRunes(b)
}

// wholeRunes drops the beginning of a character from the end.
func wholeRunes(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if last := b[len(b)-i:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return b
			}
			return b[:len(b)-i]
		}
	}
	return b
}

// wholeStart drops a piece of a line, or at least of a character, from the
// start.
func wholeStart(b []byte) []byte {
	if i := bytes.IndexByte(b, '\n'); i >= 0 && i < lineSlack {
		return b[i+1:]
	}
	for i := 0; i < utf8.UTFMax && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// encode makes strings of two streams without losing a byte: as they are when
// both are UTF-8, and else both in base64, as encoding then says.
func encode(stdout, stderr []byte) (out, err, encoding string) {
	if utf8.Valid(stdout) && utf8.Valid(stderr) {
		return string(stdout), string(stderr), ""
	}
	return base64.StdEncoding.EncodeToString(stdout), base64.StdEncoding.EncodeToString(stderr), "base64"
}

// readable is b for the eye of a model, with U+FFFD for what is not UTF-8.
func readable(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// tail is the end of s, at most n bytes of it.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "[…] " + string(wholeStart([]byte(s[len(s)-n:])))
}
