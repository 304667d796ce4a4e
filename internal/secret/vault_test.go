package secret_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/secret"
)

const value = "ghp_0a1b2c3d4e5f6g7h8i9j"

// safe is the folder of a vault.
type safe struct{ dir string }

func (s safe) path() string    { return filepath.Join(s.dir, "secrets.age") }
func (s safe) keyPath() string { return filepath.Join(s.dir, "secrets.key") }

func (s safe) open(t *testing.T, given map[string]string) *secret.Vault {
	t.Helper()
	key, err := secret.LoadKey(s.keyPath(), s.path())
	if err != nil {
		t.Fatal(err)
	}
	v, err := secret.Open(s.path(), key, given)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func owner(id string) context.Context {
	return caller.WithOwner(context.Background(), caller.Owner{ID: id})
}

func set(t *testing.T, v *secret.Vault, ctx context.Context, name, value string) {
	t.Helper()
	if _, err := v.SetSecret(ctx, name, hutch.SecretRequest{Value: value}); err != nil {
		t.Fatal(err)
	}
}

func TestSecretsAreKeptEncrypted(t *testing.T) {
	t.Parallel()
	s := safe{t.TempDir()}
	set(t, s.open(t, nil), owner("ann"), "TOKEN", value)
	v := s.open(t, nil)
	if got, err := v.Value("ann", "TOKEN"); got != value || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	files, err := os.ReadDir(s.dir)
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(s.dir, f.Name()))
		if err != nil || bytes.Contains(b, []byte(value)) || bytes.Contains(b, []byte("TOKEN")) {
			t.Errorf("%s tells of the secret: %v", f.Name(), err)
		}
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v: %v", f.Name(), info.Mode(), err)
		}
	}
}

func TestWithoutItsKeyAVaultStaysShut(t *testing.T) {
	t.Parallel()
	s := safe{t.TempDir()}
	set(t, s.open(t, nil), owner(""), "TOKEN", value)
	if err := os.Remove(s.keyPath()); err != nil {
		t.Fatal(err)
	}
	if _, err := secret.LoadKey(s.keyPath(), s.path()); !errors.Is(err, hutch.Invalid) {
		t.Errorf("the key is gone: %v", err)
	}
	other, err := secret.LoadKey(filepath.Join(s.dir, "other"), filepath.Join(s.dir, "none"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := secret.Open(s.path(), other, nil); !errors.Is(err, hutch.Invalid) {
		t.Errorf("another key: %v", err)
	}
	if _, err := secret.ParseKey("AGE-SECRET-KEY-1WRONG"); !errors.Is(err, hutch.Invalid) || strings.Contains(err.Error(), "WRONG") {
		t.Errorf("a key that is none: %v", err)
	}
}

func TestOwnersHaveTheirOwn(t *testing.T) {
	t.Parallel()
	v := safe{t.TempDir()}.open(t, map[string]string{"SHARED": "of the server", "TOKEN": "token of the server"})
	set(t, v, owner("ann"), "TOKEN", "token of ann")
	set(t, v, owner("ann"), "MINE", "only ann's")
	for _, want := range []struct{ owner, name, value string }{
		{"ann", "TOKEN", "token of ann"}, {"bob", "TOKEN", "token of the server"}, {"bob", "SHARED", "of the server"}, {"bob", "MINE", ""},
	} {
		if got, err := v.Value(want.owner, want.name); got != want.value || (err != nil) != (want.value == "") {
			t.Errorf("%s of %s is %q, %v", want.name, want.owner, got, err)
		}
	}
	if _, err := v.Value("bob", "MINE"); !errors.Is(err, hutch.NotFound) || !strings.Contains(err.Error(), "SHARED") {
		t.Error(err)
	}
	var names []string
	list, err := v.Secrets(owner("bob"))
	for _, s := range list {
		names = append(names, fmt.Sprint(s.Name, s.Shared))
	}
	if want := []string{"SHARED true", "TOKEN true"}; err != nil || !reflect.DeepEqual(strings.Join(names, ","), strings.ReplaceAll(strings.Join(want, ","), " ", "")) {
		t.Error(names, err)
	}
	const text = "only ann's, of the server"
	for who, want := range map[string]string{"ann": "[redacted:MINE], [redacted:SHARED]", "bob": "only ann's, [redacted:SHARED]", "": "[redacted:MINE], [redacted:SHARED]"} {
		if got := v.Redactor(owner(who)).String(text); got != want {
			t.Errorf("%q reads %q", who, got)
		}
	}
	for name, kind := range map[string]hutch.Kind{"SHARED": hutch.Denied, "MINE": hutch.NotFound} {
		if err := v.DeleteSecret(owner("bob"), name); !errors.Is(err, kind) {
			t.Errorf("bob deletes %s: %v", name, err)
		}
	}
}

// TestOldValuesAreStillReplaced: running programs keep the old values.
func TestOldValuesAreStillReplaced(t *testing.T) {
	t.Parallel()
	s := safe{t.TempDir()}
	v, ctx := s.open(t, nil), owner("ann")
	set(t, v, ctx, "TOKEN", "the first value")
	set(t, v, ctx, "TOKEN", "the second value")
	if err := v.DeleteSecret(ctx, "TOKEN"); err != nil {
		t.Fatal(err)
	}
	for _, v := range []*secret.Vault{v, s.open(t, nil)} {
		if got := v.Redactor(ctx).String("the first value, the second value"); got != "[redacted:TOKEN], [redacted:TOKEN]" {
			t.Error(got)
		}
		if _, err := v.Value("ann", "TOKEN"); !errors.Is(err, hutch.NotFound) {
			t.Error(err)
		}
		if list, err := v.Secrets(ctx); err != nil || len(list) != 0 {
			t.Error(list, err)
		}
	}
}

func TestWhatCannotBeASecret(t *testing.T) {
	t.Parallel()
	v := safe{t.TempDir()}.open(t, nil)
	for name, value := range map[string]string{"": "xxxxxx", "1A": "xxxxxx", "A-B": "xxxxxx", "A\n": "xxxxxx", "EMPTY": "", "NUL": "a\x00b", "LONG": strings.Repeat("x", hutch.MaxSecret+1)} {
		if _, err := v.SetSecret(owner("a"), name, hutch.SecretRequest{Value: value}); !errors.Is(err, hutch.Invalid) || len(err.Error()) > 300 {
			t.Errorf("%q: %v", name, err)
		}
	}
	if made, err := v.SetSecret(owner("a"), "SHORT", hutch.SecretRequest{Value: "12345"}); err != nil || made.Redacted {
		t.Error(made, err)
	}
	var err error
	for i := 0; err == nil && i < 100; i++ {
		_, err = v.SetSecret(owner("a"), fmt.Sprint("S", i), hutch.SecretRequest{Value: strings.Repeat("x", hutch.MaxSecret)})
	}
	if !errors.Is(err, hutch.Exhausted) {
		t.Errorf("no end of secrets: %v", err)
	}
	if _, err := secret.Given(nil).SetSecret(owner("a"), "A", hutch.SecretRequest{Value: "xxxxxx"}); !errors.Is(err, hutch.Unsupported) {
		t.Error(err)
	}
}

func TestParallelCallers(t *testing.T) {
	t.Parallel()
	s := safe{t.TempDir()}
	v := s.open(t, nil)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			ctx, name := owner(fmt.Sprint(i%4)), fmt.Sprint("S", i)
			if _, err := v.SetSecret(ctx, name, hutch.SecretRequest{Value: value + name}); err != nil {
				t.Error(err)
			}
			if got := v.Redactor(ctx).String(value + name); got != "[redacted:"+name+"]" {
				t.Error(got)
			}
		})
	}
	wg.Wait()
	for i := range 64 {
		if _, err := s.open(t, nil).Value(fmt.Sprint(i%4), fmt.Sprint("S", i)); err != nil {
			t.Error(err)
		}
	}
}

// TestKilledWhileItSaves: whenever the process is killed, the vault opens, with everything that was confirmed.
func TestKilledWhileItSaves(t *testing.T) {
	if dir := os.Getenv("HUTCH_TEST_VAULT"); dir != "" {
		v := safe{dir}.open(t, nil)
		for i := 0; ; i++ {
			set(t, v, owner("a"), "COUNT", fmt.Sprintf("number %08d", i))
			fmt.Printf("\n%08d\n", i)
		}
	}
	t.Parallel()
	s := safe{t.TempDir()}
	for range 5 {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledWhileItSaves$")
		cmd.Env = append(os.Environ(), "HUTCH_TEST_VAULT="+s.dir)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		var last string
		for range 3 {
			fmt.Fscan(out, &last)
		}
		cmd.Process.Kill()
		cmd.Wait()
		got, err := s.open(t, nil).Value("a", "COUNT")
		if err != nil || got < "number "+last {
			t.Fatalf("%q was confirmed, and %q is there: %v", last, got, err)
		}
	}
}

// TestChangesDelayNoOtherOwner: a change of an owner's secrets takes long if they have many lines, but calls of other
// owners do not wait for it.
func TestChangesDelayNoOtherOwner(t *testing.T) {
	t.Parallel()
	v := safe{t.TempDir()}.open(t, nil)
	var lines strings.Builder
	for i := 0; lines.Len() < hutch.MaxSecret-32; i++ {
		fmt.Fprintf(&lines, "%06d <a line of a secret>\n", i)
	}
	for i := range 4 {
		if _, err := v.SetSecret(owner("eve"), fmt.Sprint("LINES", i), hutch.SecretRequest{Value: fmt.Sprint(i, lines.String())}); err != nil {
			t.Fatal(err)
		}
	}
	least := 1.0
	for i := range 3 {
		began, done := time.Now(), make(chan error, 1)
		go func() {
			_, err := v.SetSecret(owner("eve"), "ONE", hutch.SecretRequest{Value: fmt.Sprint("another value ", i)})
			done <- err
		}()
		longest := time.Duration(0)
		for ended := false; !ended; {
			asked := time.Now()
			v.Redactor(owner("ada"))
			longest = max(longest, time.Since(asked))
			select {
			case err := <-done:
				if ended = true; err != nil {
					t.Fatal(err)
				}
			case <-time.After(time.Millisecond):
			}
		}
		least = min(least, longest.Seconds()/time.Since(began).Seconds())
	}
	if least > 0.5 {
		t.Errorf("another owner waits for %.0f %% of the change, at least", 100*least)
	}
}

// The record of a secret counts its values, and keeps its labels until others replace them.
func TestRecordOfASecret(t *testing.T) {
	t.Parallel()
	s := safe{t.TempDir()}
	v, ctx := s.open(t, nil), owner("ann")
	labels := map[string]string{"team": "billing"}
	first, err := v.SetSecret(ctx, "TOKEN", hutch.SecretRequest{Value: value, Labels: labels})
	if err != nil || first.Version != 1 || !reflect.DeepEqual(first.Labels, labels) || first.CreatedAt == nil || !first.CreatedAt.Equal(*first.UpdatedAt) {
		t.Fatalf("%+v, %v", first, err)
	}
	v = s.open(t, nil)
	second, err := v.SetSecret(ctx, "TOKEN", hutch.SecretRequest{Value: value + "2"})
	if err != nil || second.Version != 2 || !reflect.DeepEqual(second.Labels, labels) || !second.CreatedAt.Equal(*first.CreatedAt) || !second.UpdatedAt.After(*first.UpdatedAt) {
		t.Errorf("%+v, %v", second, err)
	}
	third, err := v.SetSecret(ctx, "TOKEN", hutch.SecretRequest{Value: value, Labels: map[string]string{}})
	if list, _ := s.open(t, nil).Secrets(ctx); err != nil || third.Version != 3 || len(third.Labels) != 0 || len(list) != 1 || list[0].Version != 3 {
		t.Errorf("%+v, %v; then %+v", third, err, list)
	}
	if err := v.DeleteSecret(ctx, "TOKEN"); err != nil {
		t.Fatal(err)
	}
	if again, err := v.SetSecret(ctx, "TOKEN", hutch.SecretRequest{Value: value}); err != nil || again.Version != 1 {
		t.Errorf("after its deletion: %+v, %v", again, err)
	}
	for _, bad := range []map[string]string{{"a": strings.Repeat("x", 2000)}, many(100)} {
		if _, err := v.SetSecret(ctx, "TOKEN", hutch.SecretRequest{Value: value, Labels: bad}); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%d labels: %v", len(bad), err)
		}
	}
	full := hutch.SecretRequest{Value: value, Labels: map[string]string{}}
	for i := range 60 {
		full.Labels[fmt.Sprint(i)] = strings.Repeat("x", 1000)
	}
	for i := range 4 {
		if _, err := v.SetSecret(ctx, fmt.Sprint("TOKEN", i), full); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := v.SetSecret(ctx, "ONE_MORE", full); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("labels do not count towards the limit: %v", err)
	}
}

func many(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprint(i)] = ""
	}
	return all
}

// A header rule can use an owner's own secrets, and those of the server that programs can have. It cannot use a
// brokered secret, because the rule could send it to another host.
func TestSecretForAHeader(t *testing.T) {
	t.Parallel()
	v := safe{t.TempDir()}.open(t, map[string]string{"GIVEN": "given-value", "GUARDED": "guarded-value"})
	if err := v.Broker("GUARDED", hutch.Brokering{Hosts: []string{"api.example.com"}}); err != nil {
		t.Fatal(err)
	}
	set(t, v, owner("ann"), "TOKEN", value)
	set(t, v, owner("ann"), "SHORT", "abc")
	set(t, v, owner("ann"), "LINES", "one line\nand another")
	set(t, v, owner("eve"), "OF_EVE", value)
	if _, err := v.SetSecret(owner("ann"), "BROKERED", hutch.SecretRequest{Value: value, Brokered: &hutch.Brokering{Hosts: []string{"api.example.com"}}}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"TOKEN": nil, "GIVEN": nil, "GUARDED": hutch.Denied, "BROKERED": hutch.Denied, "OF_EVE": hutch.NotFound, "NONE": hutch.NotFound, "SHORT": hutch.Invalid, "LINES": hutch.Invalid,
	} {
		got, err := v.ForHeader("ann", name)
		if !errors.Is(err, want) || (err == nil) != (got != "") || err != nil && (strings.Contains(err.Error(), value) || strings.Contains(err.Error(), "guarded")) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
