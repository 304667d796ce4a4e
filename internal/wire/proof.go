package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
)

// Side is an end of a connection.
type Side string

const (
	DaemonSide Side = "hutch daemon"
	AgentSide  Side = "hutch agent"
)

// nonceSize is how long the random number of each side is, in bytes.
const nonceSize = 16

// Nonces are the random numbers of one connection, one from each side, so that a proof is valid only for this
// connection.
type Nonces struct{ Daemon, Agent []byte }

// NewNonce returns a random number for one connection.
func NewNonce() []byte {
	b := make([]byte, nonceSize)
	rand.Read(b)
	return b
}

// Proof returns a side's proof that it knows the token. The proof does not reveal the token.
func (n Nonces) Proof(token string, by Side) []byte {
	h := hmac.New(sha256.New, []byte(token))
	h.Write([]byte(by))
	h.Write(n.Daemon)
	h.Write(n.Agent)
	return h.Sum(nil)
}

// Proves reports whether proof shows that a side knows the token. Nonces of
// another length prove nothing.
func (n Nonces) Proves(token string, by Side, proof []byte) bool {
	return len(n.Daemon) == nonceSize && len(n.Agent) == nonceSize && hmac.Equal(proof, n.Proof(token, by))
}
