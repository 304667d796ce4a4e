package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"hutch/internal/daemon"
	"hutch/internal/oci"
)

// imageFlags set where a server gets images from.
type imageFlags struct {
	allowed, mirrors, private, insecure []string
	proxy                               string
	most, room                          int64
	keep                                time.Duration
}

func (fl *imageFlags) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&fl.allowed, "registry", nil, "registry that images can come from, and no other, e.g. docker.io,ghcr.io (default: all on public addresses)")
	f.StringArrayVar(&fl.mirrors, "registry-mirror", nil, "a mirror that is asked before a registry, `REGISTRY=URL`, e.g. docker.io=https://mirror.example.com; may be repeated")
	f.StringSliceVar(&fl.private, "registry-private", nil, "registry that may have a private address, e.g. registry.internal:5000")
	f.StringSliceVar(&fl.insecure, "registry-insecure", nil, "registry without TLS, e.g. localhost:5000; it may have a private address")
	f.StringVar(&fl.proxy, "registry-proxy", "", "HTTP proxy to registries with public addresses, as `URL`, e.g. http://proxy.internal:3128")
	f.Int64Var(&fl.most, "max-image", 32<<10, "most MiB of unpacked files that an image can have")
	f.Int64Var(&fl.room, "image-room", 20<<10, "most MiB of disk that the images of one token can take")
	durationVar(f, &fl.keep, "image-keep", "", 30*24*time.Hour, "remove images that no sandbox, no snapshot and no create has used for this long; 0 keeps them")
}

// leastKeep is longer than any create takes, from resolving an image to its record.
const leastKeep = time.Hour

// set writes the flags into a configuration.
func (fl *imageFlags) set(c *daemon.Images) error {
	c.Allowed, c.Registries = fl.allowed, map[string]oci.Registry{}
	c.Limits.Bytes, c.Limits.Room, c.Keep = fl.most<<20, fl.room<<20, fl.keep
	if c.Keep != 0 && c.Keep < leastKeep {
		given, least := duration(c.Keep), duration(leastKeep)
		return usageError{fmt.Errorf("--image-keep is %s: give at least %s, or 0 to keep images for ever", &given, &least)}
	}
	if fl.proxy != "" {
		u, err := url.Parse(fl.proxy)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return usageError{fmt.Errorf("--registry-proxy is not an http or https URL: write http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT")}
		}
		c.Proxy = u
	}
	for _, text := range fl.mirrors {
		name, at, ok := strings.Cut(text, "=")
		u, err := url.Parse(at)
		if !ok || name == "" || err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return usageError{fmt.Errorf("--registry-mirror %s: write REGISTRY=URL, such as docker.io=https://mirror.example.com", withoutPassword(text))}
		}
		r := c.Registries[name]
		r.Mirrors = append(r.Mirrors, at)
		c.Registries[name] = r
	}
	for _, name := range fl.private {
		r := c.Registries[name]
		r.Private = true
		c.Registries[name] = r
	}
	for _, name := range fl.insecure {
		r := c.Registries[name]
		r.Private, r.Insecure = true, true
		c.Registries[name] = r
	}
	return nil
}
