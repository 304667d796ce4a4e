package hutch

import "testing"

// A registry cannot get the login of another registry that has a similar name.
func TestRegistrySecret(t *testing.T) {
	seen := map[string]string{}
	for _, registry := range []string{"ghcr.io", "my.corp.com", "my-corp.com", "my-corp-com.net", "my.corp-com.net", "a--b.io", "a-b.io", "a.io:5000", "a.io.5000", "a-io:5000", "[::1]:5000"} {
		name := RegistrySecret(registry)
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s share the secret %s", registry, other, name)
		}
		seen[name] = registry
		if err := CheckSecretName(name); err != nil {
			t.Error(err)
		}
	}
	if got := RegistrySecret("ghcr.io"); got != "REGISTRY_GHCR_IO" {
		t.Error(got)
	}
}
