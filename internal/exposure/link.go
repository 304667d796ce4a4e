package exposure

import (
	"cmp"
	"crypto/hmac"
	"net/url"
	"time"

	"hutch"
	"hutch/internal/store"
)

const (
	linkTime    = time.Hour // lifetime of a link whose request has none
	maxLinkTime = 30 * 24 * time.Hour
)

// CheckLinkTime refuses a lifetime that a link cannot have.
func CheckLinkTime(lifetime hutch.Seconds) error {
	if !(lifetime >= 0 && lifetime.Duration() <= maxLinkTime) {
		return hutch.Errorf(hutch.Invalid, "a lifetime of %v s: give seconds, up to %v, or leave it out for %v", lifetime, hutch.InSeconds(maxLinkTime), hutch.InSeconds(linkTime)).Naming(hutch.AboutField, "lifetime")
	}
	return nil
}

// Link signs a URL that opens an exposed port until its end, as long as the holder has the same proof (see
// hutch.Preview.SignFor). A link with an empty holder ends only by time or Unexpose.
func (t *Table) Link(x store.Exposure, lifetime hutch.Seconds, holder string, proof []byte) hutch.PortLink {
	p := hutch.Preview{Port: t.Port(x), Key: []byte(x.Key)}
	end := time.Now().Add(cmp.Or(lifetime.Duration(), linkTime)).Truncate(time.Second).UTC()
	link := p.URL + "/?" + url.Values{hutch.PortLinkParameter: {p.SignFor(end, holder, proof)}}.Encode()
	return hutch.PortLink{URL: link, ExpiresAt: end}
}

// ValidToken reports whether a port is exposed with this token. The time it takes reveals nothing about the token.
func ValidToken(list []store.Exposure, port int, token string) bool {
	x, ok := Find(list, port)
	return ok && hmac.Equal([]byte(x.Token), []byte(token))
}
