package interpreter

import (
	"encoding/json"
	"strings"

	"hutch"
	"hutch/internal/jsoncount"
)

// fields are the names that E2B has for the forms of a value, by MIME type.
var fields = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg",
	"application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript",
	chartType: "chart",
}

const (
	chartType = "application/vnd.hutch.chart+json"
	tableType = "application/vnd.hutch.table+json"
)

// resultLine returns the line of a value. Forms that E2B has no name for are in its field "extra".
func resultLine(r hutch.CodeResult) map[string]any {
	line := map[string]any{"type": "result", "is_main_result": r.Main}
	extra := map[string]json.RawMessage{}
	for mime, form := range r.Data {
		switch field, known := fields[mime]; {
		case mime == "text/plain":
			line[field] = unquoted(form)
		case known:
			line[field] = form
		case mime == tableType:
			if columns := columnsOf(form); columns != nil {
				line["data"] = columns
			}
		default:
			extra[mime] = form
		}
	}
	if len(extra) > 0 {
		line["extra"] = extra
	}
	return line
}

// unquoted removes one pair of quotes around a text, as E2B does: the value 'a' of Python is shown as a.
func unquoted(form json.RawMessage) any {
	var text string
	if json.Unmarshal(form, &text) != nil {
		return form
	}
	for _, quote := range []string{"'", `"`} {
		if len(text) > 1 && strings.HasPrefix(text, quote) && strings.HasSuffix(text, quote) {
			return text[1 : len(text)-1]
		}
	}
	return text
}

// maxCells bounds a table that is turned into columns: code can put any table into a result.
const maxCells = 100_000

// columnsOf returns a table in E2B's form: an object with a list of values for each column, in the order of the
// columns. It has the rows that we show, which are the first 100. For other values it returns nil.
func columnsOf(form json.RawMessage) json.RawMessage {
	if jsoncount.Values(form) > 2*maxCells { // decoded, its values could take twenty times the memory of the text
		return nil
	}
	var table struct {
		Columns []string            `json:"columns"`
		Rows    [][]json.RawMessage `json:"rows"`
	}
	if json.Unmarshal(form, &table) != nil || table.Columns == nil || len(table.Columns)*len(table.Rows) > maxCells {
		return nil
	}
	object := []byte{'{'}
	for i, name := range table.Columns {
		values := []json.RawMessage{}
		for _, row := range table.Rows {
			if i < len(row) {
				values = append(values, row[i])
			}
		}
		key, _ := json.Marshal(name) // never fails
		list, err := json.Marshal(values)
		if err != nil {
			return nil
		}
		if i > 0 {
			object = append(object, ',')
		}
		object = append(append(append(object, key...), ':'), list...)
	}
	return append(object, '}')
}
