// Package names holds the names that a sandbox resolves without DNS.
package names

// Hosts returns the text of /etc/hosts in a sandbox. It resolves localhost and the sandbox's host name, if that is not
// empty.
func Hosts(hostname string) string {
	if hostname != "" {
		hostname = " " + hostname
	}
	return "127.0.0.1 localhost" + hostname + "\n::1 localhost ip6-localhost ip6-loopback\n"
}
