package ask

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"hutch"
	"hutch/internal/runner"
	"hutch/internal/text"
)

// fence is a block of code in an answer, as CommonMark defines it.
type fence struct {
	tag    string // first word of the info string, in lower case
	code   string
	closed bool
}

// fences returns the blocks of an answer. A block ends with a line of at least as many of the same characters as it
// began with.
func fences(text string) (list []fence) {
	var mark string // mark of the open block
	var indent int
	var code strings.Builder
	for line := range strings.Lines(text) {
		bare := strings.TrimRight(line, " \t\r\n")
		body := strings.TrimLeft(bare, " ")
		switch {
		case mark == "":
			m := markOf(body)
			if m == "" || len(bare)-len(body) > 3 || m[0] == '`' && strings.Contains(body[len(m):], "`") {
				continue // indented code, or code in a line of text
			}
			mark, indent = m, len(bare)-len(body)
			list = append(list, fence{tag: tagOf(body[len(m):])})
			code.Reset()
		case len(markOf(body)) == len(body) && len(body) >= len(mark) && body[0] == mark[0] && len(bare)-len(body) <= 3:
			list[len(list)-1].code, list[len(list)-1].closed = code.String(), true
			mark = ""
		default:
			code.WriteString(unindent(line, indent))
		}
	}
	if mark != "" {
		list[len(list)-1].code = code.String()
	}
	return list
}

// markOf returns the three or more backquotes or tildes that a line begins with.
func markOf(line string) string {
	if line == "" || line[0] != '`' && line[0] != '~' {
		return ""
	}
	mark := line[:len(line)-len(strings.TrimLeft(line, line[:1]))]
	if len(mark) < 3 {
		return ""
	}
	return mark
}

func tagOf(info string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(info), " ")
	return strings.ToLower(strings.Trim(word, "{}."))
}

// unindent removes the indentation of a block's first line.
func unindent(line string, n int) string {
	for ; n > 0 && strings.HasPrefix(line, " "); n-- {
		line = line[1:]
	}
	return line
}

// extract returns the one program of an answer, or what is wrong with the answer. A block without a language counts as
// a block of the wanted language; a block of another language does not count.
func extract(text string, want runner.Language) (code string, problem *hutch.Error) {
	var programs []string
	var others []string
	for _, f := range fences(text) {
		switch lang, err := runner.Lookup(f.tag); {
		case strings.TrimSpace(f.code) == "":
		case f.tag == "" || err == nil && lang.Name == want.Name:
			programs = append(programs, f.code)
		default:
			others = append(others, f.tag)
		}
	}
	switch {
	case len(programs) == 1 && strings.Contains(programs[0], "\x00"):
		return "", refused("the model wrote a program with a NUL byte, which cannot run")
	case len(programs) == 1:
		return programs[0], nil
	case len(programs) > 1:
		return "", refused("the model wrote %d programs where one was asked for: ask for one thing at a time", len(programs))
	case len(others) > 0:
		return "", refused("the model wrote %.40s where %s was asked for: ask for that language, or say which one in the question", strings.Join(others, " and "), want.Name)
	}
	return "", refused("the model answered without a program: %s", clip(text, 300))
}

// unusable returns why a reply has no usable program, or nil if it has one.
func (r Reply) unusable(want runner.Language, maxTokens int) *hutch.Error {
	if r.CutOff {
		return refused("the model's answer was cut off at its limit of %d tokens: ask with a higher maxTokens", maxTokens)
	}
	_, problem := extract(r.Text, want)
	return problem
}

// fenced returns code as a fenced block, the form in which the model has to write it.
func fenced(code string, lang runner.Language) string {
	mark := "```"
	for strings.Contains(code, mark) {
		mark += "`"
	}
	if !strings.HasSuffix(code, "\n") {
		code += "\n"
	}
	return mark + lang.Name + "\n" + code + mark
}

// clip makes a stranger's text one line of at most n bytes.
func clip(said string, n int) string {
	words := strings.FieldsFunc(strings.ToValidUTF8(said, "\ufffd"), func(r rune) bool { return unicode.IsSpace(r) || text.Steers(r) })
	return text.Head(strings.Join(words, " "), n, "…")
}

// tail returns the end of a text, at most n bytes.
func tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	i := len(text) - n
	for i < len(text) && !utf8.RuneStart(text[i]) {
		i++
	}
	return "…" + text[i:]
}
