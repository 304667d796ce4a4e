package hutch

import (
	"slices"
	"strings"
)

// NetworkLink is another sandbox that this one can reach, by a name below [LinkDomain]. Connecting to one of its
// ports wakes it.
type NetworkLink struct {
	Name    string // its name inside, without the domain
	Sandbox string // its id
}

const (
	// LinkDomain ends the names of links: "db" is db.sandbox.internal.
	LinkDomain = ".sandbox.internal"
	// MaxNetworkLinks is the highest number of links of a sandbox.
	MaxNetworkLinks = 64
)

var linkName = pattern(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ParseNetworkLink reads NAME=ID, or ID alone, whose name is then the id.
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

// String returns the link as text.
func (l NetworkLink) String() string {
	if l.Name == l.Sandbox {
		return l.Name
	}
	return l.Name + "=" + l.Sandbox
}

// canonicalLinks returns the links in their canonical form and order.
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
