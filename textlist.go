package hutch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Lists of values that are written as text. A text that cannot be parsed is kept in the list: the JSON of a request is
// read before the caller's scope is checked, and no request may be refused before that.

// readList reads a JSON list of texts. It keeps at most one value more than the maximum: that is enough to refuse the
// list, and a value takes more memory than its text.
func readList[T any](b []byte, most int, read func(string) T) ([]T, error) {
	var texts []string
	if err := json.Unmarshal(b, &texts); err != nil {
		return nil, err
	}
	return readAll(texts[:min(len(texts), most+1)], read), nil
}

func readAll[T any](texts []string, read func(string) T) []T {
	list := slices.Grow([]T(nil), len(texts))
	for _, text := range texts {
		list = append(list, read(text))
	}
	return list
}

func joinTexts[T fmt.Stringer](list []T) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = v.String()
	}
	return strings.Join(texts, " ")
}
