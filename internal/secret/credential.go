package secret

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hutch"
)

// Credential is a brokered secret.
type Credential struct {
	hutch.Brokering
	Name        string
	Value       string
	Placeholder string // what programs get instead
	// Parts are the secrets in the value of a header rule.
	Parts []string
}

// headerPrefix begins the name of the credential of a header rule. No secret has such a name.
const headerPrefix = hutch.AsHeader + ":"

// Header returns the credential of a header rule, whose value can have secrets as its parts.
func Header(name, value string, parts ...string) Credential {
	return Credential{Brokering: hutch.Brokering{As: headerPrefix + name}, Name: headerPrefix + name, Value: value, Parts: parts}
}

// IsHeader reports whether the name of a credential is that of a header rule.
func IsHeader(name string) bool { return strings.HasPrefix(name, headerPrefix) }

// Broker makes one of the server's secrets a brokered one. Call it before the vault is used.
func (v *Vault) Broker(name string, b hutch.Brokering) error {
	if v.given[name] == "" {
		return unknown(name, slices.Collect(maps.Keys(v.given)))
	}
	done, err := complete(name, hutch.SecretRequest{Value: v.given[name], Brokered: &b})
	if err != nil {
		return fmt.Errorf("broker %s: %w", name, err)
	}
	if v.brokered == nil {
		v.brokered = map[string]hutch.Brokering{}
	}
	v.brokered[name] = *done
	return nil
}

// complete checks the brokering of a secret, if there is any.
func complete(name string, req hutch.SecretRequest) (*hutch.Brokering, error) {
	if req.Brokered == nil {
		return nil, nil
	}
	if err := hutch.CheckBrokered(req.Value); err != nil {
		return nil, err
	}
	b, err := req.Brokered.Complete(name)
	return &b, err
}

// Brokered returns an owner's brokered secrets with the given names. Unknown names are left out.
func (v *Vault) Brokered(owner string, names []string) (list []Credential) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if e, err := v.findLocked(owner, name); err == nil && e.Brokered != nil {
			list = append(list, Credential{Brokering: *e.Brokered, Name: e.Name, Value: e.Value, Placeholder: placeholder(e)})
		}
	}
	return list
}

// ForHeader returns the value of a secret that a header rule of an owner refers to. A brokered secret is refused: it is for
// its own hosts, and a rule could send it to another one.
func (v *Vault) ForHeader(owner, name string) (string, error) {
	v.mu.RLock()
	e, err := v.findLocked(owner, name)
	v.mu.RUnlock()
	switch {
	case err != nil:
		return "", hutch.Errorf(hutch.NotFound, "a header rule refers to the secret %s, which does not exist: its owner can set it", name)
	case e.Brokered != nil:
		return "", hutch.Errorf(hutch.Denied, "a header rule refers to the secret %s, which is brokered for its own hosts: its owner can set another one that is not", name)
	case hutch.CheckBrokered(e.Value) != nil:
		return "", hutch.Errorf(hutch.Invalid, "a header rule refers to the secret %s, whose value does not fit in a header: it must be at least %d bytes of printable ASCII, without spaces around it", name, hutch.MinRedacted)
	}
	return e.Value, nil
}

// masked returns the texts that answers of a host must not show.
func (c Credential) masked() []string {
	if IsHeader(c.Name) {
		return append(maskedInHeader(strings.TrimPrefix(c.Name, headerPrefix), c.Value), c.Parts...)
	}
	return []string{c.Value}
}

// maxAnswers is how many redactors for answers are kept, and maxAnswersSize how much memory they use, in bytes.
const maxAnswers, maxAnswersSize = 256, 32 << 20

// Answers returns a redactor that masks credentials in the answers of a host that got them.
func (v *Vault) Answers(list []Credential) *Redactor {
	values := map[string][]string{}
	var text strings.Builder
	for _, c := range list {
		values[c.Name] = append(values[c.Name], c.masked()...)
		fmt.Fprintf(&text, "%q %q %q ", c.Name, c.Value, c.Parts)
	}
	key := sha256.Sum256([]byte(text.String()))
	v.mu.RLock()
	r, known := v.answers[key]
	v.mu.RUnlock()
	if known {
		return r
	}
	r = NewRedactor(values) // not under the lock: it takes long for long values, and calls of all owners need the lock
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.answersSize += r.Size(); len(v.answers) >= maxAnswers || v.answersSize > maxAnswersSize {
		clear(v.answers)
		v.answersSize = r.Size()
	}
	v.answers[key] = r
	return r
}

// prefixes are the prefixes by which services, and scanners for leaked keys, recognize a key. A placeholder has the
// same prefix as its value, so that programs that check the prefix accept it.
var prefixes = []string{
	"sk-ant-api03-", "sk-ant-", "sk-proj-", "sk-", "sk_live_", "sk_test_", "rk_live_", "ghp_", "gho_", "ghu_", "ghs_", "github_pat_", "glpat-",
	"xoxb-", "xoxp-", "hf_", "npm_", "pypi-", "SG.", "AIza",
}

// placeholder returns the text that replaces a secret in the sandbox. It reveals only the kind of the value, and does
// not change when the value does.
func placeholder(e entry) string {
	sum := sha256.Sum256([]byte("hutch placeholder\x00" + e.Owner + "\x00" + e.Name))
	prefix := ""
	if i := slices.IndexFunc(prefixes, func(p string) bool { return strings.HasPrefix(e.Value, p) }); i >= 0 {
		prefix = prefixes[i]
	}
	return prefix + "hutch" + hex.EncodeToString(sum[:20])
}
