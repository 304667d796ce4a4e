package hutch

import (
	"fmt"
	"strconv"
)

// FileMode is the permission bits of a file, with setuid, setgid and the sticky bit. Its text is octal, such as 0644.
type FileMode uint32

// ParseFileMode reads octal digits, such as 0644 or 755.
func ParseFileMode(text string) (FileMode, error) {
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o7777 {
		return 0, Errorf(Invalid, "the mode %.80q cannot be read: give permissions in octal, such as 0644", text).Naming(AboutField, "mode")
	}
	return FileMode(n), nil
}

// Check refuses a mode that cannot be set: a request gives permissions only.
func (m FileMode) Check() error {
	if m > 0o777 {
		return Errorf(Invalid, "mode is %v: use permissions only, 0 to 0777", m).Naming(AboutField, "mode")
	}
	return nil
}

// String returns four octal digits.
func (m FileMode) String() string {
	b, _ := m.MarshalText()
	return string(b)
}

// MarshalText implements encoding.TextMarshaler.
func (m FileMode) MarshalText() ([]byte, error) {
	return []byte{'0' + byte(m>>9&7), '0' + byte(m>>6&7), '0' + byte(m>>3&7), '0' + byte(m&7)}, nil
}

// UnmarshalText implements encoding.TextUnmarshaler. It accepts the output of MarshalText.
func (m *FileMode) UnmarshalText(text []byte) (err error) {
	if len(text) != 4 {
		return fmt.Errorf("mode %.20q is not four octal digits", text)
	}
	*m, err = ParseFileMode(string(text))
	return err
}
