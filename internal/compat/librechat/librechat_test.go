package librechat_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"hutch"
	"hutch/internal/compat/librechat"
	"hutch/internal/fakeservice"
	"hutch/internal/guard"
	"hutch/internal/hutchtest/fakeengine"
	"hutch/internal/hutchtest/tokens"
)

const (
	token  = "a-token-of-hutch"
	secret = "the secret that LibreChat signs with"
)

// bench is a server with a guard, as the daemon has it, that accepts an API key and the tokens of users.
type bench struct {
	*httptest.Server
	t *testing.T
}

func serve(t *testing.T, svc hutch.Service, opt librechat.Options) *bench {
	t.Helper()
	h := librechat.NewHandler(svc, opt)
	v, err := librechat.NewVerifier(librechat.VerifierOptions{Key: secret})
	if err != nil {
		t.Fatal(err)
	}
	guarded := guard.New(h, guard.Options{Check: tokens.Only(token), Unbounded: librechat.Uploads, Open: librechat.Open, Shape: func(*http.Request) guard.Refusal { return librechat.Refuse }})
	srv := httptest.NewServer(librechat.Front(guarded, v, token))
	t.Cleanup(func() {
		h.Close()
		srv.Close()
	})
	return &bench{srv, t}
}

// client is a LibreChat for one user.
type client struct {
	*bench
	header, value string
	query         string // of downloads
}

// key returns a client like an older LibreChat, which has an API key.
func (b *bench) key() *client { return &client{b, "X-API-Key", token, ""} }

// user is a newer LibreChat, which signs a token for each user.
func (b *bench) user(tenant, user string) *client {
	return &client{b, "Authorization", "Bearer " + b.sign(secret, claims(tenant, user)), "?kind=user&id=" + user}
}

func claims(tenant, user string) map[string]any {
	now := time.Now().Unix()
	return map[string]any{
		"iss": "librechat", "aud": "codeapi", "sub": user, "tenant_id": tenant, "iat": now, "nbf": now, "exp": now + 120, "jti": "j", "principal_source": "librechat_jwt",
		"auth_context_hash": "h",
	}
}

func (b *bench) sign(key any, c map[string]any) string {
	b.t.Helper()
	alg := jose.HS256
	switch k := key.(type) {
	case string:
		key = []byte(k)
	case ed25519.PrivateKey:
		alg = jose.EdDSA
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", "one"))
	if err != nil {
		b.t.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(c).Serialize()
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

func (c *client) do(method, path, contentType string, body io.Reader) (int, http.Header, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.URL+"/librechat/v1/"+path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set(c.header, c.value)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(got)
}

type fields = map[string]any

// result is what both generations of clients read of an execution.
type result struct {
	Session string `json:"session_id"`
	Stdout  string
	Stderr  string
	Code    *int
	Status  *string
	Signal  *string
	Run     struct {
		Stdout, Stderr, Output string
		Code                   *int
	}
	Files []struct {
		ID, Name  string
		Storage   string `json:"storage_session_id"`
		Inherited bool
		From      *struct {
			ID      string
			Storage string `json:"storage_session_id"`
		} `json:"modified_from"`
	}
	Deleted []string `json:"deleted_files"`
}

func (r result) names() string {
	var list []string
	for _, f := range r.Files {
		name := f.Name
		if f.Inherited {
			name += " inherited"
		}
		if f.From != nil {
			name += " modified"
		}
		list = append(list, name)
	}
	return strings.Join(list, ", ")
}

func (c *client) exec(req fields) result {
	c.t.Helper()
	body, err := json.Marshal(req)
	if err != nil {
		c.t.Fatal(err)
	}
	status, _, text := c.do("POST", "exec", "application/json", bytes.NewReader(body))
	var r result
	if err := json.Unmarshal([]byte(text), &r); err != nil || status != http.StatusOK || len(r.Session) != 21 || r.Stdout != r.Run.Stdout {
		c.t.Fatalf("%v: %d %.500s", req, status, text)
	}
	return r
}

// form is an upload: pairs of names of fields and values, then pairs of names of files and contents.
func form(values []string, files ...string) (contentType string, body io.Reader) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(values); i += 2 {
		w.WriteField(values[i], values[i+1])
	}
	for i := 0; i < len(files); i += 2 {
		p, _ := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf(`form-data; name="file"; filename="%s"`, files[i])}, "Content-Type": {"text/plain"}})
		io.WriteString(p, files[i+1])
	}
	w.Close()
	return w.FormDataContentType(), &b
}

type uploads struct {
	Message string
	Session string `json:"session_id"`
	Storage string `json:"storage_session_id"`
	Files   []struct{ FileID, Filename, Status, Error string }
}

func (c *client) upload(path string, values []string, files ...string) uploads {
	c.t.Helper()
	contentType, body := form(values, files...)
	status, _, text := c.do("POST", path, contentType, body)
	var u uploads
	if err := json.Unmarshal([]byte(text), &u); err != nil || status != http.StatusOK || u.Session != u.Storage || len(u.Storage) != 21 {
		c.t.Fatalf("%s: %d %s", path, status, text)
	}
	return u
}

// TestOlder: files are uploaded, used, listed, downloaded and deleted with an API key, which LibreChat sent until 2026.
func TestOlder(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	c := serve(t, svc, librechat.Options{}).key()
	u := c.upload("upload", []string{"entity_id", "agent_1"}, "data/in.csv", "1,2\n")
	r := c.exec(fields{
		"lang": "py", "code": "import sys\nprint(open('data/in.csv').read(), sys.argv[1:])\nopen('out.txt', 'w').write('of py')", "args": []string{"x y"},
		"LIBRECHAT_CODE_API_KEY": "ignored", "user_id": "u", "files": []fields{{"id": u.Files[0].FileID, "session_id": u.Session, "name": "data/in.csv", "entity_id": "agent_1"}},
	})
	if r.Stdout != "1,2\n ['x y']\n" || r.Stderr != "" || *r.Code != 0 || r.names() != "out.txt" || len(r.Files[0].ID) != 21 {
		t.Fatalf("%+v", r)
	}
	at := r.Session + "/" + r.Files[0].ID
	if status, head, text := c.do("GET", "download/"+at, "", nil); status != http.StatusOK || text != "of py" || !strings.Contains(head.Get("Content-Disposition"), "out.txt") || head.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("download: %d %v %s", status, head, text)
	}
	_, _, text := c.do("GET", "files/"+u.Session+"?detail=summary&entity_id=agent_1", "", nil)
	var list []struct{ Name, LastModified string }
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 1 || !strings.HasPrefix(list[0].Name, u.Session+"/"+u.Files[0].FileID) {
		t.Errorf("the files of the upload: %s", text)
	} else if when, err := time.Parse(time.RFC3339Nano, list[0].LastModified); err != nil || time.Since(when) > time.Hour {
		t.Errorf("last modified: %s", list[0].LastModified)
	}
	for detail, want := range map[string]string{"": `["` + at + `.txt"]`, "full": `"original-filename":"out.txt"`, "normalized": `"name":"out.txt"`} {
		if _, _, text := c.do("GET", "files/"+r.Session+"?detail="+detail, "", nil); !strings.Contains(text, want) {
			t.Errorf("detail %q: %s", detail, text)
		}
	}
	if status, _, text := c.do("DELETE", "files/"+at, "", nil); status != http.StatusOK {
		t.Errorf("delete: %d %s", status, text)
	}
	for _, path := range []string{"download/" + at, "sessions/" + r.Session + "/objects/" + r.Files[0].ID, "files/AAAAAAAAAAAAAAAAAAAAA", "files/" + u.Session} {
		if status, _, text := c.do("GET", path, "", nil); status != http.StatusNotFound || !strings.HasPrefix(text, `{"error":"`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// TestNewer: the same with the token of a user, which LibreChat sends now, and with batches, read-only files and
// lineage.
func TestNewer(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	c := serve(t, svc, librechat.Options{}).user("acme", "ada")
	u := c.upload("upload/batch", []string{"kind", "user", "id", "ada"}, "same.txt", "same", "change.txt", "old", "../evil.txt", "x")
	if u.Message != "partial_success" || len(u.Files) != 3 || u.Files[2].Status != "error" || !strings.Contains(u.Files[2].Error, "cannot be used") {
		t.Fatalf("%+v", u)
	}
	skill := c.upload("upload", []string{"kind", "skill", "id", "pptx", "version", "3", "read_only", "true"}, "pptx/editing.md", "how")
	ref := func(u uploads, i int, kind, id string, more ...any) fields {
		f := fields{"id": u.Files[i].FileID, "storage_session_id": u.Storage, "name": u.Files[i].Filename, "kind": kind, "resource_id": id}
		for i := 0; i < len(more); i += 2 {
			f[more[i].(string)] = more[i+1]
		}
		return f
	}
	files := []fields{ref(u, 0, "user", "ada"), ref(u, 1, "user", "ada"), ref(skill, 0, "skill", "pptx", "version", 3)}
	r := c.exec(fields{"lang": "bash", "code": "cat pptx/editing.md; sleep 0.01; echo new > change.txt; mkdir -p a/b; echo deep > a/b/c.txt; mkdir __pycache__; echo x > __pycache__/x", "files": files})
	for _, want := range []string{"same.txt inherited", "change.txt modified", "a/b/c.txt", "pptx/editing.md inherited"} {
		if !strings.Contains(", "+r.names()+",", ", "+want+",") {
			t.Errorf("%s is not among %s", want, r.names())
		}
	}
	if r.Stdout != "how" || len(r.Files) != 4 {
		t.Errorf("%+v", r)
	}
	for _, f := range r.Files {
		if f.Name == "a/b/c.txt" {
			if _, _, text := c.do("GET", "download/"+f.Storage+"/"+f.ID+c.query, "", nil); text != "deep\n" {
				t.Errorf("download: %s", text)
			}
		}
	}
	if _, _, text := c.do("GET", "sessions/"+skill.Storage+"/objects/"+skill.Files[0].FileID+"?kind=skill&id=pptx&version=3", "", nil); !strings.Contains(text, `"readOnly":true`) || !strings.Contains(text, `"originalFilename":"pptx/editing.md"`) {
		t.Errorf("metadata: %s", text)
	}
	if status, _, text := c.do("GET", "sessions/"+skill.Storage+"/objects/"+skill.Files[0].FileID+"?kind=skill&id=pptx&version=4", "", nil); status != http.StatusNotFound {
		t.Errorf("another version: %d %s", status, text)
	}
	if r.Deleted != nil {
		t.Errorf("deleted: %v", r.Deleted)
	}
	if r := c.exec(fields{"lang": "bash", "code": "rm same.txt; mv change.txt moved.txt; touch mine; rm mine", "files": files}); strings.Join(r.Deleted, " ") != "same.txt change.txt" || !strings.Contains(r.names(), "moved.txt") {
		t.Errorf("after files were deleted: %v, %s", r.Deleted, r.names())
	}
	if r := c.exec(fields{"lang": "py", "code": "open('left.txt', 'w'); raise SystemExit(3)"}); *r.Code != 3 || len(r.Files) != 0 {
		t.Errorf("a failed execution: %+v", r)
	}
}

// TestRuntimeSession: executions with the same hint share a sandbox, of one user only.
func TestRuntimeSession(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, librechat.Options{})
	ada, bob := b.user("acme", "ada"), b.user("acme", "bob")
	ada.exec(fields{"lang": "bash", "code": "echo kept > file", "runtime_session_hint": "conversation-1"})
	if r := ada.exec(fields{"lang": "bash", "code": "cat file", "runtime_session_hint": "conversation-1"}); r.Stdout != "kept\n" {
		t.Errorf("the second execution: %+v", r)
	}
	for _, content := range []string{"one", "two"} { // of the same size
		u := ada.upload("upload", []string{"kind", "user"}, "same.txt", content)
		in := fields{"id": u.Files[0].FileID, "storage_session_id": u.Storage, "name": "same.txt", "kind": "user"}
		if r := ada.exec(fields{"lang": "bash", "code": "cat same.txt", "runtime_session_hint": "conversation-1", "files": []fields{in}}); r.Stdout != content {
			t.Errorf("the file %q: %+v", content, r)
		}
	}
	for _, c := range []*client{bob, b.user("other", "ada"), b.key()} {
		if r := c.exec(fields{"lang": "bash", "code": "cat file", "runtime_session_hint": "conversation-1"}); r.Stdout != "" {
			t.Errorf("another user: %+v", r)
		}
	}
	if r := ada.exec(fields{"lang": "bash", "code": "cat file", "runtime_session_hint": "conversation-2"}); r.Stdout != "" {
		t.Errorf("another conversation: %+v", r)
	}
	list, err := svc.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list {
		if sb.ExpiresAt == nil || time.Until(*sb.ExpiresAt) > 8*24*time.Hour {
			t.Errorf("%s ends at %v", sb.ID, sb.ExpiresAt)
		}
	}
}

// TestUsersAreApart: no user reaches a file of another user or tenant by its ids. All users of a tenant share its
// skills.
func TestUsersAreApart(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, librechat.Options{})
	ada := b.user("acme", "ada")
	mine := ada.upload("upload", []string{"kind", "user", "id", "ada"}, "secret.txt", "of ada")
	shared := ada.upload("upload", []string{"kind", "skill", "id", "s", "version", "1"}, "skill.txt", "of acme")
	at := mine.Storage + "/" + mine.Files[0].FileID
	for name, c := range map[string]*client{"bob": b.user("acme", "bob"), "another tenant's ada": b.user("other", "ada"), "an API key": b.key(), "a user whose name holds both": b.user("", "acme ada")} {
		for _, query := range []string{"?kind=user&id=ada", "", "?entity_id=ada", "?kind=agent&id=ada"} {
			for _, route := range []string{"GET download/" + at, "GET files/" + mine.Storage, "GET sessions/" + mine.Storage + "/objects/" + mine.Files[0].FileID, "DELETE files/" + at} {
				method, path, _ := strings.Cut(route, " ")
				if status, _, text := c.do(method, path+query, "", nil); status != http.StatusNotFound || strings.Contains(text, "of ada") {
					t.Errorf("%s: %s%s: %d %s", name, route, query, status, text)
				}
			}
		}
		body, _ := json.Marshal(fields{"lang": "bash", "code": "cat secret.txt", "files": []fields{{"id": mine.Files[0].FileID, "storage_session_id": mine.Storage, "name": "secret.txt", "kind": "user", "resource_id": "ada"}}})
		if status, _, text := c.do("POST", "exec", "application/json", bytes.NewReader(body)); status != http.StatusNotFound || strings.Contains(text, "of ada") {
			t.Errorf("%s: exec: %d %s", name, status, text)
		}
		want := map[string]int{"bob": http.StatusOK}[name]
		status, _, _ := c.do("GET", "download/"+shared.Storage+"/"+shared.Files[0].FileID+"?kind=skill&id=s&version=1", "", nil)
		if (status == http.StatusOK) != (want == http.StatusOK) {
			t.Errorf("%s: the skill of acme: %d", name, status)
		}
	}
	if status, _, text := ada.do("GET", "download/"+at+ada.query, "", nil); status != http.StatusOK || text != "of ada" {
		t.Errorf("ada's file is now %d %s", status, text)
	}
}

// TestTokens: tokens of another issuer, audience, key or time, and tokens without a signature, are refused.
func TestTokens(t *testing.T) {
	t.Parallel()
	b := serve(t, &fakeservice.Service{}, librechat.Options{})
	_, other, _ := ed25519.GenerateKey(nil)
	with := func(change func(map[string]any)) string {
		c := claims("acme", "ada")
		change(c)
		return b.sign(secret, c)
	}
	now := time.Now().Unix()
	good := with(func(map[string]any) {})
	parts := strings.Split(good, ".")
	for name, tok := range map[string]string{
		"another issuer": with(func(c map[string]any) { c["iss"] = "evil" }), "no issuer": with(func(c map[string]any) { delete(c, "iss") }),
		"another audience": with(func(c map[string]any) { c["aud"] = "other" }), "expired": with(func(c map[string]any) { c["exp"], c["iat"] = now-60, now-120 }),
		"not yet": with(func(c map[string]any) { c["nbf"] = now + 600 }), "issued later": with(func(c map[string]any) { c["iat"], c["exp"] = now+100, now+200 }),
		"too long": with(func(c map[string]any) { c["exp"] = now + 3600 }), "no end": with(func(c map[string]any) { delete(c, "exp") }), "no user": with(func(c map[string]any) { delete(c, "sub") }),
		"another secret": b.sign("another secret, which is as long as that", claims("acme", "ada")), "another algorithm": b.sign(other, claims("acme", "ada")),
		"no signature": parts[0] + "." + parts[1] + ".", "no algorithm": "eyJhbGciOiJub25lIn0." + parts[1] + ".", "half": parts[0] + "." + parts[1], "long": good + strings.Repeat("A", 20<<10),
	} {
		c := &client{b, "Authorization", "Bearer " + tok, ""}
		if status, _, text := c.do("POST", "exec", "application/json", strings.NewReader(`{"lang":"bash","code":"true"}`)); status != http.StatusUnauthorized || !strings.HasPrefix(text, `{"error":"`) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	c := &client{b, "Authorization", "Bearer " + good, ""}
	if status, _, text := c.do("POST", "exec", "application/json", strings.NewReader(`{"lang":"bash","code":"true"}`)); status != http.StatusNotImplemented && status != http.StatusOK {
		t.Errorf("a good token: %d %s", status, text)
	}
	c.header, c.value = "X-API-Key", "nonsense"
	if status, _, text := c.do("POST", "exec", "application/json", strings.NewReader(`{}`)); status != http.StatusUnauthorized {
		t.Errorf("a wrong key: %d %s", status, text)
	}
	if resp, err := http.Get(b.URL + "/librechat/v1/health"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("health: %v", err)
	}
}

// TestRefused: bad input is refused before any sandbox is created.
func TestRefused(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	c := serve(t, svc, librechat.Options{}).key()
	id := strings.Repeat("A", 21)
	ref := func(change string, v any) string {
		f := fields{"id": id, "session_id": id, "name": "a.txt"}
		f[change] = v
		b, _ := json.Marshal(fields{"lang": "py", "code": "x", "files": []fields{f}})
		return string(b)
	}
	for name, body := range map[string]string{
		"no code": `{"lang":"py"}`, "no JSON": `{`, "wrong types": `{"lang":"py","code":7}`, "up": ref("name", "../x"), "absolute": ref("name", "/etc/x"), "backslash": ref("name", `a\b`), "dot": ref("name", "a/./b"),
		"deep": ref("name", strings.Repeat("a/", 20)+"b"), "long": ref("name", strings.Repeat("a", 300)), "an id": ref("id", "../../etc/passwd"), "a session": ref("session_id", "x"), "a kind": ref("kind", "root"),
		"a version": ref("version", 3), "10 MB": `{"lang":"py","code":"` + strings.Repeat("x", 10<<20) + `"}`, "code over 1 MiB": `{"lang":"py","code":"` + strings.Repeat("x", 2<<20) + `"}`,
		"a hint": `{"lang":"py","code":"x","runtime_session_hint":"a/b"}`, "args": `{"lang":"py","code":"x","args":[` + strings.Repeat(`"",`, 200) + `""]}`,
	} {
		status, _, text := c.do("POST", "exec", "application/json", strings.NewReader(body))
		if status != 400 && status != 413 || !strings.HasPrefix(text, `{"error":"`) || len(text) > 2000 {
			t.Errorf("%s: %d %.300s", name, status, text)
		}
	}
	for name, f := range map[string][2]string{"a kind": {"kind", "root"}, "no version": {"kind", "skill"}, "no id": {"kind", "agent"}} {
		contentType, body := form([]string{f[0], f[1]}, "a.txt", "x")
		if status, _, text := c.do("POST", "upload", contentType, body); status != 400 {
			t.Errorf("upload, %s: %d %s", name, status, text)
		}
	}
	for name, body := range map[string]string{"timeout": `{"lang":"py","code":"x","timeout":5}`, "files[0].mode": ref("mode", "0755")} {
		if status, _, text := c.do("POST", "exec", "application/json", strings.NewReader(body)); status != 400 || !strings.Contains(text, name) {
			t.Errorf("the unknown field %s: %d %s", name, status, text)
		}
	}
	if status, _, text := c.do("GET", "files/"+id+"?detail=most", "", nil); status != 400 || !strings.Contains(text, "detail") {
		t.Errorf("an unknown detail: %d %s", status, text)
	}
	contentType, body := form([]string{"expires", "1h"}, "a.txt", "x")
	if status, _, text := c.do("POST", "upload", contentType, body); status != 400 || !strings.Contains(text, "expires") {
		t.Errorf("upload with an unknown field: %d %s", status, text)
	}
	contentType, body = form(nil)
	for _, up := range [][2]any{{contentType, body}, {"application/json", strings.NewReader("{}")}, {"multipart/form-data; boundary=B", strings.NewReader("--B\r\nbroken")}} {
		if status, _, text := c.do("POST", "upload", up[0].(string), up[1].(io.Reader)); status != 400 {
			t.Errorf("upload: %d %s", status, text)
		}
	}
	for _, path := range []string{"download/..%2f..%2fetc/passwd", "files/x", "download/" + id + "/%2e%2e"} {
		if status, _, text := c.do("GET", path, "", nil); status != 400 && status != 404 {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, _, text := c.do("POST", "exec/programmatic", "application/json", strings.NewReader("{}")); status != http.StatusNotImplemented {
		t.Errorf("programmatic: %d %s", status, text)
	}
	if n := len(svc.Created()); n > 0 {
		t.Errorf("%d sandboxes were created", n)
	}
	for name, body := range map[string]string{"what LibreChat sends": `{"lang":"none","code":"x","user_id":"u","session_id":"s","entity_id":"e"}`, "a file that came back": strings.Replace(ref("path", "p"), `"py"`, `"none"`, 1)} {
		if _, _, text := c.do("POST", "exec", "application/json", strings.NewReader(body)); strings.Contains(text, "does not have") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestLargeUploads: names in an upload take no memory after they have been read, and the answer is short. An upload
// with too many files is refused.
func TestLargeUploads(t *testing.T) {
	t.Parallel()
	c := serve(t, fakeengine.Start(t), librechat.Options{}).key()
	long := strings.Repeat("x", 1<<20)
	contentType, body := form([]string{"kind", "user"}, long, "1", long, "2", "a.txt", "3")
	status, _, text := c.do("POST", "upload/batch", contentType, body)
	if status != http.StatusOK || len(text) > 4<<10 || !strings.Contains(text, `"succeeded":1`) {
		t.Errorf("%d, %d bytes: %.300s", status, len(text), text)
	}
	many := []string{}
	for i := range 201 {
		many = append(many, fmt.Sprint(i), "x")
	}
	contentType, body = form(nil, many...)
	if status, _, text := c.do("POST", "upload", contentType, body); status != 400 || !strings.Contains(text, "at most 200") {
		t.Errorf("upload of 201 files: %d %.300s", status, text)
	}
}

// TestEnds: the answers for a program that never ends, or writes too much or too many files, and for an unknown
// language.
func TestEnds(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	short, c := serve(t, svc, librechat.Options{Timeout: time.Second}).key(), serve(t, svc, librechat.Options{}).key()
	if r := short.exec(fields{"lang": "bash", "code": "sleep 60"}); r.Code != nil || *r.Status != "TO" || !strings.Contains(r.Stderr, "Time limit exceeded") {
		t.Errorf("%+v", r)
	}
	if r := c.exec(fields{"lang": "bash", "code": "yes"}); r.Code != nil || *r.Status != "OL" {
		t.Errorf("%.300v", r)
	}
	if r := c.exec(fields{"lang": "bash", "code": "for i in {100..220}; do echo > f$i; done; truncate -s 160M huge.bin"}); len(r.Files) != 100 || !strings.Contains(r.Stderr, "huge.bin is not returned") {
		t.Errorf("%d files: %.500s", len(r.Files), r.Stderr)
	}
	if r := c.exec(fields{"lang": "bash", "code": `for i in {1..200}; do echo > "$i"'\\'; done`}); len(r.Files) != 0 || strings.Count(r.Stderr, "is not returned") != 50 || !strings.Contains(r.Stderr, "and 150 more are not returned") {
		t.Errorf("%d files with names that cannot be used: %.500s", len(r.Files), r.Stderr)
	}
	if status, _, text := c.do("POST", "exec", "application/json", strings.NewReader(`{"lang":"cobol","code":"x"}`)); status != 400 || !strings.Contains(text, "cobol") {
		t.Errorf("%d %s", status, text)
	}
	list, err := svc.Sandboxes(context.Background(), hutch.Filter{})
	if err != nil || len(list) != 1 {
		t.Errorf("%d sandboxes are left in addition to the store: %v", len(list)-1, err)
	}
}
