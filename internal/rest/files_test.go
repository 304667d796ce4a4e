package rest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/fakeservice"
	"hutch/internal/files"
	"hutch/internal/rest"
	"hutch/internal/stream"
)

// folder is a server whose sandbox has the files of a folder.
type folder struct {
	*bench
	dir string
}

func serveFiles(t *testing.T, content map[string]string) folder {
	t.Helper()
	disk := &files.FS{Dir: t.TempDir()}
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(disk.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder{serve(t, &fakeservice.Service{OnFiles: disk}, rest.Options{}), disk.Dir}
}

func contentOf(name string) string {
	return "/v1/sandboxes/s/files/content?path=" + url.QueryEscape(name)
}

func TestRanges(t *testing.T) {
	t.Parallel()
	b := serveFiles(t, map[string]string{"f": "0123456789", "empty": ""})
	for _, c := range []struct {
		name, header, more string // more parameters
		status             int
		body, says         string
	}{
		{"f", "", "", 200, "0123456789", ""},
		{"f", "bytes=0-0", "", 206, "0", "bytes 0-0/10"},
		{"f", "bytes=2-4", "", 206, "234", "bytes 2-4/10"},
		{"f", "bytes=7-", "", 206, "789", "bytes 7-9/10"},
		{"f", "bytes=7-1000", "", 206, "789", "bytes 7-9/10"},
		{"f", "bytes=-3", "", 206, "789", "bytes 7-9/10"},
		{"f", "bytes=-1000", "", 206, "0123456789", "bytes 0-9/10"},
		{"f", "bytes=10-", "", 416, "", "bytes */10"},
		{"f", "bytes=1000-2000", "", 416, "", "bytes */10"},
		// For a range that the server does not understand or support, the answer is the whole file, as HTTP requires.
		{"f", "bytes=0-1,4-5", "", 200, "0123456789", ""},
		{"f", "bytes=4-2", "", 200, "0123456789", ""},
		{"f", "bytes=-0", "", 200, "0123456789", ""},
		{"f", "bytes=a-b", "", 200, "0123456789", ""},
		{"f", "lines=1-2", "", 200, "0123456789", ""},
		{"f", "bytes=99999999999999999999-", "", 200, "0123456789", ""},
		{"f", "bytes=2-4", "&offset=5", 200, "56789", ""}, // a parameter has priority over the header
		{"empty", "bytes=0-", "", 200, "", ""},
		{"empty", "", "", 200, "", ""},
	} {
		resp, body := b.call(t, "GET", contentOf(c.name)+c.more, "", "Range", c.header)
		if resp.StatusCode != c.status || body != c.body || resp.Header.Get("Content-Range") != c.says {
			t.Errorf("%s, %q: %d %q %q, want %d %q %q", c.name+c.more, c.header, resp.StatusCode, body, resp.Header.Get("Content-Range"), c.status, c.body, c.says)
		}
	}
	if resp, body := b.call(t, "GET", contentOf("f"), "", "Range", "bytes=2-4", "If-Range", "yesterday"); resp.StatusCode != 200 || body != "0123456789" {
		t.Errorf("a part of a file that may be another: %d %q", resp.StatusCode, body)
	}
	if resp, _ := b.call(t, "GET", contentOf("nothing"), "", "Range", "bytes=2-4"); resp.StatusCode != 404 || resp.Header.Get("Content-Range") != "" {
		t.Errorf("a part of nothing: %d", resp.StatusCode)
	}
}

func TestFileHeader(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain.txt", "line\nfeed", "ünïcödé 🙂", "\xff\xfe", `quote"`, "del\x7f"} {
		b := serveFiles(t, map[string]string{name: "0123456789"})
		for _, method := range []string{"GET", "HEAD"} {
			resp, body := b.call(t, method, contentOf(name)+"&length=3", "")
			info, err := stream.ParseFile(resp.Header.Get("Hutch-File"))
			if err != nil || info.Name != name || info.Size != 10 || info.Type != hutch.RegularFile {
				t.Errorf("%s of %q: %+v, %v", method, name, info, err)
			}
			if resp.StatusCode != 200 || resp.ContentLength != 3 || method == "GET" != (body == "012") {
				t.Errorf("%s of %q: %d, %d bytes, %q", method, name, resp.StatusCode, resp.ContentLength, body)
			}
			for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment", "Cache-Control": "no-store"} {
				if got := resp.Header.Get(header); got != want {
					t.Errorf("%s: %q, want %q", header, got, want)
				}
			}
		}
	}
	b := serveFiles(t, map[string]string{"f": "x"})
	for _, path := range []string{"/files/archive?path=.", "/files?path=.", "/files/stat?path=f"} {
		if resp, _ := b.call(t, "HEAD", "/v1/sandboxes/s"+path, ""); resp.StatusCode != 200 {
			t.Errorf("HEAD of %s: %d", path, resp.StatusCode)
		}
	}
}

// failingReader returns part of a file, and then an error.
type failingReader struct{ *files.FS }

var errHalt = errors.New("halt")

func (failingReader) ReadFile(_ context.Context, _ string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	info := hutch.FileInfo{Path: "/f", Name: "f", Type: hutch.RegularFile, Size: 1000, Mode: 0o644}
	req.Opened(info)
	io.WriteString(w, "some")
	return info, errHalt
}

func (failingReader) Pack(_ context.Context, _ string, _ hutch.PackRequest, w io.Writer) error {
	io.WriteString(w, "some")
	return errHalt
}

func (failingReader) ListFiles(_ context.Context, _ string, _ hutch.ListRequest, out func(hutch.FileInfo) error) error {
	out(hutch.FileInfo{Path: "/f", Name: "f", Type: hutch.RegularFile, Mode: 0o644})
	return hutch.Errorf(hutch.Unavailable, "halt")
}

// An answer that breaks off never looks complete.
func TestWhatBreaksOffIsBroken(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{OnFiles: failingReader{}}, rest.Options{})
	for _, path := range []string{"/content?path=f", "/content?path=f&firstLine=1", "/archive?path=d"} {
		resp, err := http.Get(b.URL + "/v1/sandboxes/s/files" + path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %d, %v", path, resp.StatusCode, err)
		}
		resp.Body.Close()
	}
	c := client.New(b.URL, "")
	defer c.Close()
	if _, err := c.ReadFile(t.Context(), "s", hutch.ReadRequest{Path: "f"}, io.Discard); !errors.Is(err, hutch.Conflict) {
		t.Errorf("%v", err)
	}
	if err := c.Pack(t.Context(), "s", hutch.PackRequest{Dir: "d"}, io.Discard); !errors.Is(err, hutch.Conflict) {
		t.Errorf("%v", err)
	}
	n := 0
	err := c.ListFiles(t.Context(), "s", hutch.ListRequest{Path: "d"}, func(hutch.FileInfo) error { n++; return nil })
	if n != 1 || !errors.Is(err, hutch.Unavailable) {
		t.Errorf("%d files, %v", n, err)
	}
}

// An upload that breaks off leaves the old file unchanged.
func TestUploadThatBreaksOff(t *testing.T) {
	t.Parallel()
	b := serveFiles(t, map[string]string{"f": "old"})
	r, w := io.Pipe()
	go func() {
		fmt.Fprint(w, strings.Repeat("new", 100_000))
		w.CloseWithError(errHalt)
	}()
	req, err := http.NewRequestWithContext(t.Context(), "PUT", b.URL+contentOf("f"), r)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := b.Client().Do(req); !errors.Is(err, errHalt) {
		t.Errorf("%v, %v", resp, err)
	}
	b.Server.Close() // waits for the call
	if got, err := os.ReadFile(filepath.Join(b.dir, "f")); string(got) != "old" || err != nil {
		t.Errorf("%.20q, %v", got, err)
	}
	if left, err := filepath.Glob(filepath.Join(b.dir, ".*")); len(left) > 0 || err != nil {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
