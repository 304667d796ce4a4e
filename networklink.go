package hutch

import (
	"slices"
	"strings"
)

// NetworkLink is another sandbox that one may reach, by a name below
// [LinkDomain]. To reach a port there wakes it.
type NetworkLink struct {
	Name    string // what it is called inside, without the domain
	Sandbox string // its id
}

const (
	// LinkDomain is behind the names of links: "db" is db.sandbox.internal.
	LinkDomain = ".sandbox.internal"
	// MaxNetworkLinks is how many a sandbox may have.
	MaxNetworkLinks = 64
)

var linkName = pattern(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ParseNetworkLink reads ID, for the name that is the sandbox's id, or NAME=ID.
func ParseNetworkLink(text string) (NetworkLink, error) {
	name, id, named := strings.Cut(text, "=")
	if !named {
		id = name
	}
	if !linkName().MatchString(name) || CheckID(id) != nil {
		return NetworkLink{}, Errorf(Invalid, "%.120q is no link: write the id of another sandbox, or NAME=ID with a name of a-z, 0-9 and hyphens", text).Naming(AboutField, "network.links")
	}
	return NetworkLink{name, id}, nil
}

// String is the link as text.
func (l NetworkLink) String() string {
	if l.Name == l.Sandbox {
		return l.Name
	}
	return l.Name + "=" + l.Sandbox
}

// canonicalLinks are the links in their one form and order.
func canonicalLinks(texts []string) (links []string, err error) {
	if len(texts) > MaxNetworkLinks {
		return nil, Errorf(Invalid, "%d links are more than the %d that a sandbox may have", len(texts), MaxNetworkLinks).Naming(AboutField, "network.links")
	}
	names := map[string]bool{}
	for _, text := range texts {
		l, err := ParseNetworkLink(text)
		if err != nil {
			return nil, err
		}
		if text = l.String(); slices.Contains(links, text) {
			continue
		}
		if names[l.Name] {
			return nil, Errorf(Invalid, "two links have the name %s: give one another, as NAME=ID", l.Name).Naming(AboutField, "network.links")
		}
		names[l.Name] = true
		links = append(links, text)
	}
	slices.Sort(links)
	return links, nil
}
