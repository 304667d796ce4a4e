package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"hutch"
	"hutch/client"
	"hutch/internal/datadir"
	"hutch/internal/driver/fake"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/pgtest"
)

// installation returns the configurations of servers that share a database and a key.
func installation(t *testing.T, url string) func() Config {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return func() Config {
		cfg := config(t, fake.New(t.TempDir()))
		cfg.Store, cfg.Secrets.Key = url, key.String()
		return cfg
	}
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is never so that %s", what)
		}
	}
}

func as(d *Daemon, token hutch.MintedToken) *client.Client { return client.New(d.URL(), token.Secret) }

// A token that is made on one server works on the other, and revoking it on one server ends it on both.
func TestServersOfOneDatabase(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), installation(t, pgtest.New(t))
	a, atA, endA := start(t, server())
	b, atB, _ := start(t, server())
	minted, err := atA.CreateToken(ctx, hutch.TokenRequest{Name: "ci", Limits: hutch.TokenLimits{Sandboxes: 3, Requests: -1, Operations: 7}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := atB.CreateToken(ctx, hutch.TokenRequest{Name: "ci"}); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("the name is given twice: %v", err)
	}
	ofA, ofB := as(a, minted), as(b, minted)
	eventually(t, "the token works on the other server", func() bool { _, err := ofB.Secrets(ctx); return err == nil })

	// Limits hold over both servers together.
	made := 0
	for i, c := range []*client.Client{ofA, ofB, ofA, ofB, ofA} {
		switch _, err := c.Create(ctx, hutch.CreateRequest{ID: fmt.Sprint("box-", i)}); {
		case err == nil:
			made++
		case hutch.KindOf(err) != hutch.Exhausted:
			t.Fatal(err)
		}
	}
	if made != 3 {
		t.Errorf("%d sandboxes were made, and the limit is 3", made)
	}
	if _, err := ofB.Create(ctx, hutch.CreateRequest{ID: "box-0"}); err == nil {
		t.Error("an id is there twice")
	}
	refused := 0
	for range 4 {
		for _, c := range []*client.Client{ofA, ofB} {
			if _, err := c.Sandboxes(ctx, hutch.Filter{}); hutch.KindOf(err) == hutch.Exhausted {
				refused++
			}
		}
	}
	if refused < 7 { // creates used 5 or 6 of the 7
		t.Errorf("%d of 8 calls over the limit of operations were refused", refused)
	}

	// Both servers have the same secrets and the same authority.
	if _, err := atA.SetSecret(ctx, "KEY", hutch.SecretRequest{Value: "very-secret-value"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other server knows the secret", func() bool { v, _ := b.vault.Value("", "KEY"); return v == "very-secret-value" })
	if !bytes.Equal(a.authority.Certificate(), b.authority.Certificate()) {
		t.Error("the servers have an authority each")
	}

	// A browser that signs in on one server is signed in on both, and signing out ends that on both.
	person := signIn(t, a.URL(), minted.Secret)
	eventually(t, "a browser is signed in on the other server", func() bool { return person.session(t, "GET", b.URL()) == http.StatusOK })
	if status := person.session(t, "DELETE", b.URL()); status != http.StatusNoContent {
		t.Errorf("sign out on the other server: %d", status)
	}
	eventually(t, "it is signed out here", func() bool { return person.session(t, "GET", a.URL()) == http.StatusUnauthorized })

	if _, err := atB.RevokeToken(ctx, "ci"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a token that the other server revoked stops", func() bool { _, err := ofA.Secrets(ctx); return hutch.KindOf(err) == hutch.Denied })

	// A server finds its own sandboxes again, and no others.
	endA()
	cfg := a.cfg
	a, _, _ = start(t, cfg)
	list, err := a.engine.Sandboxes(ctx, hutch.Filter{})
	if err != nil || len(list) != 2 {
		t.Errorf("after a restart there are %v, %v", list, err)
	}
}

// browser is a signed-in browser.
type browser struct {
	cookie *http.Cookie
	csrf   string
}

// signIn signs a browser in with a token.
func signIn(t *testing.T, url, token string) browser {
	t.Helper()
	res, err := http.Post(url+"/console/session", "application/json", strings.NewReader(`{"token":"`+token+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var page struct {
		CSRF string `json:"csrf"`
	}
	if err := json.NewDecoder(res.Body).Decode(&page); err != nil || len(res.Cookies()) == 0 || page.CSRF == "" {
		t.Fatalf("sign in: %s, %v", res.Status, err)
	}
	return browser{res.Cookies()[0], page.CSRF}
}

// session asks for the session of a browser, or ends it.
func (b browser) session(t *testing.T, method, url string) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url+"/console/session", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(b.cookie)
	req.Header.Set("X-Hutch-CSRF", b.csrf)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// A server refuses the database of another installation, and a store other than the folder's first one.
func TestForeignStores(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	ours, theirs := installation(t, url), installation(t, url)
	fails := func(what string, cfg Config, kind hutch.Kind, next string) {
		t.Helper()
		d, err := Open(t.Context(), cfg)
		if err == nil {
			d.Close()
			t.Fatalf("%s: it opens", what)
		}
		if e := hutch.AsError(err); e.Kind != kind || !strings.Contains(err.Error(), next) {
			t.Errorf("%s: it says %v", what, err)
		}
	}
	cfg := ours()
	_, _, end := start(t, cfg)
	end()
	fails("another key", theirs(), hutch.Denied, "--secret-key")
	local := cfg
	local.Store = ""
	fails("no --store", local, hutch.Conflict, "--store")
	elsewhere := cfg
	elsewhere.Store = pgtest.New(t)
	fails("an empty database", elsewhere, hutch.Conflict, "--store")
	file := config(t, fake.New(t.TempDir()))
	_, _, end = start(t, file)
	end()
	file.Store, file.Secrets.Key = url, cfg.Secrets.Key
	fails("a folder with a store of its own", file, hutch.Conflict, "hutch store move")
	start(t, cfg)
}

func TestMoveStore(t *testing.T) {
	t.Parallel()
	ctx, cfg := t.Context(), config(t, fake.New(t.TempDir()))
	d, svc, end := start(t, cfg)
	output(t, svc, "echo kept > file")
	minted, err := svc.CreateToken(ctx, hutch.TokenRequest{Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.SetSecret(ctx, "KEY", hutch.SecretRequest{Value: "very-secret-value"}); err != nil {
		t.Fatal(err)
	}
	if _, err := as(d, minted).Create(ctx, hutch.CreateRequest{ID: "gone"}); err != nil {
		t.Fatal(err)
	}
	if _, err := as(d, minted).Destroy(ctx, "gone", true); err != nil {
		t.Fatal(err)
	}
	certificate, dir, url := d.authority.Certificate(), d.dir, pgtest.New(t)
	if _, err := MoveStore(ctx, dir, url, cfg.Secrets); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("while the server runs: %v", err)
	}
	end()
	if _, err := MoveStore(ctx, dir, anotherDatabase(t), cfg.Secrets); hutch.KindOf(err) == "" {
		t.Error("it moves into another installation")
	}
	if _, shares, err := datadir.ReadMembership(dir); shares || err != nil {
		t.Fatalf("a move that failed leaves a mark, %v", err)
	}
	moved, err := MoveStore(ctx, dir, url, cfg.Secrets)
	if err != nil || moved.Sandboxes != 1 || moved.Owners != 1 {
		t.Fatalf("moved %+v, %v", moved, err)
	}
	// As if the move had been killed: first before the folder named the database, then before the old file was renamed.
	file := datadir.Database(dir)
	for _, undo := range []string{filepath.Join(dir, "store.json"), ""} {
		if err := os.Rename(file+".moved", file); err != nil {
			t.Fatal(err)
		}
		if undo != "" {
			os.Remove(undo)
		}
		again, err := MoveStore(ctx, dir, url, cfg.Secrets)
		if again.Moved != moved.Moved || err != nil {
			t.Fatalf("repeated: %+v, %v", again, err)
		}
	}
	if _, err := MoveStore(ctx, dir, url, cfg.Secrets); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("when all is moved: %v", err)
	}

	cfg.Store = url
	d, svc, end = start(t, cfg)
	if got := output(t, svc, "cat file"); got != "kept\n" {
		t.Errorf("the file is %q", got)
	}
	if _, err := as(d, minted).Secrets(ctx); err != nil {
		t.Errorf("the token: %v", err)
	}
	if v, err := d.vault.Value("", "KEY"); v != "very-secret-value" {
		t.Errorf("the secret is %q, %v", v, err)
	}
	if !bytes.Equal(d.authority.Certificate(), certificate) {
		t.Error("the authority is another")
	}
	end()
	// Another folder with the key is another server of the installation.
	key, err := os.ReadFile(filepath.Join(dir, datadir.SecretsKey))
	if err != nil {
		t.Fatal(err)
	}
	other := config(t, fake.New(t.TempDir()))
	other.Store, other.Secrets.Key = url, string(key)
	_, svc, _ = start(t, other)
	if list, err := svc.Sandboxes(ctx, hutch.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("another server sees %v, %v", list, err)
	}
}

// anotherDatabase returns the URL of another installation's database.
func anotherDatabase(t *testing.T) string {
	t.Helper()
	url := pgtest.New(t)
	_, _, end := start(t, installation(t, url)())
	end()
	return url
}

// A server that loses its database reports that, still does what needs no database, and recovers when the database is
// back.
func TestServerWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	ctx, link := t.Context(), pgtest.NewLink(t, pgtest.New(t))
	cfg := installation(t, strings.Replace(link.URL, "hutch@", "hutch:pass-word-1@", 1))()
	var log hutchtest.Buffer
	cfg.Log = Log{To: &log, Level: slog.LevelDebug}
	d, svc, _ := start(t, cfg)
	output(t, svc, "true")
	link.Cut()
	if r, err := svc.Exec(ctx, "same", hutch.ExecRequest{Command: "echo works"}, nil); err != nil || string(r.Stdout) != "works\n" {
		t.Errorf("a sandbox that is there: %q, %v", r.Stdout, err)
	}
	_, err := svc.Create(ctx, hutch.CreateRequest{ID: "lost"})
	if hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "try again") {
		t.Errorf("a new one: %v", err)
	}
	if strings.Contains(fmt.Sprint(err), "pass-word-1") {
		t.Errorf("it says the password: %v", err)
	}
	eventually(t, "it is not ready", func() bool { return d.store.Ready(ctx) != nil })
	link.Heal()
	eventually(t, "it works again", func() bool { _, err := svc.Create(ctx, hutch.CreateRequest{ID: "found"}); return err == nil })
	eventually(t, "it is ready", func() bool { return d.store.Ready(ctx) == nil })
	if list, err := svc.Sandboxes(ctx, hutch.Filter{}); err != nil || len(list) != 2 {
		t.Errorf("there are %v, %v", list, err)
	}
	eventually(t, "what was refused is not stored", func() bool { all, err := d.store.All(ctx); return err == nil && len(all) == 2 })
	if strings.Contains(log.String(), "pass-word-1") {
		t.Error("the log has the password")
	}
}
