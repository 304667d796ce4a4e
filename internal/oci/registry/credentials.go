package registry

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"hutch"
)

// Credentials returns the login for a registry, such as docker.io or registry.example:5000; false for an anonymous
// caller. For the mirrors of a registry it gets the mirrors' names.
type Credentials func(registry string) (Credential, bool)

// Credential is a name and a password, or one of the tokens that a registry gave.
type Credential struct {
	Username, Password string
	IdentityToken      string // exchanged for access
	RegistryToken      string // sent unchanged
}

const dockerHub = "docker.io"

// DockerConfig reads the "auths" of Docker's config.json. Programs that it names for credentials are not run.
func DockerConfig(config []byte) (Credentials, error) {
	var file struct {
		Auths map[string]struct{ Auth, Username, Password, IdentityToken, RegistryToken string }
	}
	if err := json.Unmarshal(config, &file); err != nil {
		return nil, badConfig()
	}
	known := map[string]Credential{}
	for host, a := range file.Auths {
		c := Credential{a.Username, a.Password, a.IdentityToken, a.RegistryToken}
		if a.Auth != "" {
			pair, err := base64.StdEncoding.DecodeString(a.Auth)
			user, password, ok := strings.Cut(strings.TrimRight(string(pair), "\x00"), ":")
			if err != nil || !ok {
				return nil, badConfig()
			}
			c.Username, c.Password = user, password
		}
		known[registryOf(host)] = c
	}
	return func(registry string) (Credential, bool) {
		c, ok := known[registry]
		return c, ok
	}, nil
}

func badConfig() error {
	return hutch.Errorf(hutch.Invalid, `the credentials are not as in Docker's config.json: write {"auths":{"HOST":{"auth":"base64 of USER:PASSWORD"}}}`)
}

// registryOf is the registry that a key of Docker's file means: https://index.docker.io/v1/ is docker.io.
func registryOf(key string) string {
	if _, rest, ok := strings.Cut(key, "://"); ok {
		key = rest
	}
	host, _, _ := strings.Cut(key, "/")
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		return dockerHub
	}
	return host
}
