// Package auth identifies callers: it turns the bearer token of a request into a [Principal], and manages tokens.
//
// A token is 256 random bits; the server stores its SHA-256. A slow hash would add no security, because such a token
// cannot be guessed. Tokens are looked up by hash, so the time of a lookup depends only on the hash of the guess, and
// reveals nothing about the tokens.
//
// A principal's context ends with its token. All work for a principal uses that context. So when a token is revoked or
// expires, its open streams end too, and not only its next call is refused.
package auth
