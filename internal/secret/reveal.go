package secret

// Reveal returns a key as ParseKey reads it, for another machine that needs it.
func Reveal(k *Key) string { return k.identity.String() }
