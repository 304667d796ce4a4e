package registry

// Credentials returns the login for a registry, such as docker.io or registry.example:5000; false for an anonymous
// caller. For a mirror of a registry, it is called with the name of the mirror.
type Credentials func(registry string) (Credential, bool)

// Credential is a name and a password.
type Credential struct {
	Username, Password string
}

const dockerHub = "docker.io"
