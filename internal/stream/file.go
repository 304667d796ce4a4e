package stream

import (
	"encoding/json"
	"fmt"
	"unicode/utf16"

	"hutch"
)

// FileHeader is the HTTP header with the hutch.FileInfo of an opened file, as JSON in ASCII.
const FileHeader = "Hutch-File"

// FormatFile returns the value of FileHeader for a file.
func FormatFile(f hutch.FileInfo) string {
	text, err := json.Marshal(f)
	if err != nil {
		return ""
	}
	ascii := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r < 0x7f:
			ascii = append(ascii, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			ascii = fmt.Appendf(ascii, `\u%04x\u%04x`, high, low)
		default:
			ascii = fmt.Appendf(ascii, `\u%04x`, r)
		}
	}
	return string(ascii)
}

// ParseFile parses the value of FileHeader.
func ParseFile(value string) (f hutch.FileInfo, err error) {
	err = json.Unmarshal([]byte(value), &f)
	return f, err
}
