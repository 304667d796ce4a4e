package registry

// Credentials returns the login for a registry, such as docker.io or registry.example:5000; false for an anonymous
// caller. For the mirrors of a registry it gets the mirrors' names.
type Credentials func(registry string) (Credential, bool)

// Credential is a name and a password.
type Credential struct {
	Username, Password string
}

const dockerHub = "docker.io"
