package volume

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/fairqueue"
	"hutch/internal/hutchtest/s3"
)

// keyOf returns the access key of the services in these tests.
func keyOf(_, name string) (string, error) {
	if name != "S3_KEY" {
		return "", hutch.Errorf(hutch.NotFound, "there is no secret %s", name)
	}
	return s3.Key, nil
}

// withBucket opens a store with the volume "data" of a bucket.
func withBucket(t *testing.T, url, host string) (*Store, string) {
	t.Helper()
	dir := t.TempDir()
	s := openWithBuckets(t, dir, host)
	if _, err := s.Create("ada", hutch.VolumeRequest{Name: "data", Quota: 1, Bucket: &hutch.VolumeBucket{URL: url, KeyID: s3.KeyID, KeySecret: "S3_KEY"}}); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func openWithBuckets(t *testing.T, dir, host string) *Store {
	t.Helper()
	s, err := Open(dir, Options{Secret: keyOf, BucketHosts: []string{host}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// objects is a bucket as its own client sees it.
type objects struct {
	*s3.Service
	prefix string
}

func (o objects) put(t *testing.T, entries ...string) {
	t.Helper()
	for _, e := range entries {
		key, text, _ := strings.Cut(e, "=")
		if _, err := o.Client.PutObject(t.Context(), "hutch", o.prefix+key, strings.NewReader(text), int64(len(text)), minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (o objects) remove(t *testing.T, key string) {
	t.Helper()
	if err := o.Client.RemoveObject(t.Context(), "hutch", o.prefix+key, minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
}

// list lists the objects, with the names of copies cut.
func (o objects) list(t *testing.T) string {
	t.Helper()
	var all []string
	for info := range o.Client.ListObjects(t.Context(), "hutch", minio.ListObjectsOptions{Prefix: o.prefix, Recursive: true}) {
		if info.Err != nil {
			t.Fatal(info.Err)
		}
		r, err := o.Client.GetObject(t.Context(), "hutch", info.Key, minio.GetObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(info.Key, o.prefix)
		if before, _, copied := strings.Cut(name, ".bucket-"); copied {
			name = before + ".bucket-X"
		}
		all = append(all, name+"="+string(text))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func syncNow(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Sync(t.Context(), "ada", "data", always); err != nil {
		t.Fatal(err)
	}
}

func wantVolume(t *testing.T, s *Store, want string) {
	t.Helper()
	got := strings.Fields(content(t, s, ""))
	slices.Sort(got)
	if text := strings.Join(got, " "); text != want {
		t.Errorf("the volume has %q, want %q", text, want)
	}
}

func wantObjects(t *testing.T, o objects, want string) {
	t.Helper()
	if got := o.list(t); got != want {
		t.Errorf("the bucket has %q, want %q", got, want)
	}
}

// TestBucket: changes of either side reach the other, and where both have changed something nothing is lost.
func TestBucket(t *testing.T) {
	service := s3.Start(t)
	t.Run("ThereAndBack", func(t *testing.T) {
		o := objects{service, "there/and/"}
		o.put(t, "a=1", "d/b=2")
		s, dir := withBucket(t, service.URL("there/and"), service.Host)
		syncNow(t, s)
		wantVolume(t, s, "a=1 d/ d/b=2")
		save(t, s, "a=new", "c=3", "l -> a", "empty/")
		if v, _ := s.Find("ada", "data"); !v.Unsynced {
			t.Error("a save is in the bucket at once")
		}
		s = openWithBuckets(t, dir, service.Host) // it is known after a restart
		if err := s.Sync(t.Context(), "ada", "data", neverFree); err != nil {
			t.Fatal(err)
		}
		wantObjects(t, o, "a=new c=3")
		if v, _ := s.Find("ada", "data"); v.Unsynced || v.BucketProblem != "" {
			t.Errorf("after a sync: %+v", v)
		}
		o.put(t, "a=newer", "e/f=4")
		o.remove(t, "c")
		syncNow(t, s)
		wantVolume(t, s, "a=newer e/ e/f=4 empty/ l->a")
		version := func() int { v, _ := s.Find("ada", "data"); return v.Version }
		before := version()
		if syncNow(t, s); version() != before {
			t.Error("a sync without changes makes a new version")
		}
	})
	t.Run("BothChanged", func(t *testing.T) {
		o := objects{service, "both/"}
		o.put(t, "both=0", "gone-here=0", "gone-there=0", "same=0")
		s, _ := withBucket(t, service.URL("both"), service.Host)
		syncNow(t, s)
		save(t, s, "both=ours", "gone-there=ours", "same=1")
		o.put(t, "both=theirs", "gone-here=theirs", "same=1", "new=theirs")
		o.remove(t, "gone-there")
		syncNow(t, s)
		wantObjects(t, o, "both.bucket-X=theirs both=ours gone-here=theirs gone-there=ours new=theirs same=1")
		if got := content(t, s, "both"); got != "both=ours" {
			t.Errorf("the volume has %q", got)
		}
		if got := content(t, s, "gone-here"); got != "gone-here=theirs" {
			t.Errorf("the volume has %q", got)
		}
	})
	t.Run("WhileWritten", func(t *testing.T) {
		o := objects{service, "busy/"}
		o.put(t, "a=1")
		s, _ := withBucket(t, service.URL("busy"), service.Host)
		syncNow(t, s)
		o.put(t, "b=2")
		if err := s.Sync(t.Context(), "ada", "data", neverFree); err != nil {
			t.Fatal(err)
		}
		wantVolume(t, s, "a=1")
		save(t, s, "a=1", "c=3") // by a sandbox that never had b
		syncNow(t, s)
		wantVolume(t, s, "a=1 b=2 c=3")
		wantObjects(t, o, "a=1 b=2 c=3")
	})
	t.Run("KeptSynced", func(t *testing.T) {
		o := objects{service, "kept/"}
		s, _ := withBucket(t, service.URL("kept"), service.Host)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.KeepSynced(ctx, 10*time.Millisecond); close(ended) }()
		save(t, s, "a=1")
		for end := time.Now().Add(20 * time.Second); o.list(t) != "a=1" && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		<-ended
		wantObjects(t, o, "a=1")
	})
	t.Run("Refused", func(t *testing.T) { testRefused(t, service) })
	t.Run("Away", func(t *testing.T) {
		o := objects{service, "away/"}
		o.put(t, "a=1")
		s, _ := withBucket(t, service.URL("away"), service.Host)
		syncNow(t, s)
		service.End()
		save(t, s, "a=2") // needs no bucket
		if err := s.Sync(t.Context(), "ada", "data", always); hutch.KindOf(err) != hutch.Unavailable {
			t.Errorf("a service that is away: %v", err)
		}
		wantVolume(t, s, "a=2")
		v, _ := s.Find("ada", "data")
		if !v.Unsynced || !strings.Contains(v.BucketProblem, "does not answer") {
			t.Errorf("it is shown as %+v", v)
		}
		if err := s.Remove(t.Context(), "ada", "data", false, always); hutch.KindOf(err) != hutch.Conflict {
			t.Errorf("removed with changes: %v", err)
		}
		if err := s.Remove(t.Context(), "ada", "data", true, always); err != nil {
			t.Errorf("by force: %v", err)
		}
	})
}

// testRefused: a volume is not made with a bucket that cannot be read, and the error says why.
func testRefused(t *testing.T, service *s3.Service) {
	s := openWithBuckets(t, t.TempDir(), service.Host)
	svc := NewService(ServiceOptions{Store: s, Uses: func(string) map[string][]hutch.VolumeUse { return nil }})
	ada := caller.WithOwner(t.Context(), caller.Owner{ID: "ada"})
	good := service.URL("x")
	for name, c := range map[string]struct {
		bucket hutch.VolumeBucket
		kind   hutch.Kind
		text   string
	}{
		"no key":         {hutch.VolumeBucket{URL: good}, hutch.Denied, "AccessDenied"},
		"wrong key id":   {hutch.VolumeBucket{URL: good, KeyID: "nobody", KeySecret: "S3_KEY"}, hutch.Denied, "refused the access key"},
		"no secret":      {hutch.VolumeBucket{URL: good, KeyID: s3.KeyID, KeySecret: "NONE"}, hutch.NotFound, "no secret"},
		"half a key":     {hutch.VolumeBucket{URL: good, KeyID: s3.KeyID}, hutch.Invalid, "two parts"},
		"no bucket":      {hutch.VolumeBucket{URL: strings.Replace(good, "hutch/", "missing/", 1), KeyID: s3.KeyID, KeySecret: "S3_KEY"}, hutch.NotFound, "no bucket"},
		"no URL":         {hutch.VolumeBucket{URL: "https://host/bucket"}, hutch.Invalid, "s3://"},
		"short name":     {hutch.VolumeBucket{URL: "s3://b?region=r"}, hutch.Invalid, "name of a bucket"},
		"password":       {hutch.VolumeBucket{URL: "s3://id:key@bucket"}, hutch.Invalid, "without the keys"},
		"loopback":       {hutch.VolumeBucket{URL: "s3://bucket?region=r&endpoint=https://127.0.0.1:1"}, hutch.Denied, "--bucket-host"},
		"metadata":       {hutch.VolumeBucket{URL: "s3://bucket?region=r&endpoint=https://169.254.169.254"}, hutch.Denied, "metadata"},
		"without TLS":    {hutch.VolumeBucket{URL: "s3://bucket?region=r&endpoint=http://93.184.216.34"}, hutch.Denied, "TLS"},
		"nobody listens": {hutch.VolumeBucket{URL: "s3://bucket?region=r&endpoint=http://" + closedPort(t)}, hutch.Denied, "TLS"},
	} {
		_, err := svc.CreateVolume(ada, hutch.VolumeRequest{Name: "data", Bucket: &c.bucket})
		if hutch.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.text) {
			t.Errorf("%s: %v, %v", name, hutch.KindOf(err), err)
		}
	}
	if list := s.List("ada"); len(list) != 0 {
		t.Errorf("made: %v", list)
	}
}

func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// page is an answer to a request for a list, with entries KEY or KEY=SIZE.
func page(more bool, entries ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<ListBucketResult><Name>hutch</Name><IsTruncated>%t</IsTruncated><NextContinuationToken>next</NextContinuationToken>`, more)
	for _, e := range entries {
		key, size, _ := strings.Cut(e, "=")
		if size == "" {
			size = "1"
		}
		fmt.Fprintf(&b, `<Contents><Key>%s</Key><Size>%s</Size><ETag>"e"</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>`, key, size)
	}
	return b.String() + `</ListBucketResult>`
}

// TestHostileBucket: whatever a service answers, the content of the volume is kept.
func TestHostileBucket(t *testing.T) {
	huge := []string{}
	for i := range 1000 {
		huge = append(huge, fmt.Sprint("k", i))
	}
	deep := []string{}
	for i := range 10 {
		deep = append(deep, fmt.Sprint(i, strings.Repeat("/a", 400)))
	}
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, s) }
	}
	pages := 0
	for name, c := range map[string]struct {
		list, object http.HandlerFunc
		kind         hutch.Kind
		text         string
	}{
		"above":       {list: text(page(false, "../x")), kind: hutch.Denied, text: "../x"},
		"absolute":    {list: text(page(false, "/etc/passwd")), kind: hutch.Denied, text: "/etc/passwd"},
		"dots inside": {list: text(page(false, "a/../../x")), kind: hutch.Denied},
		"empty part":  {list: text(page(false, "a//b")), kind: hutch.Denied},
		"long part":   {list: text(page(false, strings.Repeat("x", 300))), kind: hutch.Denied},
		"both":        {list: text(page(false, "a", "a/b")), kind: hutch.Conflict, text: "the folder of others"},
		"twice":       {list: text(page(false, "a", "a")), kind: hutch.Conflict},
		"large":       {list: text(page(false, "a=2000000")), kind: hutch.Exhausted, text: "1 MiB"},
		"too large":   {list: text(page(false, "a=9223372036854775807", "b=9223372036854775807")), kind: hutch.Exhausted},
		"negative":    {list: text(page(false, "a=-1")), kind: hutch.Unavailable},
		"endless": {list: func(w http.ResponseWriter, _ *http.Request) {
			pages++
			for i := range huge {
				huge[i] = fmt.Sprintf("p%d-%d", pages, i)
			}
			io.WriteString(w, page(true, huge...))
		}, kind: hutch.Exhausted, text: "objects"},
		"empty pages": {list: text(page(true)), kind: hutch.Unavailable, text: "without end"},
		"long answer": {list: func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "<ListBucketResult><Name>")
			for block := bytes.Repeat([]byte("x"), 1<<20); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, kind: hutch.Unavailable},
		"elements": {list: text("<ListBucketResult>" + strings.Repeat("<Contents/>", 200_000) + "</ListBucketResult>"), kind: hutch.Unavailable},
		"deep":     {list: text(page(false, deep...)), kind: hutch.Exhausted, text: "folders or"},
		"no XML":   {list: text("hello"), kind: hutch.Unavailable},
		"redirect": {list: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusTemporaryRedirect)
		}, kind: hutch.Unavailable, text: "307"},
		"short":   {list: text(page(false, "a=10")), object: text("12345"), kind: hutch.Unavailable},
		"changed": {list: text(page(false, "a=1")), object: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPreconditionFailed) }, kind: hutch.Unavailable, text: "change"},
		"hangs":   {list: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, kind: hutch.Unavailable, text: "does not answer"},
		"hangs in an object": {list: text(page(false, "a=10")), object: func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "123")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, kind: hutch.Unavailable, text: "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if w.Header().Set("ETag", `"e"`); c.object != nil && !r.URL.Query().Has("list-type") {
					w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
					c.object(w, r)
					return
				}
				c.list(w, r)
			}))
			defer srv.Close()
			host := strings.TrimPrefix(srv.URL, "http://")
			s, _ := withBucket(t, "s3://hutch?region=us-east-1&endpoint="+srv.URL, host)
			s.entries = 3000
			save(t, s, "mine=1")
			s.update(key{"ada", "data"}, record{Volume: hutch.Volume{CreatedAt: s.volumes[key{"ada", "data"}].Volume.CreatedAt}}, func(r *record) { r.Synced = r.Volume.Version })
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if strings.HasPrefix(name, "hangs") {
				ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
			}
			defer cancel()
			err := s.Sync(ctx, "ada", "data", always)
			if hutch.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.text) {
				t.Errorf("%v: %v", hutch.KindOf(err), err)
			}
			wantVolume(t, s, "mine=1")
			if v, _ := s.Find("ada", "data"); v.BucketProblem == "" {
				t.Error("the record does not say why")
			}
		})
	}
}

// TestLongETag: the length of an ETag is bounded, because the server keeps one for each file.
func TestLongETag(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPut {
			w.Header().Set("ETag", `"`+strings.Repeat("e", 5000)+`"`)
			return
		}
		io.WriteString(w, page(false))
	}))
	defer srv.Close()
	s, _ := withBucket(t, "s3://hutch?region=us-east-1&endpoint="+srv.URL, strings.TrimPrefix(srv.URL, "http://"))
	save(t, s, "a=1")
	if err := s.Sync(t.Context(), "ada", "data", always); hutch.KindOf(err) != hutch.Unavailable {
		t.Errorf("%v: %v", hutch.KindOf(err), err)
	}
	if v, _ := s.Find("ada", "data"); !v.Unsynced {
		t.Error("the volume is shown as synced")
	}
}

// TestSlowBucketsOfOthers: however many owners have buckets that do not answer, the exchange of another owner's bucket
// begins after a moment.
func TestSlowBucketsOfOthers(t *testing.T) {
	t.Parallel()
	hang, arrived := make(chan struct{}), make(chan struct{}, 10*mostSyncs)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/eve") {
			arrived <- struct{}{}
			<-hang
			w.WriteHeader(http.StatusNotFound)
			return
		}
		io.WriteString(w, page(false))
	}))
	t.Cleanup(service.Close)
	host := strings.TrimPrefix(service.URL, "http://")
	s := openWithBuckets(t, t.TempDir(), host)
	s.slots = fairqueue.New(syncsAtOnce, mostSyncs, 100*time.Millisecond)
	owned := func(owner string) {
		url := fmt.Sprintf("s3://%s/?endpoint=%s&region=r", owner, service.URL)
		if _, err := s.Create(owner, hutch.VolumeRequest{Name: "data", Quota: 1, Bucket: &hutch.VolumeBucket{URL: url, KeyID: s3.KeyID, KeySecret: "S3_KEY"}}); err != nil {
			t.Fatal(err)
		}
	}
	var others sync.WaitGroup
	for i := range mostSyncs { // as many as can exchange
		owner := fmt.Sprint("eve-", i)
		owned(owner)
		others.Go(func() { s.Sync(t.Context(), owner, "data", always) })
	}
	defer others.Wait()
	defer close(hang)
	for range mostSyncs {
		<-arrived
	}
	owned("ada")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Sync(ctx, "ada", "data", always); err != nil {
		t.Errorf("while the buckets of %d other owners do not answer: %v", mostSyncs, err)
	}
}
