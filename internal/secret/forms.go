package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"hutch"
)

const (
	minLine = 16 // a line of at least this many bytes is a secret itself
	minForm = 8  // least bytes of a part of an encoded secret
)

// forms returns the texts to search for: the secret itself, and what programs make of it when they escape or encode
// output. A value that is too short has none.
func forms(value string) []string {
	if len(value) < hutch.MinRedacted {
		return nil
	}
	all := append(escaped(value), encoded(value)...)
	if !strings.Contains(value, "\n") {
		return all
	}
	all = append(all, strings.ReplaceAll(value, "\n", "\r\n")) // on a terminal
	for line := range strings.Lines(value) {
		line = strings.TrimRight(line, "\r\n")
		if len(line) >= minLine && !strings.HasPrefix(line, "-----") { // as in PEM
			all = append(all, escaped(line)...)
		}
	}
	return all
}

// escaped returns the value, and its forms in URLs, JSON, Go and HTML.
func escaped(value string) []string {
	all := []string{value, html.EscapeString(value), inside(strconv.Quote(value)), jsonText(value, true), jsonText(value, false)}
	for _, s := range []string{url.QueryEscape(value), url.PathEscape(value), url.UserPassword("", value).String()[1:]} {
		all = append(all, s, percents.ReplaceAllStringFunc(s, strings.ToLower))
	}
	return all
}

var percents = regexp.MustCompile(`%[0-9A-F]{2}`)

func jsonText(s string, html bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	enc.Encode(s) // cannot fail: a string, into memory
	return inside(strings.TrimSpace(b.String()))
}

// inside returns the text between quotes.
func inside(quoted string) string { return quoted[1 : len(quoted)-1] }

// encoded returns the value's forms in hexadecimal and base64.
func encoded(value string) []string {
	h := hex.EncodeToString([]byte(value))
	all := []string{h, strings.ToUpper(h)}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for skip := range 3 {
			if core := aligned(enc, value, skip); len(core) >= minForm-2 {
				all = append(all, core)
			}
		}
		// Many programs write base64 in lines of these widths.
		for _, width := range []int{64, 76} {
			all = append(all, lines(enc.EncodeToString([]byte(value)), width)...)
		}
	}
	return all
}

// aligned returns the part of the base64 encoding that only the value determines, if the first skip bytes of the value
// are in one group with the text before it.
func aligned(enc *base64.Encoding, value string, skip int) string {
	b := []byte(value)[skip:]
	return enc.EncodeToString(b)[:len(b)*8/6]
}

// lines cuts a long text into lines.
func lines(s string, width int) (all []string) {
	if len(s) <= width {
		return nil
	}
	for ; len(s) > width; s = s[width:] {
		all = append(all, s[:width])
	}
	if len(s) > minForm {
		all = append(all, s[:len(s)-1]) // the last group can depend on the following text
	}
	return all
}
