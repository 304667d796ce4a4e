package store

import (
	"crypto/cipher"
	"crypto/rand"

	"golang.org/x/crypto/chacha20poly1305"

	"hutch"
)

// seal encrypts documents for a database that others can read. Each encrypted document is bound to its key: it cannot
// be decrypted as another document.
type seal struct{ aead cipher.AEAD }

// KeySize is the size of a key, in bytes.
const KeySize = chacha20poly1305.KeySize

func newSeal(key []byte) (seal, error) {
	aead, err := chacha20poly1305.NewX(key) // its nonces are long enough to be random for every document
	return seal{aead}, err
}

func (s seal) sealed(name string, doc []byte) []byte {
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(doc)+s.aead.Overhead())
	rand.Read(nonce) // never fails: it ends the program instead
	return s.aead.Seal(nonce, nonce, doc, []byte(name))
}

var errSeal = hutch.Errorf(hutch.Denied, "it was not written with the key of this installation, or was changed since: restore the database from a backup")

func (s seal) opened(name string, sealed []byte) ([]byte, error) {
	size := s.aead.NonceSize()
	if len(sealed) < size {
		return nil, errSeal
	}
	doc, err := s.aead.Open(nil, sealed[:size], sealed[size:], []byte(name))
	if err != nil {
		return nil, errSeal
	}
	if doc == nil {
		doc = []byte{} // nil would mean that the document does not exist
	}
	return doc, nil
}

// Sealer encrypts a part of a record that must not be on disk in clear, even if the store does not encrypt whole
// documents.
type Sealer struct{ seal }

// NewSealer returns a sealer with a key of KeySize bytes.
func NewSealer(key []byte) (*Sealer, error) {
	s, err := newSeal(key)
	return &Sealer{s}, err
}

// Seal encrypts text. The result can be decrypted only with the same name.
func (s *Sealer) Seal(name string, text []byte) []byte { return s.sealed(name, text) }

// Open decrypts what Seal returned.
func (s *Sealer) Open(name string, sealed []byte) ([]byte, error) { return s.opened(name, sealed) }
