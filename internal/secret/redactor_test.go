package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hutch"
)

const key = "sk-ant-api03-Zm9v+YmFy/cXV4&\"=<quux>0123456789_abcdefghijklmnopqrstuvwxyz"

func TestForms(t *testing.T) {
	t.Parallel()
	quoted, _ := json.Marshal(key)
	for name, text := range map[string]string{
		"itself":                key,
		"in a URL's query":      url.QueryEscape(key),
		"in a URL's path":       url.PathEscape(key),
		"in lower-case escapes": strings.ToLower(url.QueryEscape("&\"=<")) + "x", // not compared with anything: see below
		"in JSON":               string(quoted),
		"in Go":                 strconv.Quote(key),
		"in HTML":               html.EscapeString(key),
		"in hexadecimal":        hex.EncodeToString([]byte(key)),
		"in upper-case hex":     strings.ToUpper(hex.EncodeToString([]byte(key))),
		"in base64":             base64.StdEncoding.EncodeToString([]byte(key)),
		"in base64 behind one":  base64.StdEncoding.EncodeToString([]byte("u" + key)),
		"in base64 behind two":  base64.StdEncoding.EncodeToString([]byte("u:" + key + "\n")),
		"in base64 for URLs":    base64.URLEncoding.EncodeToString([]byte("u:" + key)),
	} {
		if name == "in lower-case escapes" {
			text = percents.ReplaceAllStringFunc(url.QueryEscape(key), strings.ToLower)
		}
		got := NewRedactor(map[string][]string{"KEY": {key}}).String("before " + text + " behind")
		if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " behind") || strings.Count(got, "[redacted:KEY]") != 1 || len(got) > len("before [redacted:KEY] behind")+8 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestBase64InLines: a long secret is found in the lines that `base64` prints.
func TestBase64InLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(key, 3)
	text := base64.StdEncoding.EncodeToString([]byte(long + "\n"))
	for _, width := range []int{64, 76} {
		var wrapped strings.Builder
		for rest := text; rest != ""; rest = rest[min(width, len(rest)):] {
			wrapped.WriteString(rest[:min(width, len(rest))] + "\n")
		}
		got := NewRedactor(map[string][]string{"KEY": {long}}).String(wrapped.String())
		if left := len(strings.ReplaceAll(got, "[redacted:KEY]", "")); left > len(text)/width+10 {
			t.Errorf("in lines of %d, %d bytes are left: %q", width, left, got)
		}
	}
}

func TestLinesOfASecret(t *testing.T) {
	t.Parallel()
	pem := "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END PRIVATE KEY-----\n"
	r := NewRedactor(map[string][]string{"PEM": {pem}})
	for text, want := range map[string]string{
		pem:                                    "[redacted:PEM]",
		strings.ReplaceAll(pem, "\n", "\r\n"):  "[redacted:PEM]",
		"BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj":     "[redacted:PEM]",
		"-----BEGIN PRIVATE KEY-----\nothers'": "-----BEGIN PRIVATE KEY-----\nothers'",
	} {
		if got := r.String(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestTheFirstAndLongestIsReplaced(t *testing.T) {
	t.Parallel()
	r := NewRedactor(map[string][]string{"PASSWORD": {"hunter2x"}, "URL": {"postgres://u:hunter2x@db/x"}, "OLD": {"former-one", "hunter1x"}, "SHORT": {"abc"}})
	for text, want := range map[string]string{
		"":                                     "",
		"hunter2x":                             "[redacted:PASSWORD]",
		"hunter2xhunter2x":                     "[redacted:PASSWORD][redacted:PASSWORD]",
		"at postgres://u:hunter2x@db/x now":    "at [redacted:URL] now",
		"at postgres://u:hunter2x@db/y now":    "at postgres://u:[redacted:PASSWORD]@db/y now",
		"hunter1x, former-one and hunter2 abc": "[redacted:OLD], [redacted:OLD] and hunter2 abc",
		"hunterhunter2x":                       "hunter[redacted:PASSWORD]",
		"postgres://u:hunter2postgres://u:hunter2x@db/x": "postgres://u:hunter2[redacted:URL]",
	} {
		if got := r.String(text); got != want {
			t.Errorf("%q became %q, not %q", text, got, want)
		}
	}
	if r := NewRedactor(map[string][]string{"SHORT": {"abc"}, "NONE": {""}}); r != nil || r.String("abc") != "abc" {
		t.Error("a redactor of nothing")
	}
}

func TestExcerpt(t *testing.T) {
	t.Parallel()
	r := NewRedactor(map[string][]string{"K": {"0123456789abcdefghijklmnop"}})
	for text, want := range map[string]string{
		"efghijklmnop, and the beginning 0123456789ab": "[redacted:K], and the beginning [redacted:K]",
		"p 0123456789abcdefghijklmnop 0":               "p [redacted:K] 0",
		"nothing of it":                                "nothing of it",
	} {
		if got := r.Excerpt(text); got != want {
			t.Errorf("%q became %q, not %q", text, got, want)
		}
	}
}

// TestHealthOfAProcess: the kept part of a check's output can end within a secret.
func TestHealthOfAProcess(t *testing.T) {
	t.Parallel()
	r := NewRedactor(map[string][]string{"K": {"0123456789abcdefghijklmnop"}})
	got := scrub(r, []hutch.Process{{Health: &hutch.ProcessHealth{Output: "a 0123456789abcdefghijklmnop, and 0123456789abcde"}}, {}})
	if out := got[0].Health.Output; out != "a [redacted:K], and [redacted:K]" || got[1].Health != nil {
		t.Errorf("it is %q", out)
	}
}

func TestScrub(t *testing.T) {
	t.Parallel()
	type inner struct{ Name string }
	type record struct {
		inner
		Text  string
		When  time.Time
		Bytes []byte
		List  []inner
		At    *inner
		Map   map[string]string
		Any   map[string]any
		Raw   json.RawMessage
		Nil   *inner
		Err   error
	}
	const s, hidden = "a-secret-value", "[redacted:S]"
	r := NewRedactor(map[string][]string{"S": {s}, "NUMBER": {"123456789"}})
	v := record{
		Text: s, When: time.Now(), Bytes: []byte("x" + s), List: []inner{{s}}, At: &inner{s}, Map: map[string]string{s: s},
		Any: map[string]any{"k": []any{s, 1, nil, inner{s}}}, Raw: json.RawMessage(`{"a": "\u0061-secret-value", "n": 123456789, "m": 1.50}`),
	}
	got := scrub(r, v)
	want := record{
		Text: hidden, When: v.When, Bytes: []byte("x" + hidden), List: []inner{{hidden}}, At: &inner{hidden}, Map: map[string]string{hidden: hidden},
		Any: map[string]any{"k": []any{hidden, 1, nil, inner{hidden}}}, Raw: json.RawMessage(`{"a": "[redacted:S]", "n": "[redacted:NUMBER]", "m": 1.50}`),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if v.List[0].Name != s || v.At.Name != s || v.Map[s] != s {
		t.Error("what was given is changed")
	}
	for _, exact := range []string{`{"b": 1, "a": "x\ny"}`, `null`, `"\u00e9"`} {
		if got := scrub(r, json.RawMessage(exact)); string(got) != exact {
			t.Errorf("%s became %s", exact, got)
		}
	}
}

func TestErrorsShowNoSecret(t *testing.T) {
	t.Parallel()
	r := NewRedactor(map[string][]string{"S": {"a-secret-value"}})
	err := r.Error(fmt.Errorf("x: %w", hutch.Errorf(hutch.Conflict, "no a-secret-value").With("path", "/a-secret-value")))
	if e := hutch.AsError(err); e.Message != "no [redacted:S]" || e.Data["path"] != "/[redacted:S]" || e.Kind != hutch.Conflict {
		t.Errorf("%+v", e)
	}
	for _, same := range []error{nil, bytes.ErrTooLarge, hutch.Errorf(hutch.Invalid, "other").With("n", 1)} {
		if got := r.Error(same); got != same {
			t.Errorf("%v became %v", same, got)
		}
	}
}

// FuzzStream: however a text is split, the result is the same, and holds no secret.
func FuzzStream(f *testing.F) {
	f.Add([]byte("abcabdabcabcabcabd"), []byte("abcabd"), []byte("cabcabc"), uint64(1))
	f.Add([]byte("say "+key+" twice: "+key+key), []byte(key), []byte("say secret"), uint64(2))
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaab"), []byte("aaaaaaaab"), []byte("aaaaaaa"), uint64(3))
	f.Add([]byte(base64.StdEncoding.EncodeToString([]byte("--"+key))), []byte(key), []byte("LS1zay"), uint64(4))
	f.Fuzz(func(t *testing.T, text, one, two []byte, seed uint64) {
		r := NewRedactor(map[string][]string{"ONE": {string(one)}, "TWO": {string(two)}})
		if r == nil {
			return
		}
		random := rand.New(rand.NewPCG(seed, 0))
		want := r.Bytes(text)
		if plain := slow(r, text); !bytes.Equal(want, plain) {
			t.Fatalf("%q became %q, and by a plain search %q", text, want, plain)
		}
		var got []byte
		told, behind := 0, 0
		s := stream{r: r}
		for rest := text; len(rest) > 0; {
			n := 1 + random.IntN(min(len(rest), 1+random.IntN(40)))
			base := told - len(s.held)
			s.write(bytes.Clone(rest[:n]), func(data []byte, end int, marker bool) {
				if !marker && !bytes.Equal(data, text[base+end-len(data):base+end]) {
					t.Errorf("%q is not what ends at %d", data, base+end)
				}
				got, behind = append(got, data...), base+end
			})
			told, rest = told+n, rest[n:]
			if len(s.held) >= r.longest || behind+len(s.held) != told {
				t.Fatalf("%d bytes are held, of %d, after %d", len(s.held), told, behind)
			}
		}
		s.release(func(data []byte, _ int, _ bool) { got = append(got, data...) })
		if !bytes.Equal(got, want) {
			t.Errorf("%q became %q as a whole and %q in pieces", text, want, got)
		}
	})
}

// slow finds needles one by one.
func slow(r *Redactor, b []byte) (out []byte) {
next:
	for len(b) > 0 {
		for _, n := range slices.Backward(r.begins[b[0]]) { // of those with which b begins, the longest is the last
			if rest, found := bytes.CutPrefix(b, n.text); found {
				out, b = append(out, n.marker...), rest
				continue next
			}
		}
		out, b = append(out, b[0]), b[1:]
	}
	return out
}

// TestManyNeedlesWithOneBeginning: the time that a text takes does not grow with the number of lines of a secret. A program
// chooses its output, and the owner of a secret its lines.
func TestManyNeedlesWithOneBeginning(t *testing.T) {
	t.Parallel()
	const lines = 8000
	var begin, end strings.Builder
	for i := range lines {
		fmt.Fprintf(&begin, "AAAAAAAAAAAAAAAA%05d\n", i)
		fmt.Fprintf(&end, "%05dAAAAAAAAAAAAAAAA\n", i)
	}
	text := bytes.Repeat([]byte("A"), 256<<10)
	for name, value := range map[string]string{"beginning": begin.String(), "end": end.String()} {
		r := NewRedactor(map[string][]string{"LINES": {value}, "SHORT": {"zzzzzz"}})
		began := time.Now()
		r.Bytes(text)
		r.joined(text, len(text)/2)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("lines with one %s: %d KiB took %v", name, len(text)>>10, took)
		}
	}
}

// BenchmarkNothingMatches measures the cost of searching output without secrets. For comparison, it measures a copy,
// and a plain search for one form after the other.
func BenchmarkNothingMatches(b *testing.B) {
	text := logText(1 << 20)
	for _, secrets := range []int{0, 1, 10, 100} {
		values := map[string][]string{}
		for i := range secrets {
			values[fmt.Sprint("S", i)] = []string{fmt.Sprintf("ghp_%036x", rand.Uint64())}
		}
		r := NewRedactor(values)
		b.Run(fmt.Sprint(secrets, " secrets"), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if len(r.Bytes(text)) != len(text) {
					b.Fatal("found one")
				}
			}
		})
	}
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		into := make([]byte, len(text))
		for b.Loop() {
			copy(into, text)
		}
	})
	r := NewRedactor(map[string][]string{"S": {"ghp_abcdefghijklmnopqrstuvwxyz0123456789"}})
	b.Run("1 secret by Index", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			for _, list := range r.begins {
				for _, n := range list {
					if bytes.Contains(text, n.text) {
						b.Fatal("found one")
					}
				}
			}
		}
	})
}

// logText is what programs print.
func logText(size int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "2026-11-21T11:37:%02d INFO request id=%x path=/v1/items/%d status=200 took=%dms\n", i%60, random.Uint64(), i, random.IntN(900))
	}
	return b.Bytes()[:size]
}

// TestJSON: a secret in JSON is replaced however it is escaped, in keys, and also if it is as long as what replaces it.
func TestJSON(t *testing.T) {
	t.Parallel()
	r := NewRedactor(map[string][]string{"TOKEN": {"0123456789abcdef"}, "N": {"987654321"}, "KEY": {`{"type":"account"}`}})
	for text, want := range map[string]string{
		`"0123456789abcdef"`:                         `"[redacted:TOKEN]"`,
		`{"0123456789abcde\u0066":[-1e9,true,null]}`: `{"[redacted:TOKEN]":[-1e9,true,null]}`,
		`["\"0123456789abcdef",987654321,"\\"]`:      `["\"[redacted:TOKEN]","[redacted:N]","\\"]`,
		`["\n", 1.50]`:                               `["\n", 1.50]`,
		``:                                           ``,
		`[1,{"type":"account"}]`:                     `"[1,[redacted:KEY]]"`,
		`[{"type":"account"},"0123456789abcdef"]`:    `"[[redacted:KEY],\"[redacted:TOKEN]\"]"`,
		`"0123456789abcdef`:                          `"[redacted:TOKEN]`,
	} {
		if got := string(r.json(json.RawMessage(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestJSONThatExplodes: code in a sandbox chooses the JSON, which would take fifty times its memory if it were decoded
// as a whole.
func TestJSONThatExplodes(t *testing.T) {
	r := NewRedactor(map[string][]string{"TOKEN": {"0123456789abcdef"}})
	text := json.RawMessage(`["\n` + `"` + strings.Repeat(`,{}`, 1<<20) + `]`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := r.json(text)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 || len(got) != len(text) {
		t.Errorf("%d MiB for %d MiB, and then %d", used>>20, len(text)>>20, len(got)>>20)
	}
}

// TestCut: a text is cut outside of secrets, and not at all if that depends on text that is still to come.
func TestCut(t *testing.T) {
	t.Parallel()
	r := NewRedactor(map[string][]string{"KEY": {"correct-horse-battery"}})
	for _, c := range []struct {
		text string
		most int
		want int
	}{
		{"plain text without", 10, 10},
		{"xxxxxcorrect-horse-battery", 10, 5},
		{"xxxxxcorrect-horse", 10, 5},
		{"correct-horse-batteryxxx", 10, 21},
		{"correct-horse", 10, 0},
		{"correct-horse-bat", 30, 0},
		{"correct-horse-battery correct-horse-battery", 30, 22},
		{"xxxxxxxxxxcorrect-horse-battery", 10, 10},
	} {
		if got := r.Cut([]byte(c.text), c.most); got != c.want {
			t.Errorf("%q at %d: %d, want %d", c.text, c.most, got, c.want)
		}
	}
	if got := (*Redactor)(nil).Cut([]byte("correct-horse-battery"), 10); got != 10 {
		t.Errorf("without secrets: %d", got)
	}
}
