package hutch_test

import (
	"errors"
	"reflect"
	"testing"

	"hutch"
)

func TestBrokeredHosts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"api.example.com": "api.example.com", "API.Example.com.": "api.example.com", "api.example.com:8443": "api.example.com:8443", "a_b.example.com:443": "a_b.example.com",
	} {
		b, err := hutch.Brokering{Hosts: []string{text}}.Complete("KEY")
		if err != nil || b.Hosts[0] != want || b.As != "replace" {
			t.Errorf("%q is %+v, %v", text, b, err)
		}
	}
	for _, text := range []string{
		"", ".", "..", "a..", "localhost", "*.example.com", "10.0.0.1", "10.1", "0x7f.1", "[::1]", "::1", "api.example.com:", "api.example.com:0", "api.example.com:70000",
		"https://api.example.com", "api.example.com/x", "api.exa mple.com", "api.example.com\r\nx", "-a.example.com", "münchen.example", "api.example.123",
	} {
		if _, err := (hutch.Brokering{Hosts: []string{text}}).Complete("KEY"); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestPlacementsThatAreNone(t *testing.T) {
	t.Parallel()
	hosts := []string{"api.example.com"}
	for _, b := range []hutch.Brokering{
		{}, {Hosts: hosts, As: "replace:x"}, {Hosts: hosts, As: "header:"}, {Hosts: hosts, As: "header:Host"}, {Hosts: hosts, As: "header:transfer-encoding"},
		{Hosts: hosts, As: "header:X Y"}, {Hosts: hosts, As: "header:X\r\nY"}, {Hosts: hosts, As: "basic:a:b"}, {Hosts: hosts, As: "query:"}, {Hosts: hosts, As: "body"},
		{Hosts: hosts, Format: "Bearer {}"}, {Hosts: hosts, As: "header:A", Format: "Bearer"}, {Hosts: hosts, As: "header:A", Format: "{}{}"}, {Hosts: hosts, As: "header:A", Format: "{}\r\nX: y"},
		{Hosts: make([]string, 17)},
	} {
		if _, err := b.Complete("KEY"); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%+v: %v", b, err)
		}
	}
	for _, value := range []string{"", "short", "a key with\r\nX: y", "a tab\there", " around ", "schlüssel"} {
		if err := hutch.CheckBrokered(value); !errors.Is(err, hutch.Invalid) {
			t.Errorf("the value %q: %v", value, err)
		}
	}
}

func TestAnthropicKeyNeedsNoHost(t *testing.T) {
	t.Parallel()
	want := hutch.Brokering{Hosts: []string{"api.anthropic.com"}, As: "header:X-Api-Key"}
	if b, err := (hutch.Brokering{}).Complete(hutch.AnthropicKey); err != nil || !reflect.DeepEqual(b, want) {
		t.Errorf("%+v, %v", b, err)
	}
	b, err := hutch.Brokering{Hosts: []string{"gateway.example.com:8443"}}.Complete(hutch.AnthropicKey)
	if err != nil || b.As != want.As || !b.Brokers("gateway.example.com", 8443) || b.Brokers("gateway.example.com", 443) || b.Brokers("api.anthropic.com", 443) {
		t.Errorf("%+v, %v", b, err)
	}
}
