package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"strings"
	"testing"

	"hutch"
	"hutch/client"
)

// TestRegistriesOfTokens: a token uses only its registries, by whatever call, and its record lists them.
func TestRegistriesOfTokens(t *testing.T) {
	b := newBed(t, "native")
	with := func(name string, registries ...string) *client.Client {
		t.Helper()
		made, err := b.CreateToken(t.Context(), hutch.TokenRequest{Name: name, Registries: registries})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.Token(t.Context(), name); err != nil || strings.Join(got.Registries, " ") != strings.Join(registries, " ") {
			t.Errorf("the token %s has the registries %q, %v", name, got.Registries, err)
		}
		c := client.New(b.URL, made.Secret)
		t.Cleanup(c.Close)
		return c
	}
	var dockerfile bytes.Buffer
	if err := tar.NewWriter(&dockerfile).Close(); err != nil {
		t.Fatal(err)
	}
	ann, eve := with("ann", "*.example.com", "docker.io"), with("eve", "ghcr.io")
	if _, err := ann.PullImage(t.Context(), hutch.PullRequest{Image: "hello:1"}, nil); err != nil {
		t.Errorf("an allowed registry: %v", err)
	}
	for what, call := range map[string]func() error{
		"a pull": func() error {
			_, err := eve.PullImage(t.Context(), hutch.PullRequest{Image: "hello:1"}, nil)
			return err
		},
		"a create": func() error {
			_, err := eve.Create(t.Context(), hutch.CreateRequest{Image: "hello:1"})
			return err
		},
		"a template": func() error {
			_, err := eve.CreateTemplate(t.Context(), hutch.TemplateRequest{Name: "t", Image: "hello:1"})
			return err
		},
		"a build": func() error {
			_, err := eve.BuildImage(t.Context(), hutch.BuildRequest{Dockerfile: "FROM hello:1\nLABEL a=b\n"}, bytes.NewReader(dockerfile.Bytes()), nil)
			return err
		},
		"a push": func() error {
			return ann.PushImage(t.Context(), hutch.PushRequest{Image: "hello:1", To: "ghcr.io/a/b:1"}, nil)
		},
	} {
		if err := call(); !errors.Is(err, hutch.Denied) || !strings.Contains(err.Error(), "is not allowed here") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, bad := range []hutch.TokenRequest{
		{Name: "a", Registries: []string{"https://ghcr.io"}}, {Name: "a", Registries: []string{"*"}}, {Name: "a", Registries: []string{""}}, {Name: "a", Registries: []string{"ghcr.io/owner"}},
		{Name: "a", Registries: []string{"ghcr.io"}, Scopes: []hutch.Scope{hutch.ScopeAdmin}}, {Name: "a", Registries: make([]string, hutch.MaxRegistries+1)},
	} {
		if err := bad.Check(); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%.80q: %v", bad.Registries, err)
		}
	}
}
