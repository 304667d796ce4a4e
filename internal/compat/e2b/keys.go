package e2b

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
)

// Keys of sandboxes are not stored: each is an HMAC-SHA256, with the server's secret, of its purpose, the sandbox's
// owner, and the sandbox's id. They end with the sandbox, and with the token of its owner.
const (
	forAccess  = "access"  // all calls inside
	forTraffic = "traffic" // the ports of a sandbox without public ports
	forID      = "id"      // the end of an id, which identifies the owner
)

func (s *Server) mac(purpose, owner, text string) []byte {
	m := hmac.New(sha256.New, s.opt.Secret)
	for _, part := range []string{purpose, owner, text} {
		m.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return m.Sum(nil)
}

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

const (
	randomLetters = 16 // 80 bits
	ownerLetters  = 8  // 40 bits
)

// newID makes an id for a sandbox of an owner. Like E2B's ids, it has no hyphen. Its end is computed from its beginning
// and the owner: a host name contains only the id, and another owner's sandbox with the same id must not answer there.
func (s *Server) newID(owner string) string {
	var b [10]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	begin := letters.EncodeToString(b[:])
	return "i" + begin + s.endOfID(owner, begin)
}

func (s *Server) endOfID(owner, begin string) string {
	return letters.EncodeToString(s.mac(forID, owner, begin)[:ownerLetters*5/8])
}

// isIDOf reports whether an id was minted for an owner.
func (s *Server) isIDOf(owner, id string) bool {
	if len(id) != 1+randomLetters+ownerLetters {
		return false
	}
	begin, end := id[1:1+randomLetters], id[1+randomLetters:]
	return hmac.Equal([]byte(end), []byte(s.endOfID(owner, begin)))
}

const accessPrefix = "hutche2b"

// accessToken opens a sandbox to its owner's clients. It contains the owner's id, because two owners can have sandboxes
// with the same id. The id of an owner is not secret.
func (s *Server) accessToken(owner, id string) string {
	return accessPrefix + "." + hex.EncodeToString([]byte(owner)) + "." + hex.EncodeToString(s.mac(forAccess, owner, id))
}

// ownerOf returns the owner that an access token of a sandbox names, if the token is valid.
func (s *Server) ownerOf(token, id string) (owner string, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > 512 {
		return "", false
	}
	name, err := hex.DecodeString(parts[1])
	if err != nil {
		return "", false
	}
	return string(name), hmac.Equal([]byte(token), []byte(s.accessToken(string(name), id)))
}

func (s *Server) trafficToken(owner, id string) string {
	return hex.EncodeToString(s.mac(forTraffic, owner, id))
}

// signature returns the signature that E2B's clients put into the URL of a file. The parts are taken from the query.
func signature(path, operation, user, token, expires string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expires != "" {
		text += ":" + expires
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
