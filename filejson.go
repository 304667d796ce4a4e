package hutch

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxPath is the longest path in bytes, as in the kernel.
const MaxPath = 4095

// CheckPath refuses a string that cannot be a path.
func CheckPath(path string) error {
	switch {
	case path == "":
		return Errorf(Invalid, "the path is empty: give one such as /workspace/main.go").Naming(AboutField, "path")
	case len(path) > MaxPath:
		return Errorf(Invalid, "the path has %d bytes, over the limit of %d", len(path), MaxPath).Naming(AboutField, "path")
	case strings.Contains(path, "\x00"):
		return Errorf(Invalid, "the path %.200q holds a zero byte", path).Naming(AboutField, "path")
	}
	return nil
}

// In JSON, if one name of a record is not UTF-8, all names of the record are base64, and its encoding field says so.

func (f FileInfo) MarshalJSON() ([]byte, error) {
	type plain FileInfo
	j := struct {
		plain
		Encoding string `json:"encoding,omitempty"`
	}{plain: plain(f)}
	j.Encoding = armour(&j.Path, &j.Name, &j.Target)
	return json.Marshal(j)
}

func (f *FileInfo) UnmarshalJSON(b []byte) error {
	type plain FileInfo
	var j struct {
		plain
		Encoding string `json:"encoding"`
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*f = FileInfo(j.plain)
	return strip(j.Encoding, &f.Path, &f.Name, &f.Target)
}

func (m Match) MarshalJSON() ([]byte, error) {
	type plain Match
	j := struct {
		plain
		Encoding string `json:"encoding,omitempty"` // encoding of the path
	}{plain: plain(m)}
	j.Encoding = armour(&j.Path)
	return json.Marshal(j)
}

func (m *Match) UnmarshalJSON(b []byte) error {
	type plain Match
	var j struct {
		plain
		Encoding string `json:"encoding"`
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*m = Match(j.plain)
	return strip(j.Encoding, &m.Path)
}

func (e FileEvent) MarshalJSON() ([]byte, error) {
	type plain FileEvent
	j := struct {
		plain
		Encoding string `json:"encoding,omitempty"`
	}{plain: plain(e)}
	j.Encoding = armour(&j.Path, &j.From)
	return json.Marshal(j)
}

func (e *FileEvent) UnmarshalJSON(b []byte) error {
	type plain FileEvent
	var j struct {
		plain
		Encoding string `json:"encoding"`
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*e = FileEvent(j.plain)
	return strip(j.Encoding, &e.Path, &e.From)
}

// armour encodes the names as base64 if one of them is not UTF-8.
func armour(names ...*string) (encoding string) {
	for _, name := range names {
		if !utf8.ValidString(*name) {
			encoding = "base64"
		}
	}
	if encoding != "" {
		for _, name := range names {
			*name = base64.StdEncoding.EncodeToString([]byte(*name))
		}
	}
	return encoding
}

// strip undoes armour.
func strip(encoding string, names ...*string) error {
	if encoding == "" {
		return nil
	}
	for _, name := range names {
		b, err := base64.StdEncoding.DecodeString(*name)
		if err != nil || encoding != "base64" {
			return fmt.Errorf("name %.40q in encoding %.20q", *name, encoding)
		}
		*name = string(b)
	}
	return nil
}
