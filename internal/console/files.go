package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/rand"
	"embed"
	"fmt"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed all:dist
var built embed.FS

const (
	// assets is the folder of the files whose names have a hash of their content.
	assets = "/assets/"
	// nonceMark is the placeholder in the page that each answer replaces with its nonce.
	nonceMark = "__CSP_NONCE__"
)

// files are the built page.
type files struct {
	index  []byte
	byPath map[string]*file
}

// file is one file of the console.
type file struct {
	kind   string // its Content-Type
	plain  []byte
	packed func() []byte // compressed with gzip; nil if that is not smaller
}

// load reads the built page; nil means the page in the program.
func load(from fs.FS) (*files, error) {
	if from == nil {
		from, _ = fs.Sub(built, "dist") // cannot fail: the compiler has embedded the folder
	}
	f := &files{byPath: map[string]*file{}}
	err := fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(from, name)
		if name == "index.html" {
			f.index = content
		} else {
			f.byPath["/"+name] = newFile(name, content)
		}
		return err
	})
	if err == nil && f.index == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("read the console: %w", err)
	}
	return f, nil
}

// kinds are the types of files by file name extension. The machine's own tables are not used, because they can differ.
var kinds = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon",
	".woff2": "font/woff2", ".json": "application/json", ".webmanifest": "application/manifest+json", ".txt": "text/plain; charset=utf-8", ".map": "application/json",
}

func newFile(name string, content []byte) *file {
	ext := path.Ext(name)
	return &file{
		kind: cmp.Or(kinds[ext], mime.TypeByExtension(ext), "application/octet-stream"), plain: content,
		packed: sync.OnceValue(func() []byte { return pack(content) }),
	}
}

// pack compresses content, or returns nil if the result is not smaller.
func pack(content []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	z.Write(content) // a buffer accepts everything
	z.Close()
	if b.Len() >= len(content) {
		return nil
	}
	return b.Bytes()
}

// has reports whether the console answers at a path: with a file, or with its error for a missing file.
func (f *files) has(path string) bool {
	return f.byPath[path] != nil || strings.HasPrefix(path, assets)
}

func (f *files) serve(w http.ResponseWriter, r *http.Request) {
	found := f.byPath[r.URL.Path]
	if found == nil {
		missing(w, r.URL.Path)
		return
	}
	h := w.Header()
	harden(h)
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox") // applies when a file is opened directly
	h.Set("Content-Type", found.kind)
	h.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(r.URL.Path, assets) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	send(w, r, found.plain, found.packed)
}

// send writes content, compressed if the client accepts that.
func send(w http.ResponseWriter, r *http.Request, plain []byte, packed func() []byte) {
	h := w.Header()
	h.Add("Vary", "Accept-Encoding")
	body := plain
	if takesGzip(r) {
		if small := packed(); small != nil {
			body = small
			h.Set("Content-Encoding", "gzip")
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		w.Write(body) // an error means that the client has disconnected
	}
}

// takesGzip reports whether a client accepts gzip. A weight of 0 means that it does not.
func takesGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";q=")
		if strings.EqualFold(name, "gzip") {
			return strings.Trim(cmp.Or(weight, "1"), "0.") != ""
		}
	}
	return false
}

// page answers with the page, which contains the nonce of this answer.
func (h *Handler) page(w http.ResponseWriter, r *http.Request) {
	nonce := rand.Text()
	content := bytes.ReplaceAll(h.files.index, []byte(nonceMark), []byte(nonce))
	head := w.Header()
	harden(head)
	head.Set("Content-Security-Policy", policyOf(r.Host, nonce, h.opt.Previews))
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Cache-Control", "no-cache")
	head.Add("Vary", "Accept")
	send(w, r, content, func() []byte { return pack(content) })
}

// harden sets the headers that every file of the console has.
func harden(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// policyOf returns the Content-Security-Policy of the page.
//
// Scripts come from /assets/ only, and not from the whole origin: the origin also shows previews by path, and files
// that programs in sandboxes have written. A policy cannot name IP addresses other than 127.0.0.1, so for a server that
// is called by another address, the page allows its whole origin.
func policyOf(host, nonce, previews string) string {
	scripts, sockets := "'self'", ""
	if isSource(host) {
		scripts, sockets = host+assets, " ws://"+host+" wss://"+host
	}
	return "default-src 'none'; script-src " + scripts + "; style-src 'self' 'nonce-" + nonce + "'; img-src 'self' data: blob:; font-src 'self'" +
		"; connect-src 'self'" + sockets + "; frame-src blob: " + previews + "; manifest-src 'self'" +
		"; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
}

// isSource reports whether a host is safe as a source in a policy. It is checked because the client chose it.
func isSource(host string) bool {
	name, _, _ := strings.Cut(host, ":")
	if net.ParseIP(name) != nil && name != "127.0.0.1" {
		return false
	}
	return host != "" && !strings.ContainsFunc(host, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == ':')
	})
}
