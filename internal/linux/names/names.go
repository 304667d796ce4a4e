// Package names is what a sandbox knows of names without asking anybody.
package names

// Hosts is the text of /etc/hosts in a sandbox: the machine itself, also by its
// host name, which may be empty.
func Hosts(hostname string) string {
	if hostname != "" {
		hostname = " " + hostname
	}
	return "127.0.0.1 localhost" + hostname + "\n::1 localhost ip6-localhost ip6-loopback\n"
}
