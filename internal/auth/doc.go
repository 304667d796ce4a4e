// Package auth identifies callers: it turns the bearer token of a request into a [Principal], and manages tokens.
//
// A token is 256 random bits; the server stores its SHA-256. A slow hash would add no security, because such a token
// cannot be guessed. Tokens are looked up by hash, so the time of a lookup depends on the hash of the caller's guess
// and reveals nothing about any token.
//
// A principal's context ends with its token. All work for a principal uses that context, so revoking a token or its
// expiry ends its open streams too, not only its next call.
package auth
