package hutch

import (
	"context"
	"strings"
	"time"
)

// Secrets are the verbs on named secrets. Every owner has some of their own;
// beside them are the server's, which all may use. Values go in, and come out
// nowhere but in the environment of programs that ask for them.
type Secrets interface {
	// SetSecret keeps a secret under a name, in place of the one that is there.
	SetSecret(ctx context.Context, name string, req SecretRequest) (Secret, error)

	// Secrets lists the caller's secrets and the server's, by name.
	Secrets(ctx context.Context) ([]Secret, error)

	// DeleteSecret forgets a secret. One that is not there is NotFound.
	DeleteSecret(ctx context.Context, name string) error
}

// SecretRequest sets a secret.
type SecretRequest struct {
	Value string `json:"value"`
	// Brokered, when set, keeps the value out of sandboxes.
	Brokered *Brokering `json:"brokered,omitempty"`
}

// Check refuses a value that no secret can have. [Brokering.Complete] checks
// where a brokered one goes.
func (r SecretRequest) Check() error {
	switch {
	case r.Value == "":
		return Errorf(Invalid, "the value is empty: give one, or delete the secret").Naming(AboutField, "value")
	case len(r.Value) > MaxSecret:
		return Errorf(Invalid, "the value has %d bytes, over the limit of %d", len(r.Value), MaxSecret).Naming(AboutField, "value")
	case strings.Contains(r.Value, "\x00"):
		return Errorf(Invalid, "the value holds a NUL byte, which no environment variable can: encode it, in base64 say").Naming(AboutField, "value")
	}
	return nil
}

// Secret is the record of a secret, without its value.
type Secret struct {
	Name string `json:"name"`
	// Shared tells that it is the server's: all may use it, and none change it.
	Shared    bool       `json:"shared,omitempty"`
	UpdatedAt *time.Time `json:"updatedAt,omitempty"` // none where Shared
	// Redacted tells that its value is replaced in what comes out. One of less
	// than MinRedacted bytes is not: it would be found everywhere.
	Redacted bool       `json:"redacted"`
	Brokered *Brokering `json:"brokered,omitempty"`
}

const (
	MinRedacted = 6        // bytes of the shortest value that is replaced in output
	MaxSecret   = 32 << 10 // bytes of a value
)

var variable = pattern(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// CheckSecretName refuses what cannot be the name of a secret.
func CheckSecretName(name string) error {
	if !variable().MatchString(name) {
		return Errorf(Invalid, "the secret name %.80q cannot be used: give 1 to 64 letters, digits and underscores that begin with no digit, such as GITHUB_TOKEN", name).Naming(AboutField, "name")
	}
	return nil
}

// ParseSecretUse reads how a request names a secret: NAME, for the environment
// variable of that name, or VARIABLE=NAME.
func ParseSecretUse(use string) (variableName, name string, err error) {
	variableName, name, renamed := strings.Cut(use, "=")
	if !renamed {
		name = variableName
	}
	if !variable().MatchString(variableName) || !variable().MatchString(name) {
		return "", "", Errorf(Invalid, "%.120q asks for no secret: write NAME, or VARIABLE=NAME for a variable of another name", use).Naming(AboutField, "secrets")
	}
	return variableName, name, nil
}
