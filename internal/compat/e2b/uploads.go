package e2b

import (
	"cmp"
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// Files of builds. A client asks for a URL for the files of each COPY, and uploads an archive there. The URL is signed,
// because clients send no key to it. An archive belongs to its owner and template, and is kept for some time, so that
// the next build needs no upload.

// The limits of uploads for builds.
const (
	uploadKept   = time.Hour // after the last use
	uploadLink   = time.Hour // how long a URL is valid
	maxUploads   = 4 << 30   // bytes of one owner's archives
	maxArchives  = 200       // most archives of one owner
	forUploads   = "upload"  // purpose in the signature of an upload's URL
	uploadPath   = "/templates/"
	uploadMiddle = "/files/"
)

// upload is an archive that a client has put.
type upload struct {
	owner, template, hash string
	file                  string
	size                  int64
	used                  time.Time
}

// uploads are the archives of all owners, in a folder of their own.
type uploads struct {
	dir  string
	kept time.Duration // how long an archive is kept after its last use
	most int64         // most bytes of one owner's archives

	mu    sync.Mutex
	all   []*upload
	used  map[string]int64 // bytes on disk, by owner, including uploads in progress
	timer *time.Timer      // removes old archives, while there are any
}

// newUploads empties the folder: files of an earlier server are never used again.
func newUploads(dir string) *uploads {
	u := &uploads{dir: dir, kept: uploadKept, most: maxUploads, used: map[string]int64{}}
	if dir != "" {
		u.clear()
	}
	return u
}

func (u *uploads) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dropLocked(func(*upload) bool { return true })
	left, _ := filepath.Glob(filepath.Join(u.dir, "upload-*"))
	for _, file := range left {
		os.Remove(file)
	}
}

// findLocked returns an archive, and records that it is used now.
func (u *uploads) findLocked(owner, template, hash string) (*upload, bool) {
	i := slices.IndexFunc(u.all, func(x *upload) bool { return x.owner == owner && x.template == template && x.hash == hash })
	if i < 0 {
		return nil, false
	}
	u.all[i].used = time.Now()
	return u.all[i], true
}

func (u *uploads) has(owner, template, hash string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.findLocked(owner, template, hash)
	return ok
}

// open opens an archive. It can be read to its end even if it is removed meanwhile.
func (u *uploads) open(owner, template, hash string) (io.ReadCloser, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	found, ok := u.findLocked(owner, template, hash)
	if !ok {
		return nil, hutch.Errorf(hutch.NotFound, "the files %.64q of a COPY were not uploaded, or too long ago: build again", hash)
	}
	return os.Open(found.file)
}

// put keeps an archive of a client. It replaces an archive with the same hash.
func (u *uploads) put(owner, template, hash string, body io.Reader) error {
	f, err := os.CreateTemp(u.dir, "upload-*") // mode 0600
	if err != nil {
		return err
	}
	in := &coming{Reader: body, to: u, owner: owner}
	_, err = io.Copy(f, in)
	err = errors.Join(err, f.Close())
	if errors.Is(err, syscall.ENOSPC) {
		err = hutch.Errorf(hutch.Exhausted, "the server's disk is full: remove images or sandboxes").With("limit", "disk").Because(err)
	}
	if err != nil {
		os.Remove(f.Name())
		u.give(owner, in.n)
		return cmp.Or(in.err, err)
	}
	u.add(&upload{owner, template, hash, f.Name(), in.n, time.Now()})
	return nil
}

// coming is an archive that is being uploaded. Its bytes are charged to its owner as they arrive.
type coming struct {
	io.Reader
	to    *uploads
	owner string
	n     int64
	err   error // why it ended early
}

func (c *coming) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if _, known := errors.AsType[*hutch.Error](err); known {
		c.err = err // the server or the token ends
	} else if err != nil && err != io.EOF {
		c.err = hutch.Errorf(hutch.Invalid, "the archive did not arrive whole: send it again").Because(err)
	} else if c.err = c.to.take(c.owner, int64(n)); c.err == nil {
		c.n += int64(n)
		return n, err
	}
	return 0, c.err
}

// take charges bytes to an owner, if the limit allows it.
func (u *uploads) take(owner string, n int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.used[owner]+n > u.most {
		u.dropOldLocked()
	}
	if u.used[owner]+n > u.most {
		return hutch.Errorf(hutch.Exhausted, "the files of builds are more than %d MiB together: leave out what the build does not need, or wait an hour", u.most>>20).With("limit", "uploads")
	}
	u.used[owner] += n
	return nil
}

func (u *uploads) give(owner string, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.giveLocked(owner, n)
}

func (u *uploads) giveLocked(owner string, n int64) {
	if u.used[owner] -= n; u.used[owner] == 0 {
		delete(u.used, owner)
	}
}

// expire removes old archives from time to time, until none is left.
func (u *uploads) expire() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.timer = nil
	u.dropOldLocked()
	u.watchLocked()
}

func (u *uploads) watchLocked() {
	if u.timer == nil && len(u.all) > 0 {
		u.timer = time.AfterFunc(u.kept/4, u.expire)
	}
}

func (u *uploads) dropOldLocked() {
	u.dropLocked(func(x *upload) bool { return time.Since(x.used) > u.kept })
}

func (u *uploads) add(made *upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	u.dropLocked(func(x *upload) bool {
		return x.owner == made.owner && x.template == made.template && x.hash == made.hash
	})
	u.all = append(u.all, made)
	u.watchLocked()
	for i := len(u.all) - 1; i >= 0; i-- {
		if u.all[i].owner == made.owner {
			n++
		}
		if n > maxArchives {
			oldest := u.all[i]
			u.dropLocked(func(x *upload) bool { return x == oldest })
			return
		}
	}
}

func (u *uploads) dropLocked(old func(*upload) bool) {
	u.all = slices.DeleteFunc(u.all, func(x *upload) bool {
		if !old(x) {
			return false
		}
		os.Remove(x.file)
		u.giveLocked(x.owner, x.size)
		return true
	})
}

var hashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

type uploadLinkInfo struct {
	Present bool   `json:"present"`
	URL     string `json:"url"`
}

// files answers where to upload the files of a COPY, and whether they exist already.
func (s *Server) files(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	who, err := s.builder(r.Context())
	if err != nil {
		return 0, nil, err
	}
	template, hash := r.PathValue("id"), r.PathValue("hash")
	if _, ok := s.builds.find(who.Owner, template, ""); !ok {
		return 0, nil, noTemplate(template)
	}
	if !hashForm.MatchString(hash) {
		return 0, nil, hutch.Errorf(hutch.Invalid, "%.100q is no SHA-256 in hexadecimal digits", hash).Naming(hutch.AboutField, "hash")
	}
	return http.StatusCreated, uploadLinkInfo{s.uploads.has(who.Owner, template, hash), s.uploadURL(r, who.Owner, template, hash)}, nil
}

// uploadURL returns the URL to which a client puts files: below the address at which it called.
func (s *Server) uploadURL(r *http.Request, owner, template, hash string) string {
	expires := strconv.FormatInt(time.Now().Add(uploadLink).Unix(), 10)
	u := url.URL{Scheme: "http", Host: r.Host, Path: uploadPath + template + uploadMiddle + hash}
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		u.Scheme = "https"
	}
	if _, named := s.labelOf(r.Host); !named {
		u.Path = strings.TrimSuffix(Prefix, "/") + u.Path
	}
	u.RawQuery = url.Values{"owner": {hex.EncodeToString([]byte(owner))}, "expires": {expires}, "signature": {s.uploadSignature(owner, template, hash, expires)}}.Encode()
	return u.String()
}

func (s *Server) uploadSignature(owner, template, hash, expires string) string {
	return hex.EncodeToString(s.mac(forUploads, owner, template+" "+hash+" "+expires))
}

// lookUpload finds whose upload a request is, by the signature of its URL. It returns nil for every other request.
func (s *Server) lookUpload(r *http.Request) *visit {
	rest, ok := strings.CutPrefix(r.URL.Path, uploadPath)
	template, hash, also := strings.Cut(rest, uploadMiddle)
	q := r.URL.Query()
	owner, err := hex.DecodeString(q.Get("owner"))
	if r.Method != http.MethodPut || !ok || !also || err != nil ||
		!hmac.Equal([]byte(q.Get("signature")), []byte(s.uploadSignature(string(owner), template, hash, q.Get("expires")))) {
		return nil
	}
	who := s.opt.Principal(string(owner))
	if end, err := strconv.ParseInt(q.Get("expires"), 10, 64); err != nil || time.Now().Unix() > end || who == nil {
		return nil
	}
	return &visit{control: true, upload: true, who: who}
}

// lookUploadBelow does the same as lookUpload for a path below Prefix.
func (s *Server) lookUploadBelow(r *http.Request) *visit {
	whole := r.URL
	r.URL = new(url.URL)
	*r.URL = *whole
	r.URL.Path, r.URL.RawPath = strings.TrimPrefix(whole.Path, strings.TrimSuffix(Prefix, "/")), ""
	v := s.lookUpload(r)
	if v == nil {
		r.URL = whole
	}
	return v
}

// Uploads reports whether a request puts the files of a build: its body can have any size.
func Uploads(r *http.Request) bool {
	v := visitOf(r)
	return v != nil && v.upload
}

// putFiles receives the files of a build.
func (s *Server) putFiles(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if !Uploads(r) {
		return 0, nil, hutch.Errorf(hutch.NotFound, "files of a build go to the address that the server gives for them")
	}
	owner, template := caller.From(r.Context()).Principal.Owner, r.PathValue("id")
	if _, ok := s.builds.find(owner, template, ""); !ok {
		return 0, nil, noTemplate(template)
	}
	return http.StatusOK, nil, s.uploads.put(owner, template, r.PathValue("hash"), r.Body)
}
