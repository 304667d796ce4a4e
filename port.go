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

// Ports are the verbs on servers in a sandbox: connect to one, and give it a URL. There is no other way to reach a
// program that listens in a sandbox.
//
// An exposed port is a record: it survives the end of the program inside, the sandbox's sleep and a restart of the
// daemon, and ends with the sandbox. A port can be exposed before a program listens on it.
type Ports interface {
	// Expose gives a port a URL. If the port is already exposed, it makes the requested changes and returns the changed
	// record. A new token replaces the old one, and the old URL no longer works. A token that would produce the URL of
	// another sandbox is Conflict.
	Expose(ctx context.Context, sandbox string, req ExposeRequest) (Port, error)

	// Unexpose removes the URL and cuts the connections made through it. It is idempotent.
	Unexpose(ctx context.Context, sandbox string, port int) error

	// Ports lists the exposed ports by number. It wakes nothing.
	Ports(ctx context.Context, sandbox string) ([]Port, error)

	// ValidatePortToken reports whether the port is exposed with that token.
	ValidatePortToken(ctx context.Context, sandbox string, port int, token string) (bool, error)

	// LinkPort signs a URL that shows an exposed port, public or private, to every visitor for a while.
	// Unexposing the port ends it, and so does the end of the owner's token: revoked, rotated or expired.
	LinkPort(ctx context.Context, sandbox string, port int, lifetime Seconds) (PortLink, error)

	// DialPort connects to a server by TCP: on 127.0.0.1, on ::1 or on the sandbox's own address. The port need not
	// be exposed. The connection counts as a use of the sandbox until it is closed; ctx bounds only the connecting.
	// The connection has CloseWrite. If nothing listens, the error is Unavailable, with the number in its data
	// "port".
	DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error)

	// WatchPorts reports servers: first those that already listen, then each start and end, within a second, until ctx
	// is done or out fails. It counts as a use of the sandbox.
	WatchPorts(ctx context.Context, sandbox string, out func(PortEvent) error) error
}

// PortAccess says which visitors can open the URL of an exposed port.
type PortAccess string

const (
	// PublicPort is open to everyone who knows the URL.
	PublicPort PortAccess = "public"
	// PrivatePort is open to callers that also show a link signed by LinkPort, or a token with access to the sandbox.
	PrivatePort PortAccess = "private"
)

// ExposeRequest asks for a URL.
type ExposeRequest struct {
	Port int    `json:"port"`
	Name string `json:"name,omitempty"` // for people
	// Token is the last part of the URL's host name: 1 to 16 of a-z, 0-9, _ and hyphen. Default: the port's present
	// token, or 16 random characters.
	Token  string     `json:"token,omitempty"`
	Access PortAccess `json:"access,omitempty"` // default: unchanged, or public
	// Protocol is what the server in the sandbox speaks. Default: unchanged, or http.
	Protocol PortProtocol `json:"protocol,omitempty"`
}

// PortProtocol is the protocol between Hutch and a server in a sandbox. Visitors use the protocol of the URL.
type PortProtocol string

const (
	HTTPPort PortProtocol = "http"
	// HTTPSPort is for a server that accepts only TLS. Its certificate is not checked: the connection goes only from
	// Hutch into the sandbox.
	HTTPSPort PortProtocol = "https"
)

const (
	MaxPortToken = 16
	maxPortName  = 100 // bytes
)

// Check refuses an invalid request.
func (r ExposeRequest) Check() error {
	if err := CheckPort(r.Port); err != nil {
		return err
	}
	if odd := firstOutside(r.Token, func(c rune) bool {
		return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-'
	}); odd != "" {
		return Errorf(Invalid, "the token %.40q holds %q: use 1 to %d of a-z, 0-9, _ and hyphen, or leave it out for a random one", r.Token, odd, MaxPortToken).Naming(AboutField, "token")
	}
	switch {
	case len(r.Token) > MaxPortToken:
		return Errorf(Invalid, "the token has %d characters: at most %d are allowed", len(r.Token), MaxPortToken).Naming(AboutField, "token")
	case len(r.Name) > maxPortName || strings.ContainsFunc(r.Name, steers):
		return Errorf(Invalid, "the name %.40q cannot be used: give at most %d bytes, no control characters", r.Name, maxPortName).Naming(AboutField, "name")
	case r.Access != "" && r.Access != PublicPort && r.Access != PrivatePort:
		return Errorf(Invalid, "there is no access %.40q: use %q or %q", r.Access, PublicPort, PrivatePort).Naming(AboutField, "access")
	case r.Protocol != "" && r.Protocol != HTTPPort && r.Protocol != HTTPSPort:
		return Errorf(Invalid, "there is no protocol %.40q: use %q or %q", r.Protocol, HTTPPort, HTTPSPort).Naming(AboutField, "protocol")
	}
	return nil
}

// steers reports whether a terminal interprets c: control characters, line separators, and invisible format characters,
// except those that shape letters.
func steers(c rune) bool {
	switch {
	case c == '\u200c', c == '\u200d', unicode.Is(unicode.Prepended_Concatenation_Mark, c):
		return false
	}
	return unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// CheckPort refuses a number that is not a port.
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
	// Protocol is what the server in the sandbox speaks; empty for http.
	Protocol  PortProtocol `json:"protocol,omitempty"`
	CreatedAt time.Time    `json:"createdAt"`
}

// Label returns the first part of the URL's host name: PORT-ID-TOKEN. If the id is too long for a host name, a hash
// replaces the id's end. No two ports have the same label.
func (p Port) Label() string { return fmt.Sprintf("%d-%s-%s", p.Port, short(p.SandboxID), p.Token) }

// longestID is the longest id that fits into a label of 63 bytes together with the largest port and the longest token.
const longestID = 63 - len("65535-") - 1 - MaxPortToken

// short returns the id as labels contain it. Two ids can be shortened to the same text; their labels are equal only
// if their tokens are equal too, and Expose refuses that.
func short(id string) string {
	if len(id) <= longestID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return id[:longestID-9] + "-" + idEncoding.EncodeToString(sum[:5])
}

// LabelIDs returns the ids that a sandbox with a port of this label can have, and the beginnings of such ids if the
// label shortens them. Several are possible, because both an id and a token can contain a hyphen.
func LabelIDs(label string) (ids, beginnings []string) {
	_, rest, _ := strings.Cut(label, "-")
	for i := range len(rest) {
		if token := len(rest) - i - 1; rest[i] != '-' || i == 0 || token < 1 || token > MaxPortToken {
			continue
		}
		ids = append(ids, rest[:i])
		if i == longestID {
			beginnings = append(beginnings, rest[:longestID-9])
		}
	}
	return ids, beginnings
}

// PortLink is a URL that opens a private port for a limited time.
type PortLink struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// PortEvent reports a server that began to listen or stopped.
type PortEvent struct {
	Type PortEventType `json:"type"`
	Port int           `json:"port"`
	URL  string        `json:"url,omitempty"` // set when the port is exposed
}

// PortEventType says what a PortEvent reports.
type PortEventType string

const (
	PortOpened PortEventType = "open"
	PortClosed PortEventType = "close"
)

// Preview is the target of a label, for the surface that serves it.
type Preview struct {
	Port
	Owner string
	// Host is sent to the server in place of the visitor's Host header; empty keeps the visitor's.
	Host string
	Key  []byte          // key that signs its links and cookies
	Life context.Context // done when the port is no longer exposed in this way
}

// PortLinkParameter is the URL parameter that holds a signature.
const PortLinkParameter = "hutch-link"

// Sign returns a signature that opens the preview until end.
func (p Preview) Sign(end time.Time) string { return p.SignFor(end, "", nil) }

// SignFor returns a signature that opens the preview until end, but only while a holder's proof is the same. The
// signature contains the holder's name, which has no dot, but not the proof.
func (p Preview) SignFor(end time.Time, holder string, proof []byte) string {
	unix := strconv.FormatInt(end.Unix(), 10)
	signature := unix + "." + base64.RawURLEncoding.EncodeToString(p.mac(unix, holder, proof))
	if holder != "" {
		signature += "." + holder
	}
	return signature
}

// Signed returns when a signature expires, and whether it is valid at now. If the signature names a holder, as those of
// SignFor do, proofOf returns the holder's present proof, or nil if there is none. Without proofOf such a signature is
// not valid.
func (p Preview) Signed(signature string, now time.Time, proofOf func(holder string) []byte) (end time.Time, ok bool) {
	unix, rest, _ := strings.Cut(signature, ".")
	mac, holder, _ := strings.Cut(rest, ".")
	seconds, err := strconv.ParseInt(unix, 10, 64)
	given, bad := base64.RawURLEncoding.DecodeString(mac)
	var proof []byte
	if holder != "" {
		if proofOf == nil {
			return time.Time{}, false
		}
		if proof = proofOf(holder); proof == nil {
			return time.Time{}, false
		}
	}
	if err != nil || bad != nil || !hmac.Equal(given, p.mac(unix, holder, proof)) {
		return time.Time{}, false
	}
	end = time.Unix(seconds, 0)
	return end, now.Before(end)
}

func (p Preview) mac(unix, holder string, proof []byte) []byte {
	h := hmac.New(sha256.New, p.Key)
	h.Write([]byte(p.Label() + " " + unix))
	if holder != "" {
		h.Write([]byte(" " + holder + " "))
		h.Write(proof)
	}
	return h.Sum(nil)
}

// Previews finds exposed ports. It is not part of [Service]: the token in the label is the only credential that it
// asks for.
type Previews interface {
	// Preview returns the target of a label. The error is ErrNoPreview if no exposed port has the label, and Unavailable if
	// that cannot be found out now. Its duration does not reveal whether a label exists.
	Preview(label string) (Preview, error)
}

// ErrNoPreview is the error for a label that no exposed port has.
var ErrNoPreview = Errorf(NotFound, "there is no such preview: the port is no longer exposed, it has another token, or its sandbox is gone; expose it again for a new link")
