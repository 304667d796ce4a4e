package httpio_test

import (
	"net/http/httptest"
	"testing"

	"hutch/internal/httpio"
)

func TestParseRange(t *testing.T) {
	for header, want := range map[string][2]int64{"bytes=0-4": {0, 5}, "bytes=7-": {7, 0}, "bytes=-3": {-3, 0}, "bytes=5-5": {5, 1}} {
		if offset, length, ok := httpio.ParseRange(header); !ok || offset != want[0] || length != want[1] {
			t.Errorf("%s: %d, %d, %t", header, offset, length, ok)
		}
	}
	for _, header := range []string{"", "bytes=", "bytes=-", "bytes=-0", "bytes=--1", "bytes=5-4", "bytes=0-1,3-4", "lines=0-1", "bytes=a-", "bytes=1-b", "bytes=9223372036854775807-"} {
		if offset, length, ok := httpio.ParseRange(header); ok {
			t.Errorf("%q is %d, %d", header, offset, length)
		}
	}
}

func TestWriteContentHeader(t *testing.T) {
	for _, c := range []struct {
		part         string
		ranged       bool
		offset, size int64
		status       int
		want         string
	}{
		{"", false, 0, 9, 200, ""},
		{httpio.ContentRange(2, 5, 9), true, 2, 9, 206, "bytes 2-4/9"},
		{"", true, 9, 9, 416, "bytes */9"},
		{"", true, 9, 0, 200, ""},
	} {
		w := httptest.NewRecorder()
		if c.part != "" {
			w.Header().Set("Content-Range", c.part)
		}
		httpio.WriteContentHeader(w, c.ranged, c.offset, c.size)
		if got := w.Header().Get("Content-Range"); w.Code != c.status || got != c.want {
			t.Errorf("%+v: %d, %q", c, w.Code, got)
		}
	}
}
