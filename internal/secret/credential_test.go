package secret_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/secret"
)

func TestBrokeredSecrets(t *testing.T) {
	t.Parallel()
	s := safe{t.TempDir()}
	v := s.open(t, map[string]string{"ANTHROPIC_API_KEY": "sk-ant-api03-of-the-server"})
	brokered := func(name, value string) (hutch.Secret, error) {
		return v.SetSecret(owner("ann"), name, hutch.SecretRequest{Value: value, Brokered: &hutch.Brokering{Hosts: []string{"API.github.com"}}})
	}
	if made, err := brokered("GITHUB_TOKEN", value); err != nil || made.Brokered == nil || made.Brokered.Hosts[0] != "api.github.com" {
		t.Fatal(made, err)
	}
	inside, err := v.Value("ann", "GITHUB_TOKEN")
	if err != nil || strings.Contains(inside, value[4:]) || !strings.HasPrefix(inside, "ghp_hutch") {
		t.Errorf("inside is %q, %v", inside, err)
	}
	list := v.Brokered("ann", []string{"GITHUB_TOKEN", "NONE", "ANTHROPIC_API_KEY", "GITHUB_TOKEN"})
	if len(list) != 1 || list[0].Value != value || list[0].Placeholder != inside {
		t.Errorf("%+v", list)
	}
	if other := v.Brokered("bob", []string{"GITHUB_TOKEN"}); len(other) > 0 {
		t.Errorf("another owner has %+v", other)
	}
	if _, err := brokered("GITHUB_TOKEN", "ghp_another-value"); err != nil {
		t.Fatal(err)
	}
	if now, _ := s.open(t, nil).Value("ann", "GITHUB_TOKEN"); now != inside {
		t.Errorf("with another value and a restart, %q became %q", inside, now)
	}
	for _, text := range []string{"x", "line\nline", "münzen"} {
		if _, err := brokered("GITHUB_TOKEN", text); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestServersOwnMayBeBrokered(t *testing.T) {
	t.Parallel()
	v := secret.Given(map[string]string{"ANTHROPIC_API_KEY": "sk-ant-api03-of-the-server"})
	if err := v.Broker("NONE", hutch.Brokering{}); !errors.Is(err, hutch.NotFound) {
		t.Error(err)
	}
	if err := v.Broker("ANTHROPIC_API_KEY", hutch.Brokering{}); err != nil {
		t.Fatal(err)
	}
	if inside, err := v.Value("ann", "ANTHROPIC_API_KEY"); err != nil || !strings.HasPrefix(inside, "sk-ant-api03-hutch") {
		t.Errorf("inside is %q, %v", inside, err)
	}
	if list := v.Brokered("ann", []string{"ANTHROPIC_API_KEY"}); len(list) != 1 || !list[0].Brokers("api.anthropic.com", 443) {
		t.Errorf("%+v", list)
	}
}

// TestMask compares with redacting the whole text at once.
func TestMask(t *testing.T) {
	t.Parallel()
	r := token()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var text bytes.Buffer
		for range rnd.IntN(20) {
			text.WriteString(value[:rnd.IntN(len(value)+1)])
			text.WriteString("g"[:rnd.IntN(2)])
		}
		want := strings.ReplaceAll(text.String(), value, strings.Repeat("*", len(value)))
		m := r.Mask(io.NopCloser(&pieces{text.Bytes(), rnd}))
		got, err := io.ReadAll(m)
		if string(got) != want || err != nil || m.Close() != nil {
			t.Fatalf("%q became %q, not %q: %v", text.String(), got, want, err)
		}
	}
}

// pieces is a reader of few bytes at a time.
type pieces struct {
	rest []byte
	rnd  *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(len(p.rest), 1+p.rnd.IntN(8))])
	p.rest = p.rest[n:]
	return n, nil
}

// TestMaskDoesNotHoldBack: harmless text that a reader waits for is passed on.
func TestMaskDoesNotHoldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		m := token().Mask(in)
		go out.Write([]byte("ok? " + value[:4]))
		got := make([]byte, 8)
		began := time.Now()
		if _, err := io.ReadFull(m, got); err != nil || string(got) != "ok? ghp_" || time.Since(began) > time.Second {
			t.Errorf("%q after %v, %v", got, time.Since(began), err)
		}
		go func() {
			out.Write([]byte(value[4:] + "."))
			out.Close()
		}()
		if rest, err := io.ReadAll(m); err != nil || string(rest) != strings.Repeat("*", len(value)-4)+"." {
			t.Errorf("%q, %v", rest, err)
		}
		m.Close()
		if _, err := m.Read(got); err == nil {
			t.Error("it is read after it was closed")
		}
	})
}

// TestMaskEnds: Close works while the source blocks.
func TestMaskEnds(t *testing.T) {
	t.Parallel()
	in, _ := io.Pipe()
	m := token().Mask(in)
	go m.Close()
	if _, err := m.Read(make([]byte, 1)); err == nil {
		t.Error("it was read")
	}
}
