package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"hutch"
)

// hiddenFlags are the settings of a network that have hidden values: headers, and the proxy. A command line is visible
// to other programs, so it has only their names. The values are asked for, or read from standard input.
type hiddenFlags struct {
	headers []string // HOST:NAME
	proxy   string

	values   []hutch.HiddenValue // of the headers, in their order
	password hutch.HiddenValue   // of the proxy
}

func (h *hiddenFlags) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&h.headers, "header", nil, "set a header of requests to a host, as HOST:NAME; the value is asked for or read from standard input")
	f.StringVar(&h.proxy, "proxy", "", "send TCP connections through a SOCKS5 server, as HOST:PORT or USER@HOST:PORT; the password of USER is asked for or read from standard input")
}

func (h *hiddenFlags) isZero() bool { return len(h.headers) == 0 && h.proxy == "" }

// read reads the values of the headers, in their order, and then the password of the proxy.
func (h *hiddenFlags) read(ctx context.Context, std streams) error {
	var names []string
	for _, header := range h.headers {
		host, name := cutHeader(header)
		if host == "" || name == "" {
			return usageError{fmt.Errorf("--header is %q: give HOST:NAME, such as api.example.com:Authorization", header)}
		}
		names = append(names, "value of "+name+" for "+host)
	}
	user, address := cutProxy(h.proxy)
	if h.proxy != "" && address == "" {
		return usageError{errors.New("--proxy has no address: give HOST:PORT or USER@HOST:PORT")}
	}
	if strings.Contains(user, ":") {
		return usageError{errors.New("--proxy has a password: leave it out, as USER@HOST:PORT; it is asked for, or read from standard input")}
	}
	if user != "" {
		names = append(names, "password of "+user)
	}
	values, err := readHidden(ctx, std, names)
	if err != nil {
		return err
	}
	h.values = nil
	for i, header := range h.headers {
		if values[i] == "" {
			_, name := cutHeader(header)
			return hutch.Errorf(hutch.Invalid, "the value of %s is empty: type it, or pipe it in; to remove the header of a sandbox, use `hutch network SANDBOX --unset-header %s`", name, header)
		}
		h.values = append(h.values, hutch.HiddenValue(values[i]))
	}
	if user != "" {
		h.password = hutch.HiddenValue(values[len(values)-1])
	}
	return nil
}

// readHidden reads one hidden value for each name. If several values are piped in, each is on its own line.
func readHidden(ctx context.Context, std streams, names []string) ([]string, error) {
	if len(names) > 1 && !isTerminal(std.in) {
		return readLines(std.in, names)
	}
	var values []string
	for _, name := range names {
		value, err := readSecret(ctx, std, name)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// readLines reads one value for each name, each on its own line.
func readLines(in io.Reader, names []string) ([]string, error) {
	const most = 2 * hutch.MaxSecret // the server accepts less
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most {
		return nil, usageError{fmt.Errorf("the standard input has more than %d bytes, which no values of headers and proxies have", most)}
	}
	lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n"), "\n")
	if len(lines) != len(names) {
		return nil, usageError{fmt.Errorf("%d values are needed, one on each line, and the standard input has %d: give them in this order: %s", len(names), len(lines), strings.Join(names, ", "))}
	}
	return lines, nil
}

// setProxy returns n with the proxy, if the flags name one.
func (h *hiddenFlags) setProxy(n hutch.Network) hutch.Network {
	user, address := cutProxy(h.proxy)
	if address != "" {
		n.Proxy = &hutch.NetworkProxy{Address: address, Username: user, Password: h.password}
	}
	return n
}

// changeHeaders sets headers of the rules and removes others. The headers that stay have empty values: the server has
// the real ones.
func (h *hiddenFlags) changeHeaders(rules hutch.HeaderRules, unset []string) (hutch.HeaderRules, error) {
	all := map[string]map[string]hutch.HiddenValue{}
	for _, r := range rules {
		all[r.Host] = r.Headers
	}
	for _, text := range unset {
		host, name := cutHeader(text)
		if _, ok := all[host][name]; !ok {
			return nil, hutch.Errorf(hutch.NotFound, "there is no header %s to remove: without flags, the command lists all headers", text)
		}
		delete(all[host], name)
	}
	for i, header := range h.headers {
		host, name := cutHeader(header)
		if all[host] == nil {
			all[host] = map[string]hutch.HiddenValue{}
		}
		all[host][name] = h.values[i]
	}
	var changed hutch.HeaderRules
	for _, host := range slices.Sorted(maps.Keys(all)) {
		if len(all[host]) > 0 {
			changed = append(changed, hutch.HeaderRule{Host: host, Headers: all[host]})
		}
	}
	return changed, nil
}

// cutProxy splits USER@HOST:PORT; without USER@ there is no user.
func cutProxy(text string) (user, address string) {
	text = strings.TrimPrefix(text, "socks5://")
	i := strings.LastIndexByte(text, '@')
	return text[:max(i, 0)], text[i+1:]
}

// cutHeader splits HOST:NAME, into the forms that the server lists. A host can have a port.
func cutHeader(text string) (host, name string) {
	i := strings.LastIndexByte(text, ':')
	host = strings.TrimSuffix(strings.ToLower(text[:max(i, 0)]), ":443")
	return host, http.CanonicalHeaderKey(text[i+1:])
}
