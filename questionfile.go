package hutch

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"
)

// questionFileJSON is QuestionFile on the wire. The content is a string; if it is not UTF-8, it is base64, and encoding
// says so.
type questionFileJSON struct {
	Path     string `json:"path"`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty"` // "utf-8", which is the default, or "base64"
	Size     int64  `json:"size,omitempty"`
	Omitted  bool   `json:"omitted,omitempty"`
}

func (f QuestionFile) MarshalJSON() ([]byte, error) {
	j := questionFileJSON{Path: f.Path, Content: string(f.Content), Size: f.Size, Omitted: f.Omitted}
	if !utf8.Valid(f.Content) {
		j.Content, j.Encoding = base64.StdEncoding.EncodeToString(f.Content), "base64"
	}
	return json.Marshal(j)
}

func (f *QuestionFile) UnmarshalJSON(b []byte) error {
	var j questionFileJSON
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return err
	}
	*f = QuestionFile{Path: j.Path, Content: []byte(j.Content), Size: j.Size, Omitted: j.Omitted}
	switch j.Encoding {
	case "", "utf-8", "utf8":
		return nil
	case "base64":
		var err error
		if f.Content, err = base64.StdEncoding.DecodeString(j.Content); err != nil {
			return Errorf(Invalid, "the content of the file %.80q is not base64", j.Path).Naming(AboutField, "files")
		}
		return nil
	}
	return Errorf(Invalid, "the encoding %.40q of the file %.80q is unknown: use utf-8 or base64", j.Encoding, j.Path).Naming(AboutField, "files")
}
