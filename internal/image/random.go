package image

import (
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A program that keeps its next random numbers in memory would give the same ones in every copy of its sandbox. The
// image therefore makes OpenSSL and Node ask the kernel each time: see random/provider.c and random/node.cjs.
const (
	providerFile = "/etc/hutch/random.so"
	nodeFile     = "/etc/hutch/random.cjs"
)

//go:embed random/node.cjs
var randomNode string

// opensslConfigs are where systems keep the configuration of OpenSSL.
var opensslConfigs = []string{"/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf"}

// drawFromKernel makes OpenSSL and Node use the kernel's random numbers.
func (s *skeleton) drawFromKernel() error {
	if err := errors.Join(s.mkdirAll(filepath.Dir(nodeFile)), s.write(nodeFile, randomNode)); err != nil {
		return err
	}
	s.Env = append(s.Env, "NODE_OPTIONS=--require="+nodeFile)
	if randomProvider == "" {
		return nil
	}
	if err := s.write(providerFile, randomProvider); err != nil {
		return err
	}
	config, err := s.configureOpenSSL()
	s.Env = append(s.Env, "OPENSSL_CONF="+config) // for programs that look elsewhere, such as Node
	return err
}

// configureOpenSSL adds the provider to the host's configuration, and returns its path. A host without a configuration
// gets one with only the provider.
func (s *skeleton) configureOpenSSL() (first string, err error) {
	for _, path := range opensslConfigs {
		inside, ok := s.follow(path)
		if !ok || inside == first || s.onHost(inside) != filepath.Join(s.Dir, inside) {
			continue
		}
		text, err := os.ReadFile(s.onHost(inside))
		if err != nil {
			return "", err
		}
		if err := s.write(inside, withProvider(string(text))); err != nil {
			return "", err
		}
		if first == "" {
			first = inside
		}
	}
	if first != "" {
		return first, nil
	}
	path := opensslConfigs[0]
	if err := s.mkdirAll(filepath.Dir(path)); err != nil {
		return "", err
	}
	return path, s.write(path, withProvider(""))
}

// withProvider returns a configuration of OpenSSL with our provider in it. The host's decisions about providers and
// random numbers are kept: a host that allows only certain providers, such as FIPS, keeps them and its generators.
//
// OpenSSL merges sections of one name, and the last value of a name counts. Node reads nodejs_conf instead of
// openssl_conf. The ? before the property allows another generator where this provider is missing.
func withProvider(text string) string {
	c := parseConfig(text)
	top := ""
	start := c["default"]["openssl_conf"]
	if start == "" {
		start = "hutch_start"
		top = "openssl_conf = " + start + "\n"
	}
	providers := c[start]["providers"]
	if c[start]["random"] != "" || providers != "" && c[providers]["default"] == "" {
		start = ""
	}
	if c["default"]["nodejs_conf"] == "" {
		top += "nodejs_conf = hutch_node\n"
	}
	all := top + text + "\n# From here on by Hutch: random numbers are the kernel's, so that copies of a sandbox share none.\n"
	if start != "" && providers == "" {
		all += "[" + start + "]\nproviders = hutch_providers\n"
	} else if start != "" {
		all += "[" + providers + "]\nhutch = hutch_provider\n[" + c[providers]["default"] + "]\nactivate = 1\n"
	}
	if start != "" {
		all += "[" + start + "]\nrandom = hutch_random\n"
	}
	return all + `[hutch_node]
providers = hutch_providers
random = hutch_random
[hutch_providers]
default = hutch_default
hutch = hutch_provider
[hutch_default]
activate = 1
[hutch_provider]
module = ` + providerFile + `
activate = 1
[hutch_random]
properties = ?provider=hutch
`
}

var configLine = regexp.MustCompile(`^\s*(?:\[\s*([^\]]*?)\s*\]|([^#=\s]+)\s*=\s*([^#]*?)\s*(?:#.*)?$)`)

// parseConfig parses the sections of a configuration, without included files.
func parseConfig(text string) map[string]map[string]string {
	section, all := "default", map[string]map[string]string{}
	for line := range strings.Lines(text) {
		m := configLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		switch {
		case m == nil:
			continue
		case m[2] == "":
			section = m[1]
			continue
		case all[section] == nil:
			all[section] = map[string]string{}
		}
		all[section][m[2]] = m[3]
	}
	return all
}
