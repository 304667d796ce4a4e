package main

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// parsePreviewDomain reads the domain of previews: a name, or a URL with one.
func parsePreviewDomain(text string) (url.URL, error) {
	at, err := url.Parse(text)
	if err == nil && at.Scheme == "" {
		at, err = url.Parse("//" + text)
	}
	wrong := usageError{fmt.Errorf("--preview-domain is %q: give a domain such as preview.example.com, or https:// before one", text)}
	if err != nil {
		return url.URL{}, wrong
	}
	name := strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(at.Hostname(), "*"), "."))
	switch {
	case name == "" || strings.Trim(at.Path, "/") != "" || net.ParseIP(name) != nil,
		at.Scheme != "" && at.Scheme != "http" && at.Scheme != "https":
		return url.URL{}, wrong
	}
	if at.Port() != "" {
		name += ":" + at.Port()
	}
	return url.URL{Scheme: at.Scheme, Host: name}, nil
}
