package conversation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strconv"
	"strings"
	"time"

	"hutch"
)

// links signs the addresses of files. A link gives access to one file only: the signature (HMAC-SHA256) covers the
// conversation, the file's whole path, and the expiry time.
type links struct {
	secret []byte
	base   string
	life   time.Duration
}

// to returns the link to a file.
func (l links) to(folder, file string) string {
	var expires string
	if l.life > 0 {
		expires = strconv.FormatInt(time.Now().Add(l.life).Unix(), 10)
	}
	segments := strings.Split(file, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	query := "?sig=" + l.sign(folder, file, expires)
	if expires != "" {
		query = "?exp=" + expires + "&sig=" + l.sign(folder, file, expires)
	}
	return l.base + "/files/" + url.PathEscape(folder) + "/" + strings.Join(segments, "/") + query
}

// sign returns a signature. A zero byte, which no path contains, separates path and expiry, so that no path can
// imitate an expiry.
func (l links) sign(folder, file, expires string) string {
	mac := hmac.New(sha256.New, l.secret)
	mac.Write([]byte(folder + "/" + file))
	if expires != "" {
		mac.Write([]byte("\x00" + expires))
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// check refuses links that were not signed here, or have expired. The error does not depend on whether the file
// exists.
func (l links) check(folder, file string, query url.Values, now time.Time) error {
	expires := query.Get("exp")
	if !hmac.Equal([]byte(query.Get("sig")), []byte(l.sign(folder, file, expires))) {
		return hutch.Errorf(hutch.Denied, "the signature does not fit this address: copy the whole link, or run the code again for a new one")
	}
	if expires == "" {
		return nil
	}
	if at, err := strconv.ParseInt(expires, 10, 64); err != nil || now.Unix() >= at {
		return hutch.Errorf(hutch.Denied, "the link has expired: run the code again for a new one")
	}
	return nil
}
