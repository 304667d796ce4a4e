package secret

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"filippo.io/age"

	"hutch"
	"hutch/internal/durable"
)

// Key is the key that encrypts a vault: an age identity, so `age -d` can read the file too.
type Key struct{ identity *age.X25519Identity }

// Derive returns a key of 32 bytes for another purpose, from which this key cannot be computed.
func (k *Key) Derive(purpose string) []byte {
	b, _ := hkdf.Key(sha256.New, []byte(k.identity.String()), nil, "hutch "+purpose, 32) // fails only for keys of many KB
	return b
}

// ParseKey reads a key as `age-keygen` writes it, with comments or without.
func ParseKey(text string) (*Key, error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if identity, err := age.ParseX25519Identity(line); err == nil {
			return &Key{identity}, nil
		}
		break // the error could contain the key
	}
	return nil, hutch.Errorf(hutch.Invalid, "the secret key is none: give one that `age-keygen` has made, which begins with AGE-SECRET-KEY-1")
}

// LoadKey reads the key in a file. If the file is missing, it creates a key, but not if there is a vault already,
// which only its own key can open.
func LoadKey(path, vault string) (*Key, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		return ParseKey(string(b))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the secret key: %w", err)
	}
	if _, err := os.Stat(vault); !errors.Is(err, fs.ErrNotExist) {
		return nil, hutch.Errorf(hutch.Invalid, "there are secrets in %s, and no key in %s: put it back, or remove the secrets to begin without any", vault, path)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, err
	}
	if err := durable.Replace(path, []byte(identity.String()+"\n")); err != nil {
		return nil, fmt.Errorf("keep the secret key: %w", err)
	}
	return &Key{identity}, nil
}
