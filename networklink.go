package hutch

import (
	"slices"
	"strings"
)

// NetworkLink is another sandbox, which a sandbox can reach by a name below [LinkDomain]. A connection to one of its
// ports wakes the other sandbox.
type NetworkLink struct {
	Name    string // its name inside, without the domain
	Sandbox string // id of the other sandbox

	unread string // a text that is not a link
}

const (
	// LinkDomain ends the names of links: "db" is db.sandbox.internal.
	LinkDomain = ".sandbox.internal"
	// MaxNetworkLinks is the highest number of links of a sandbox.
	MaxNetworkLinks = 64
)

var linkName = pattern(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ParseNetworkLink reads NAME=ID, or only an ID, which is then also the name.
func ParseNetworkLink(text string) (NetworkLink, error) {
	name, id, named := strings.Cut(text, "=")
	if !named {
		id = name
	}
	if !linkName().MatchString(name) || CheckID(id) != nil {
		return NetworkLink{}, Errorf(Invalid, "%.120q is not a link: write the id of another sandbox, or NAME=ID with a name of a-z, 0-9 and hyphens", text).Naming(AboutField, "network.links")
	}
	return NetworkLink{Name: name, Sandbox: id}, nil
}

// Check refuses a text that is not a link.
func (l NetworkLink) Check() error {
	if l.Name != "" {
		return nil
	}
	_, err := ParseNetworkLink(l.unread)
	return err
}

// String returns the link as text.
func (l NetworkLink) String() string {
	switch l.Name {
	case "":
		return l.unread
	case l.Sandbox:
		return l.Name
	}
	return l.Name + "=" + l.Sandbox
}

// MarshalText implements encoding.TextMarshaler.
func (l NetworkLink) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It keeps a text that is not a link, for Check to refuse.
func (l *NetworkLink) UnmarshalText(text []byte) error {
	*l = readNetworkLink(string(text))
	return nil
}

func readNetworkLink(text string) NetworkLink {
	l, err := ParseNetworkLink(text)
	if err != nil {
		return NetworkLink{unread: text}
	}
	return l
}

// NetworkLinks is a list of links. Its JSON is a list of texts.
type NetworkLinks []NetworkLink

// Links reads links as ParseNetworkLink does. It keeps a text that is not a link, so that the request is refused later.
func Links(texts ...string) NetworkLinks { return readAll(texts, readNetworkLink) }

// String returns the links as texts, with spaces between them.
func (links NetworkLinks) String() string { return joinTexts(links) }

// UnmarshalJSON implements json.Unmarshaler. It keeps only the beginning of a list that is too long, which is enough to
// refuse the request.
func (links *NetworkLinks) UnmarshalJSON(b []byte) (err error) {
	*links, err = readList(b, MaxNetworkLinks, readNetworkLink)
	return err
}

// canonical returns the links sorted, without duplicates.
func (links NetworkLinks) canonical() (list NetworkLinks, err error) {
	if len(links) > MaxNetworkLinks {
		return nil, Errorf(Invalid, "a sandbox may have at most %d links", MaxNetworkLinks).Naming(AboutField, "network.links")
	}
	names := map[string]bool{}
	for _, l := range links {
		if err := l.Check(); err != nil {
			return nil, err
		}
		if slices.Contains(list, l) {
			continue
		}
		if names[l.Name] {
			return nil, Errorf(Invalid, "two links have the name %s: give one another, as NAME=ID", l.Name).Naming(AboutField, "network.links")
		}
		names[l.Name] = true
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b NetworkLink) int { return strings.Compare(a.String(), b.String()) })
	return list, nil
}
