package mcp

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"hutch/internal/text"
)

// maxShown is how many bytes of output a result shows, for both streams together.
const maxShown = 20_000

// printed is the output on one stream: all of it or, if total is larger than data, the beginning and the end in equal
// parts.
type printed struct {
	data  []byte
	total int64
}

// share divides maxShown: each stream can use half, plus what the other stream leaves free.
func share(stdout, stderr int) (forOut, forErr int) {
	const half = maxShown / 2
	forErr = min(stderr, max(half, maxShown-stdout))
	return maxShown - forErr, forErr
}

// excerpt returns p's beginning and end in at most budget bytes. A mark between them says how much is missing and how
// to see it.
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

// lineSlack is how far a cut can be moved to put it between two lines.
const lineSlack = 200

// wholeEnd drops a partial line, or at least a partial character, from the end.
func wholeEnd(b []byte) []byte {
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 && len(b)-i <= lineSlack {
		return b[:i+1]
	}
	return wholeRunes(b)
}

// wholeRunes drops a partial character from the end.
func wholeRunes(b []byte) []byte { return b[:len(b)-text.Unfinished(b)] }

// wholeStart drops a partial line, or at least a partial character, from the start.
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

// encode turns two streams into strings without losing a byte: unchanged if both are UTF-8, otherwise both in base64.
// encoding is then "base64".
func encode(stdout, stderr []byte) (out, err, encoding string) {
	if utf8.Valid(stdout) && utf8.Valid(stderr) {
		return string(stdout), string(stderr), ""
	}
	return base64.StdEncoding.EncodeToString(stdout), base64.StdEncoding.EncodeToString(stderr), "base64"
}

// readable returns b for a model to read, with U+FFFD in place of bytes that are not UTF-8.
func readable(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// tail returns the end of s, at most n bytes.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "[…] " + string(wholeStart([]byte(s[len(s)-n:])))
}
