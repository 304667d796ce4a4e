// Package auth knows who calls: it turns the bearer token of a request into a
// [Principal], and manages tokens.
//
// Tokens are 256 random bits, and what is kept of one is its SHA-256. A slow
// hash would add nothing: it is for secrets that can be guessed, and these
// cannot. A token is looked up by its hash, so how long that takes depends on
// what the caller cannot choose: the hash of a guess tells nothing of any
// token.
//
// A principal has a life, which ends with its token. What runs for it is held
// to that life, so a token that is revoked or expires ends its open streams
// too, and not only its next call.
package auth
