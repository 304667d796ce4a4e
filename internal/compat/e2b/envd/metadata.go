package envd

import (
	"net/http"
	"strings"

	"hutch"
)

// Metadata of files. Clients send metadata as headers of an upload. It is stored in attributes of the file, whose names
// begin with metadataPrefix, so programs inside can read and change it, too.
const (
	metadataHeader = "X-Metadata-"
	metadataPrefix = "e2b."
)

// The bounds that E2B has for metadata, in bytes: of a name, and of all names and values together.
const (
	maxMetadataName = 246
	maxMetadata     = 4096
)

// metadataOf reads the metadata of an upload, as attributes of its files.
func metadataOf(header http.Header) (map[string]string, error) {
	var attributes map[string]string
	size := 0
	for name, values := range header {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		value := values[0]
		if size += len(key) + len(value); len(values) > 1 || key == "" || len(key) > maxMetadataName || size > maxMetadata || !printable(key) || !printable(value) {
			return nil, rpcErrorf(invalidArgument, "the metadata %.100q cannot be kept: give each name once, printable ASCII, at most %d bytes of a name and %d of all", key, maxMetadataName, maxMetadata)
		}
		if attributes == nil {
			attributes = map[string]string{}
		}
		attributes[metadataPrefix+key] = value
	}
	return attributes, hutch.CheckAttributes(attributes)
}

func printable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// metadataIn returns the metadata among the attributes of a file; nil for none.
func metadataIn(attributes map[string]string) map[string]string {
	var found map[string]string
	for name, value := range attributes {
		key, ok := strings.CutPrefix(name, metadataPrefix)
		if !ok || key == "" {
			continue
		}
		if found == nil {
			found = map[string]string{}
		}
		found[key] = value
	}
	return found
}
