package hutch

import (
	"slices"
	"strconv"
	"strings"
)

// Brokering keeps the value of a secret out of sandboxes: programs get a
// placeholder, and the server adds the value to the requests that they send to
// certain hosts, over TLS.
type Brokering struct {
	// Hosts are host names such as "api.example.com", with the port unless it is 443. For the secret [AnthropicKey] the
	// default is Anthropic's hosts.
	Hosts []string `json:"hosts,omitempty"`
	// As says where the server puts the value, in the form that [ParsePlacement] reads. The default is [AsReplace],
	// and for [AnthropicKey] the header that the API expects.
	As string `json:"as,omitempty"`
	// Format is the header's new value, with {} in place of the secret. Default "{}".
	Format string `json:"format,omitempty"`
}

// AnthropicKey is the name of the secret, and of the variable, that holds the key for Anthropic's API.
const AnthropicKey = "ANTHROPIC_API_KEY"

// The kinds of placement.
const (
	AsReplace = "replace" // replaces the placeholder in any header
	AsHeader  = "header"  // sets a header: "header:NAME"
	AsBasic   = "basic"   // sets a user's password: "basic:USER"
	AsQuery   = "query"   // sets a query parameter: "query:NAME"
)

const maxBrokered = 16 // most hosts of one secret

// Complete checks b for the secret of that name, and fills in the fields that b leaves out.
func (b Brokering) Complete(secret string) (Brokering, error) {
	if secret == AnthropicKey && b.As == "" {
		b.As = AsHeader + ":X-Api-Key"
	}
	if secret == AnthropicKey && len(b.Hosts) == 0 {
		b.Hosts = []string{"api.anthropic.com"}
	}
	if b.As == "" {
		b.As = AsReplace
	}
	if n := len(b.Hosts); n == 0 || n > maxBrokered {
		return b, Errorf(Invalid, "the secret is brokered for %d hosts: name 1 to %d", n, maxBrokered).Naming(AboutField, "brokered.hosts")
	}
	hosts := slices.Clone(b.Hosts)
	for i, host := range hosts {
		name, port, err := ParseBrokeredHost(host)
		if err != nil {
			return b, err
		}
		if hosts[i] = name; port != 443 {
			hosts[i] += ":" + strconv.Itoa(int(port))
		}
	}
	b.Hosts = hosts
	kind, _, err := ParsePlacement(b.As)
	if err != nil {
		return b, err
	}
	return b, b.checkFormat(kind)
}

func (b Brokering) checkFormat(kind string) error {
	switch {
	case b.Format == "":
		return nil
	case kind != AsHeader:
		return Errorf(Invalid, "a format is for a header: leave it out, or place the secret as header:NAME").Naming(AboutField, "brokered.format")
	case strings.Count(b.Format, "{}") != 1 || len(b.Format) > 256 || !headerText(b.Format):
		return Errorf(Invalid, "the format %.80q cannot be used: write the header's text with {} once, where the secret stands, such as \"Bearer {}\"", b.Format).Naming(AboutField, "brokered.format")
	}
	return nil
}

// Brokers reports whether b applies to a host and port; port 0 matches any.
func (b Brokering) Brokers(host string, port uint16) bool {
	if port == 0 {
		return slices.ContainsFunc(b.Hosts, func(h string) bool { name, _, _ := strings.Cut(h, ":"); return name == host })
	}
	if port != 443 {
		host += ":" + strconv.Itoa(int(port))
	}
	return slices.Contains(b.Hosts, host)
}

// hostName matches names of two or more labels. The last label begins with a letter, so no notation of an IP address
// matches.
var hostName = pattern(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ParseBrokeredHost reads NAME or NAME:PORT. It refuses IP addresses, because a certificate proves names only.
func ParseBrokeredHost(text string) (host string, port uint16, err error) {
	host, number, given := strings.Cut(text, ":")
	port = 443
	if given {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 {
			return "", 0, badHost(text)
		}
		port = uint16(n)
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !hostName().MatchString(host) || len(host) > 253 {
		return "", 0, badHost(text)
	}
	return host, port, nil
}

func badHost(text string) error {
	return Errorf(Invalid, "%.80q is not a host that a secret can be brokered for: write its full name, such as api.example.com, or with a port as api.example.com:8443", text).Naming(AboutField, "brokered.hosts")
}

var headerName = pattern("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")

// unplaceable lists headers that decide how a message is read or where it goes. A secret cannot be put into them.
var unplaceable = []string{
	"host", "connection", "content-length", "content-encoding", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive", "expect",
	"accept-encoding", "range", "if-range", "proxy-connection", "proxy-authorization", "proxy-authenticate", "http2-settings",
	"sec-websocket-extensions", "sec-websocket-key", "sec-websocket-version",
}

// ParsePlacement reads "replace", "header:NAME", "basic:USER" or "query:NAME".
func ParsePlacement(text string) (kind, name string, err error) {
	kind, name, named := strings.Cut(text, ":")
	ok := false
	switch kind {
	case AsReplace:
		ok = !named
	case AsHeader:
		ok = headerName().MatchString(name) && !slices.Contains(unplaceable, strings.ToLower(name))
	case AsBasic:
		ok = len(name) <= 256 && headerText(name) && !strings.Contains(name, ":")
	case AsQuery:
		ok = name != "" && len(name) <= 256 && headerText(name)
	}
	if !ok {
		return "", "", Errorf(Invalid, "%.80q is not a place for a secret: use replace, header:NAME, basic:USER or query:NAME", text).Naming(AboutField, "brokered.as")
	}
	return kind, name, nil
}

// headerText reports whether s can be part of a header: printable ASCII.
func headerText(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// CheckBrokered refuses a value that cannot be brokered.
func CheckBrokered(value string) error {
	switch {
	case len(value) < MinRedacted:
		return Errorf(Invalid, "the value has less than %d bytes, so that answers could not be kept from telling it: it cannot be brokered", MinRedacted).Naming(AboutField, "value")
	case !headerText(value) || strings.TrimSpace(value) != value:
		return Errorf(Invalid, "the value cannot be brokered, as it does not fit in a header: it must be printable ASCII without spaces around it").Naming(AboutField, "value")
	}
	return nil
}
