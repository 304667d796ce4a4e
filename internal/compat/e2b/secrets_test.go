package e2b

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"hutch"
	"hutch/internal/secret"
)

// withVault is a server that keeps secrets.
func withVault(t *testing.T) (scene, *secret.Vault) {
	t.Helper()
	s := open(t)
	dir := t.TempDir()
	key, err := secret.LoadKey(filepath.Join(dir, "secrets.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	v, err := secret.Open(filepath.Join(dir, "secrets.age"), key, map[string]string{"ANTHROPIC_API_KEY": "of-the-server"})
	if err != nil {
		t.Fatal(err)
	}
	s.opt.Secrets = v
	return s, v
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	s, v := withVault(t)
	made := s.want(201, "POST", "/secrets", `{"name":"OpenAI-Key","value":"sk-0a1b2c3d","metadata":{"team":"billing"}}`)
	id, _ := made["secretID"].(string)
	if made["name"] != "openai-key" || id != "sec_OPENAI_KEY" || made["currentVersion"] != 1.0 || fmt.Sprint(made["metadata"]) != "map[team:billing]" || made["createdAt"] == "" {
		t.Errorf("%+v", made)
	}
	if value, err := v.Value("", "OPENAI_KEY"); value != "sk-0a1b2c3d" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
	for _, name := range []string{id, "openai-key", "OPENAI-KEY"} {
		if got := s.want(200, "GET", "/secrets/"+name, ""); got["secretID"] != id {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := s.want(200, "POST", "/secrets/openai-key", `{"value":"sk-4e5f6a7b"}`); got["currentVersion"] != 2.0 || fmt.Sprint(got["metadata"]) != "map[team:billing]" || got["name"] != "openai-key" {
		t.Errorf("updated: %+v", got)
	}
	if got := s.want(200, "POST", "/secrets/"+id, `{"value":"sk-4e5f6a7b","metadata":{}}`); fmt.Sprint(got["metadata"]) != "map[]" || got["name"] != "openai-key" {
		t.Errorf("without metadata: %+v", got)
	}

	// Of several creates at once, one makes the secret.
	var created atomic.Int32
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if s.ask("POST", "/secrets", `{"name":"race","value":"sk-4e5f6a7b"}`).Code == 201 {
				created.Add(1)
			}
		})
	}
	group.Wait()
	if got := s.want(200, "GET", "/secrets/race", ""); created.Load() != 1 || got["currentVersion"] != 1.0 {
		t.Errorf("%d of 16 creates at once succeeded: %+v", created.Load(), got)
	}
	s.want(204, "DELETE", "/secrets/race", "")

	s.want(409, "POST", "/secrets", `{"name":"openai-key","value":"another"}`)
	s.want(409, "POST", "/secrets", `{"name":"openai_key","value":"another"}`) // the same name in Hutch
	for _, bad := range []string{"", "-a", "a b", "a/b", "sec_a", "ä", strings.Repeat("a", 64)} {
		s.want(400, "POST", "/secrets", fmt.Sprintf(`{"name":%q,"value":"another"}`, bad))
	}
	s.want(400, "POST", "/secrets", `{"name":"empty","value":""}`)
	s.want(400, "POST", "/secrets", `{"name":"a","value":"another","metadata":{"e2b.name":"b"}}`)
	s.want(400, "POST", "/secrets/openai-key", `{"value":"another","metadata":{"e2b.name":"b"}}`)
	s.want(501, "POST", "/secrets", `{"name":"a","value":"another","expires":1}`)
	for _, method := range []string{"GET", "DELETE"} {
		s.want(404, method, "/secrets/nothing", "")
	}
	s.want(404, "POST", "/secrets/nothing", `{"value":"another"}`)

	// Secrets that clients of Hutch have made are listed, too. A new value does not change their hosts.
	brokered := hutch.Brokering{Hosts: []string{"api.example.com"}}
	if _, err := v.SetSecret(t.Context(), "Own_Key", hutch.SecretRequest{Value: "abcdefgh", Brokered: &brokered}); err != nil {
		t.Fatal(err)
	}
	s.want(200, "POST", "/secrets/own_key", `{"value":"hgfedcba"}`)
	if list := v.Brokered("", []string{"Own_Key"}); len(list) != 1 || list[0].Value != "hgfedcba" {
		t.Errorf("it is brokered no more: %+v", list)
	}
	s.want(201, "POST", "/secrets", `{"name":"2nd","value":"another"}`)
	var names []string
	for next := "?limit=1"; next != ""; {
		got := s.ask("GET", "/secrets"+next, "")
		names = append(names, got.Body.String())
		if strings.Contains(got.Body.String(), "sk-") || strings.Contains(got.Body.String(), "hgfed") {
			t.Errorf("the list shows a value: %s", got.Body)
		}
		if next = got.Header().Get("X-Next-Token"); next != "" {
			next = "?limit=1&nextToken=" + next
		}
	}
	if got := strings.Join(names, ""); len(names) != 3 || !strings.Contains(got, `"openai-key"`) || !strings.Contains(got, `"own_key"`) || !strings.Contains(got, `"2nd"`) || strings.Contains(got, "anthropic") {
		t.Errorf("the pages are %s", got)
	}
	s.want(204, "DELETE", "/secrets/openai-key", "")
	s.want(404, "DELETE", "/secrets/"+id, "")
}

func last[T any](list []T) T { return list[len(list)-1] }

// References to secrets become Hutch's references. So do references to secrets of other clients, and to secrets that do
// not exist yet.
func TestReferencesToSecrets(t *testing.T) {
	t.Parallel()
	s, v := withVault(t)
	s.want(201, "POST", "/secrets", `{"name":"openai-key","value":"sk-0a1b2c3d"}`)
	if _, err := v.SetSecret(t.Context(), "own_Key", hutch.SecretRequest{Value: "abcdefgh"}); err != nil {
		t.Fatal(err)
	}
	body := func(value string) string {
		return fmt.Sprintf(`{"templateID":"base","network":{"rules":{"api.example.com":[{"transform":{"headers":{"Authorization":%q}}}]}}}`, value)
	}
	for value, want := range map[string]string{
		"Bearer ${e2b.secrets.openai-key}":                 "Bearer ${secrets.OPENAI_KEY}",
		"${e2b.secrets.OWN_KEY}:${e2b.secrets.openai-key}": "${secrets.own_Key}:${secrets.OPENAI_KEY}",
		"${e2b.secrets.not-yet}":                           "${secrets.NOT_YET}",
		"plain":                                            "plain",
	} {
		s.want(201, "POST", "/v2/sandboxes", body(value))
		if got := last(s.svc.Created()).Network.Headers[0].Headers["Authorization"]; string(got) != want {
			t.Errorf("%s becomes %s, not %s", value, string(got), want)
		}
	}
	for value, status := range map[string]int{"${e2b.identity.tokens.aws}": 501, "${e2b.secrets.a${e2b.other}}": 501, "${e2b.secrets.}": 400, "${e2b.secrets.a b}": 400, "${e2b.secrets.open": 501} {
		s.want(status, "POST", "/v2/sandboxes", body(value))
	}
}
