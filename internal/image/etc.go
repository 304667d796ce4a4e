package image

import (
	"io/fs"
	"path/filepath"

	"hutch/internal/linux/names"
	"hutch/internal/linux/tun"
)

// allowed lists what the image takes from the host's /etc, as patterns: files that programs need and that hold no
// secrets. These are left out on purpose, although programs read them: pip.conf, npmrc, wgetrc, gitconfig,
// Renviron.site, maven/settings.xml, odbc*.ini, profile.d and environment (they can hold credentials), ssl/private and
// ssh (keys), machine-id (it identifies the host).
var allowed = []string{
	// the dynamic linker, and the choice between programs of one name
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-*.path", "alternatives",
	// certificates, and which algorithms are trusted
	"ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ca-certificates/extracted",
	"pki/ca-trust/extracted", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/java", "crypto-policies",
	// name of the system, time zone and locale
	"os-release", "lsb-release", "debian_version", "redhat-release", "alpine-release",
	"localtime", "timezone", "locale.alias", "locale.conf",
	// names and numbers
	"services", "protocols", "rpc", "ethertypes", "mime.types", "mailcap", "magic", "magic.mime",
	// terminals and editors
	"inputrc", "terminfo", "vim", "nanorc", "groff", "manpath.config",
	// text and pictures
	"fonts", "matplotlibrc", "ImageMagick-*", "papersize", "texmf",
	// languages
	"java", "java-*", "perl", "python3*", "R/Makeconf", "R/Renviron", "R/Rprofile.site", "R/ldpaths", "R/repositories",
	"php/*/cli", "php/*/mods-available", "php.d", "php.ini", "maven/m2.conf", "maven/logging", "gdb",
}

// own are the files of /etc for which the image has its own version.
var own = map[string]string{
	"passwd": "root:x:0:0:root:/root:/bin/bash\n" +
		"user:x:1000:1000:user:/home/user:/bin/bash\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"group":         "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n",
	"hosts":         names.Hosts(""), // drivers cover it, too
	"hostname":      "sandbox\n",     // drivers that know the real name cover it
	"resolv.conf":   tun.Resolver,
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
	"shells":        "/bin/sh\n/bin/bash\n",
	"gitconfig":     "[safe]\n\tdirectory = *\n[init]\n\tdefaultBranch = main\n",
	// A login shell keeps its PATH; Debian's own profile would replace it.
	"profile": "[ -n \"$BASH\" ] && [ -f /etc/bash.bashrc ] && . /etc/bash.bashrc\numask 022\n",
	"bash.bashrc": "[ -z \"$PS1\" ] && return\nshopt -s checkwinsize\n" +
		"PS1='\\u@\\h:\\w\\$ '\n",
}

// walkEtc visits every file, folder and link of the allow-list, a folder before its content. It skips files that cannot
// be read.
func walkEtc(visit func(path string, entry fs.DirEntry) error) error {
	for _, pattern := range allowed {
		paths, err := filepath.Glob(filepath.Join("/etc", pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
				if err != nil {
					return nil
				}
				return visit(path, entry)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
