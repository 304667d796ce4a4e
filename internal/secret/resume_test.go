package secret_test

import (
	"context"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/secret"
)

// kept is a resumable command that has ended, whose output is kept from a byte on.
type kept struct {
	hutch.Service // nil: no other verb is called
	text          string
	from          int
	res           hutch.ExecResult
}

func (k *kept) ResumeExec(_ context.Context, _, _ string, cursor int64, out func(hutch.Output) error) (hutch.ExecResult, error) {
	begin := max(int(cursor), k.from)
	if begin >= len(k.text) {
		return k.res, nil
	}
	o := hutch.Output{Stream: hutch.Stdout, Data: []byte(k.text[begin:]), Cursor: int64(len(k.text)), Lost: int64(begin) - cursor}
	return k.res, out(o)
}

// A reader that resumes in the middle of a secret, or where its beginning is lost, does not get its rest.
func TestResumeInTheMiddleOfASecret(t *testing.T) {
	t.Parallel()
	text := "before " + value + " after"
	rest := value[len(value)-6:] // an ending that only the secret has
	for from := range text {
		for cursor := range text {
			var got strings.Builder
			svc := redacting(&kept{text: text, from: from})
			at := int64(cursor)
			_, err := svc.ResumeExec(t.Context(), "a", "x", at, func(o hutch.Output) error {
				if o.Cursor < at {
					t.Errorf("kept from %d, resumed at %d: back to %d", from, cursor, o.Cursor)
				}
				at = o.Cursor
				got.Write(o.Data)
				return nil
			})
			if err != nil || strings.Contains(got.String(), rest) {
				t.Errorf("kept from %d, resumed at %d: %q, %v", from, cursor, got.String(), err)
			}
			if want := text[min(cursor, len(text)):]; from == 0 && cursor > 7+len(value) && got.String() != want {
				t.Errorf("resumed at %d: %q, want %q", cursor, got.String(), want)
			}
			if from == 0 && cursor == 0 && got.String() != "before "+hidden+" after" {
				t.Errorf("from the beginning: %q", got.String())
			}
		}
	}
}

// The result of a resumed command shows no part of a secret, wherever its middle is missing.
func TestResumedResult(t *testing.T) {
	t.Parallel()
	text := "before " + value + " after"
	for head := range text {
		for tail := head; tail <= len(text); tail++ {
			res := hutch.ExecResult{Stdout: []byte(text[:head] + text[tail:]), Truncated: tail > head, Cuts: [2]int{head, 0}}
			res, err := redacting(&kept{res: res}).ResumeExec(t.Context(), "a", "x", 0, nil)
			got := string(res.Stdout)
			if err != nil || strings.Contains(got, value[:12]) || strings.Contains(got, value[len(value)-12:]) {
				t.Errorf("without %d to %d: %q, %v", head, tail, got, err)
			}
		}
	}
}

// The result of a resumed command is no longer than it was before its secrets were replaced: no more memory is charged
// for it. A marker can be longer than its secret.
func TestResumedResultIsNoLonger(t *testing.T) {
	t.Parallel()
	r := secret.NewRedactor(map[string][]string{"A_NAME_THAT_IS_LONGER_THAN_ITS_VALUE": {"12345678"}})
	secrets := strings.Repeat("12345678 ", 100)
	kept := &kept{res: hutch.ExecResult{Stdout: []byte("begin " + secrets + "end"), Stderr: []byte(secrets)}}
	svc := secret.Redact(kept, func(context.Context) *secret.Redactor { return r })
	res, err := svc.ResumeExec(t.Context(), "a", "x", 0, nil)
	out := string(res.Stdout)
	if err != nil || !res.Truncated || len(out) > len(kept.res.Stdout) || len(res.Stderr) > len(kept.res.Stderr) {
		t.Errorf("%d and %d bytes of %d and %d, truncated is %v, %v", len(out), len(res.Stderr), len(kept.res.Stdout), len(kept.res.Stderr), res.Truncated, err)
	}
	if !strings.HasPrefix(out, "begin [redacted:") || !strings.HasSuffix(out, "end") || strings.Contains(out, "12345678") {
		t.Errorf("%q", out)
	}
}
