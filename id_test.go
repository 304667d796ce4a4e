package hutch_test

import (
	"errors"
	"strings"
	"testing"

	"hutch"
)

func TestNamesOfHostsAreNoNewIDs(t *testing.T) {
	for _, id := range []string{"localhost", "ip6-localhost", "broadcasthost", "0", "00", "0x0", "2130706433", "0x7f000001", "017700000001", "Localhost"} {
		if err := hutch.CheckNewID(id); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"1", "42", "user-0", "localhost-1", "0x", "0b1", "4294967296", "08", "host"} {
		if err := hutch.CheckNewID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestErrorsAboutIDsNameTheCharacterAndSuggestAValidID(t *testing.T) {
	for id, want := range map[string]string{
		"ünï":                            `the id "ünï" holds "ü": use only a-z, 0-9 and hyphen`,
		"a🦫":                             `holds "🦫"`,
		"a\xff":                          `holds "\xff"`,
		"ÜN":                             `holds "Ü"`,
		"My Box":                         `holds " ": use only a-z, 0-9 and hyphen, such as "my-box"`,
		"my_box.2":                       `holds "_": use only a-z, 0-9 and hyphen, such as "my-box-2"`,
		"-My Box-":                       `such as "my-box"`,
		"MyBox":                          `has upper-case letters: write it as "mybox"`,
		"-MyBox":                         `such as "mybox"`,
		"-a":                             `begins or ends with a hyphen: only a-z and 0-9 are allowed there, such as "a"`,
		"--":                             `only a-z and 0-9 are allowed there`,
		"../..":                          `holds ".": use only a-z, 0-9 and hyphen`,
		strings.Repeat("a", 64):          "has 64 characters",
		strings.Repeat("A", 64):          "has 64 characters",
		strings.Repeat("b ", 64):         `holds " ": use only a-z, 0-9 and hyphen`,
		strings.Repeat("ü", hutch.MaxID): `holds "ü"`,
	} {
		err := hutch.CheckID(id)
		if !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", id, err, want)
			continue
		}
		if _, like, ok := strings.Cut(err.Error(), "such as "); ok && hutch.CheckID(strings.Trim(like, `"`)) != nil {
			t.Errorf("%q: the suggestion %s is not an id", id, like)
		}
	}
	for name, want := range map[string]string{"My Base:v1": `such as "my-base"`, "base:ü": `holds "ü"`} {
		if err := hutch.CheckTemplateName(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", name, err, want)
		}
	}
	if err := (hutch.ExposeRequest{Port: 80, Token: "aü"}).Check(); err == nil || !strings.Contains(err.Error(), `holds "ü"`) {
		t.Errorf("the token of a port: %v", err)
	}
}
