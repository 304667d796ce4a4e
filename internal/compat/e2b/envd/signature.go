package envd

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Signature is E2B's signature of a link to /files: the operation is "read" or "write", the user can be empty, and so
// can the end, which is a Unix time in seconds.
func Signature(path, operation, user, secret, end string) string {
	text := path + ":" + operation + ":" + user + ":" + secret
	if end != "" {
		text += ":" + end
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Signed reports whether a request for /files is signed with a sandbox's access token. It does not look at the time.
func Signed(r *http.Request, secret string) bool {
	q := r.URL.Query()
	operation := "read"
	if r.Method == http.MethodPost {
		operation = "write"
	}
	want := Signature(q.Get("path"), operation, q.Get("username"), secret, q.Get("signature_expiration"))
	return secret != "" && subtle.ConstantTimeCompare([]byte(want), []byte(q.Get("signature"))) == 1
}

// checkSignature returns why a request for /files is not allowed, in the words that clients know.
func checkSignature(r *http.Request, secret string, now time.Time) error {
	q := r.URL.Query()
	switch {
	case q.Get("signature") == "":
		return errors.New("missing signature query parameter")
	case !Signed(r, secret):
		return errors.New("invalid signature")
	case q.Get("signature_expiration") == "":
		return nil
	}
	end, err := strconv.ParseInt(q.Get("signature_expiration"), 10, 64)
	if err != nil || now.Unix() > end {
		return errors.New("signature is already expired")
	}
	return nil
}
