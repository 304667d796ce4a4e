package secret

import (
	"encoding/base64"
	"slices"
	"strings"
)

// publicHeaders are headers whose values are public, and are common in answers: if those were masked, answers would
// be damaged.
var publicHeaders = []string{
	"Accept", "Accept-Charset", "Accept-Language", "Cache-Control", "Content-Language", "Content-Type", "Dnt", "From", "Origin", "Pragma", "Prefer",
	"Referer", "User-Agent",
}

// isPublicHeader reports whether the value of a header is not a secret. Many APIs have headers for their version.
func isPublicHeader(name string) bool {
	return slices.Contains(publicHeaders, name) || strings.HasSuffix(name, "-Version") || strings.HasSuffix(name, "-Beta")
}

// maskedInHeader returns the secrets in the value of a header, which a host can show without the text around them: the
// value, the credentials after the word that names their scheme, the password in basic authentication, and long parts,
// such as those of a cookie.
func maskedInHeader(name, value string) []string {
	if isPublicHeader(name) {
		return nil
	}
	list := []string{value}
	scheme, rest, ok := strings.Cut(value, " ")
	if ok && !strings.Contains(scheme, "=") {
		list = append(list, strings.TrimSpace(rest))
	}
	if pair, err := base64.StdEncoding.DecodeString(rest); err == nil && strings.EqualFold(scheme, "basic") {
		_, password, _ := strings.Cut(string(pair), ":")
		list = append(list, string(pair), password)
	}
	for _, part := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(` ,;="`, r) }) {
		if len(part) >= minLine {
			list = append(list, part)
		}
	}
	return list
}
