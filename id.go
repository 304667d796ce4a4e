package hutch

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxID is the longest identifier in bytes: the length of a DNS label, so that an id can be part of a preview's host
// name.
const MaxID = 63

// CheckID reports whether id can name a sandbox or a process: 1 to 63 of a-z, 0-9 and hyphen, with no hyphen at
// either end. The error is of kind [Invalid] and says what is wrong with the id.
func CheckID(id string) error {
	odd := foreign(id)
	switch {
	case id == "":
		return Errorf(Invalid, "the id is empty: use 1 to %d of a-z, 0-9 and hyphen", MaxID)
	case odd != "":
		return Errorf(Invalid, "the id %.80q holds %q: use only a-z, 0-9 and hyphen%s", id, odd, suggestID(id))
	case len(id) > MaxID:
		return Errorf(Invalid, "the id has %d characters: at most %d are allowed", len(id), MaxID)
	case id[0] == '-' || id[len(id)-1] == '-':
		return Errorf(Invalid, "the id %q begins or ends with a hyphen: only a-z and 0-9 are allowed there%s", id, suggestID(id))
	case NormalizeID(id) != id:
		return Errorf(Invalid, "the id %q has upper-case letters: write it as %q", id, NormalizeID(id))
	}
	return nil
}

// foreign returns the first character of an id that is not a letter a-z or A-Z, a digit or a hyphen. It can be a byte
// that is not UTF-8.
func foreign(id string) string {
	return firstOutside(id, func(c rune) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-'
	})
}

// firstOutside returns the first character of s that is not allowed, or the first byte that is not UTF-8; empty if
// there is none.
func firstOutside(s string, allowed func(rune) bool) string {
	for i, c := range s {
		if _, size := utf8.DecodeRuneInString(s[i:]); !allowed(c) {
			return s[i : i+size]
		}
	}
	return ""
}

// suggestID returns the end of the error about an id. It suggests a similar id, if there is one, with letters in lower
// case and hyphens between words. Letters of other scripts have no obvious replacement, so it suggests nothing for
// them.
func suggestID(id string) string {
	for _, c := range id {
		if c >= utf8.RuneSelf || c < ' ' {
			return ""
		}
	}
	words := strings.FieldsFunc(NormalizeID(id), func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
	if like := strings.Join(words, "-"); CheckID(like) == nil {
		return fmt.Sprintf(", such as %q", like)
	}
	return ""
}

// CheckNewID reports whether id may be given to a new sandbox. In addition to the rules of [CheckID], it must not be a
// name or a number that programs take for this host, because a sandbox's id is its host name and its name in links.
func CheckNewID(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	if slices.Contains(hostNames, id) || loopback(id) {
		return Errorf(Invalid, "the id %q is the name of a host that every program knows: choose another one, such as %q", id, "sb-"+id).Naming(AboutField, "sandboxId")
	}
	return nil
}

// hostNames are in the hosts file of a usual machine, or have a special meaning
// for resolvers.
var hostNames = []string{"localhost", "localdomain", "ip6-localhost", "ip6-loopback", "ip6-localnet", "ip6-mcastprefix",
	"ip6-allnodes", "ip6-allrouters", "ip6-allhosts", "broadcasthost", "invalid"}

// loopback reports whether id, read as inet_aton(3) does, is the address 0.0.0.0 or
// one of 127.0.0.0/8. Other numbers are not refused: people use them as ids.
func loopback(id string) bool {
	digits, base := id, 10
	if rest, hex := strings.CutPrefix(id, "0x"); hex {
		digits, base = rest, 16
	} else if id[0] == '0' {
		base = 8
	}
	n, err := strconv.ParseUint(digits, base, 32)
	return err == nil && (n == 0 || n>>24 == 127)
}

// NormalizeID folds upper case to lower case; it changes nothing else.
func NormalizeID(id string) string { return strings.ToLower(id) }

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID mints an identifier: a prefix that says what it names, and 60 random bits. NewID("sb") can be
// "sb-k3f9q2mzx7ap". Knowing an id gives no rights: every caller is authorized by a token.
func NewID(prefix string) string {
	var b [8]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	return prefix + "-" + idEncoding.EncodeToString(b[:])[:12]
}
