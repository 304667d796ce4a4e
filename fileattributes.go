package hutch

import (
	"strings"
	"unicode/utf8"
)

// The limits of a file's attributes, in bytes: for a name, and for all names and values together. File systems store
// little more.
const (
	maxAttributeName = 250
	maxAttributes    = 4096
)

// CheckAttributes refuses extended attributes that a file cannot have here: names have 1 to 250 bytes, values are UTF-8,
// neither has a zero byte, and all together have at most 4096 bytes.
func CheckAttributes(attributes map[string]string) error {
	size := 0
	for name, value := range attributes {
		size += len(name) + len(value)
		if name == "" || len(name) > maxAttributeName || !isText(name) || !isText(value) {
			return Errorf(Invalid, "the attribute %.100q cannot be kept: its name has 1 to %d bytes, and name and value are UTF-8 without zero bytes", name, maxAttributeName).Naming(AboutField, "attributes")
		}
	}
	if size > maxAttributes {
		return Errorf(Invalid, "the attributes have %d bytes together: at most %d are possible", size, maxAttributes).Naming(AboutField, "attributes")
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
