package hutch

import (
	"context"
	"strings"
	"time"
)

// Secrets are the verbs on named secrets. Every owner has separate secrets; the server's secrets are open to all
// owners. A value appears only in the environment of programs that request it.
type Secrets interface {
	// SetSecret stores a secret under a name, and replaces an existing one.
	SetSecret(ctx context.Context, name string, req SecretRequest) (Secret, error)

	// Secrets lists the caller's secrets and the server's, by name.
	Secrets(ctx context.Context) ([]Secret, error)

	// DeleteSecret removes a secret. A name without a secret is NotFound.
	DeleteSecret(ctx context.Context, name string) error
}

// SecretRequest sets a secret.
type SecretRequest struct {
	Value string `json:"value"`
	// Brokered, when set, keeps the value out of sandboxes.
	Brokered *Brokering `json:"brokered,omitempty"`
	// Labels replace those of an existing secret; nil keeps them.
	Labels map[string]string `json:"labels,omitzero"`
	// Create refuses to replace an existing secret of the caller, as a Conflict.
	Create bool `json:"create,omitempty"`
}

// Check refuses a value that no secret can have. [Brokering.Complete] checks the destination of a brokered secret.
func (r SecretRequest) Check() error {
	switch {
	case r.Value == "":
		return Errorf(Invalid, "the value is empty: give one, or delete the secret").Naming(AboutField, "value")
	case len(r.Value) > MaxSecret:
		return Errorf(Invalid, "the value has %d bytes, over the limit of %d", len(r.Value), MaxSecret).Naming(AboutField, "value")
	case strings.Contains(r.Value, "\x00"):
		return Errorf(Invalid, "the value holds a NUL byte, which no environment variable can: encode it, in base64 say").Naming(AboutField, "value")
	}
	return checkLabels(r.Labels)
}

// Secret is the record of a secret, without its value.
type Secret struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	// Version counts the values that the secret has had; 0 if Shared.
	Version   int        `json:"version,omitempty"`
	CreatedAt *time.Time `json:"createdAt,omitempty"` // nil if Shared
	// Shared says that the secret is the server's: all owners can use it, and none can change it.
	Shared    bool       `json:"shared,omitempty"`
	UpdatedAt *time.Time `json:"updatedAt,omitempty"` // nil if Shared
	// Redacted says that the server replaces the value in output. A value shorter than MinRedacted bytes is not
	// replaced: it would match everywhere.
	Redacted bool       `json:"redacted"`
	Brokered *Brokering `json:"brokered,omitempty"`
}

const (
	MinRedacted = 6        // shortest value, in bytes, that is replaced in output
	MaxSecret   = 32 << 10 // bytes of a value
)

var variable = pattern(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// CheckSecretName refuses an invalid name of a secret.
func CheckSecretName(name string) error {
	if !variable().MatchString(name) {
		return Errorf(Invalid, "the secret name %.80q cannot be used: give 1 to 64 letters, digits and underscores, with no digit at the beginning, such as GITHUB_TOKEN", name).Naming(AboutField, "name")
	}
	return nil
}

// ParseSecretUse reads a request's reference to a secret: NAME, for the environment variable of that name, or
// VARIABLE=NAME.
func ParseSecretUse(use string) (variableName, name string, err error) {
	variableName, name, renamed := strings.Cut(use, "=")
	if !renamed {
		name = variableName
	}
	if !variable().MatchString(variableName) || !variable().MatchString(name) {
		return "", "", Errorf(Invalid, "%.120q does not name a secret: write NAME, or VARIABLE=NAME for a variable of another name", use).Naming(AboutField, "secrets")
	}
	return variableName, name, nil
}
