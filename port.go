package hutch

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Ports are the verbs on servers in a sandbox: to reach one, and to give it a
// URL. What listens in a sandbox can be reached from outside in no other way.
//
// A port that is exposed is a record: it survives the end of the server inside,
// of the sandbox's sleep and of the daemon, and ends with the sandbox. It needs
// no server when it is made.
type Ports interface {
	// Expose gives a port a URL. Asked again, it returns what is there, with
	// the changes that the request names; another token takes the place of the
	// one before, whose URL opens nothing from then on. A token with which the
	// URL would be another sandbox's is Conflict.
	Expose(ctx context.Context, sandbox string, req ExposeRequest) (Port, error)

	// Unexpose takes the URL back and cuts who is connected by it. Idempotent.
	Unexpose(ctx context.Context, sandbox string, port int) error

	// Ports lists the exposed ports by their numbers. It wakes nothing.
	Ports(ctx context.Context, sandbox string) ([]Port, error)

	// ValidatePortToken reports whether the port is exposed with that token.
	ValidatePortToken(ctx context.Context, sandbox string, port int, token string) (bool, error)

	// LinkPort signs a URL of an exposed port with which anybody may see it
	// for a while, also if it is private. Unexposing the port ends it.
	LinkPort(ctx context.Context, sandbox string, port int, lifetime Seconds) (PortLink, error)

	// DialPort connects with a server by TCP: on 127.0.0.1, on ::1 or on the
	// sandbox's own address. The port need not be exposed. The connection is a
	// use of the sandbox until it is closed; ctx bounds the connecting alone.
	// It has CloseWrite. Where nothing listens the error is Unavailable, and
	// its datum "port" the number.
	DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error)

	// WatchPorts tells of servers: of those that listen when it begins, then
	// of each that comes or goes, within a second, until ctx is done or out
	// fails. Following is a use of the sandbox.
	WatchPorts(ctx context.Context, sandbox string, out func(PortEvent) error) error
}

// PortAccess says who may see what an exposed port shows.
type PortAccess string

const (
	// PublicPort is for all who know the URL.
	PublicPort PortAccess = "public"
	// PrivatePort is for those who also show a token of this server that may
	// see the sandbox, or a link that was signed by LinkPort.
	PrivatePort PortAccess = "private"
)

// ExposeRequest asks for a URL.
type ExposeRequest struct {
	Port int    `json:"port"`
	Name string `json:"name,omitempty"` // for people
	// Token is the last part of the URL's host name: 1 to 16 of a-z, 0-9, _
	// and hyphen. Default: the one that the port has, or 16 random ones.
	Token  string     `json:"token,omitempty"`
	Access PortAccess `json:"access,omitempty"` // default: as it was, or public
}

const (
	MaxPortToken = 16
	maxPortName  = 100 // bytes
)

// Check refuses what cannot be exposed.
func (r ExposeRequest) Check() error {
	if err := CheckPort(r.Port); err != nil {
		return err
	}
	for _, c := range []byte(r.Token) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return Errorf(Invalid, "the token %.40q holds %q: use 1 to %d of a-z, 0-9, _ and hyphen, or leave it out for a random one", r.Token, string(rune(c)), MaxPortToken).Naming(AboutField, "token")
		}
	}
	switch {
	case len(r.Token) > MaxPortToken:
		return Errorf(Invalid, "the token has %d characters: at most %d are allowed", len(r.Token), MaxPortToken).Naming(AboutField, "token")
	case len(r.Name) > maxPortName || strings.ContainsFunc(r.Name, steers):
		return Errorf(Invalid, "the name %.40q cannot be used: give at most %d bytes, no control characters", r.Name, maxPortName).Naming(AboutField, "name")
	case r.Access != "" && r.Access != PublicPort && r.Access != PrivatePort:
		return Errorf(Invalid, "there is no access %.40q: use %q or %q", r.Access, PublicPort, PrivatePort).Naming(AboutField, "access")
	}
	return nil
}

// steers reports whether a terminal takes c for an instruction: control characters,
// separators of lines, and invisible characters of format but those that shape letters.
func steers(c rune) bool {
	switch {
	case c == '\u200c', c == '\u200d', unicode.Is(unicode.Prepended_Concatenation_Mark, c):
		return false
	}
	return unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// CheckPort refuses what is no number of a port.
func CheckPort(port int) error {
	if port < 1 || port > 65535 {
		return Errorf(Invalid, "there is no port %d: use 1 to 65535", port).Naming(AboutField, "port")
	}
	return nil
}

// NewPortToken mints a token of 82 random bits.
func NewPortToken() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var token [MaxPortToken]byte
	for i := range token {
		n, _ := rand.Int(rand.Reader, big.NewInt(int64(len(letters)))) // never fails
		token[i] = letters[n.Int64()]
	}
	return string(token[:])
}

// Port is an exposed port.
type Port struct {
	SandboxID string     `json:"sandboxId"`
	Port      int        `json:"port"`
	URL       string     `json:"url"`
	Name      string     `json:"name,omitempty"`
	Token     string     `json:"token"`
	Access    PortAccess `json:"access"`
	CreatedAt time.Time  `json:"createdAt"`
}

// Label is the first part of the URL's host name, which no two ports share:
// PORT-ID-TOKEN or, for an id so long that no host name could hold that, one in
// which a hash stands for its end.
func (p Port) Label() string { return fmt.Sprintf("%d-%s-%s", p.Port, short(p.SandboxID), p.Token) }

// longestID is how much of an id fits a label of 63 bytes beside the largest
// port and the longest token.
const longestID = 63 - len("65535-") - 1 - MaxPortToken

// short is an id as it stands in labels. Two that become one there still need
// one token to become one label, which Expose refuses.
func short(id string) string {
	if len(id) <= longestID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return id[:longestID-9] + "-" + idEncoding.EncodeToString(sum[:5])
}

// PortLink is a URL that opens a private port for a while.
type PortLink struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// PortEvent tells of a server that has begun to listen or has stopped.
type PortEvent struct {
	Type PortEventType `json:"type"`
	Port int           `json:"port"`
	URL  string        `json:"url,omitempty"` // when the port is exposed
}

// PortEventType is what a PortEvent tells.
type PortEventType string

const (
	PortOpened PortEventType = "open"
	PortClosed PortEventType = "close"
)

// Preview is what a label opens, for the surface that shows it.
type Preview struct {
	Port
	Owner string
	Key   []byte          // what links and cookies to it are signed with
	Life  context.Context // done when the port is no longer exposed so
}

// PortLinkParameter is the parameter of a URL that holds a signature.
const PortLinkParameter = "hutch-link"

// Sign signs that the preview may be seen until end.
func (p Preview) Sign(end time.Time) string {
	unix := strconv.FormatInt(end.Unix(), 10)
	return unix + "." + base64.RawURLEncoding.EncodeToString(p.mac(unix))
}

// Signed reports until when a signature lets see the preview, and whether it
// does so now.
func (p Preview) Signed(signature string, now time.Time) (end time.Time, ok bool) {
	unix, mac, _ := strings.Cut(signature, ".")
	seconds, err := strconv.ParseInt(unix, 10, 64)
	given, bad := base64.RawURLEncoding.DecodeString(mac)
	if err != nil || bad != nil || !hmac.Equal(given, p.mac(unix)) {
		return time.Time{}, false
	}
	end = time.Unix(seconds, 0)
	return end, now.Before(end)
}

func (p Preview) mac(unix string) []byte {
	h := hmac.New(sha256.New, p.Key)
	h.Write([]byte(p.Label() + " " + unix))
	return h.Sum(nil)
}

// Previews finds what is exposed. It is no part of [Service]: it asks nobody
// for a token but the one in the label.
type Previews interface {
	// Preview returns what a label opens. Its time tells nothing of labels.
	Preview(label string) (Preview, bool)
}
