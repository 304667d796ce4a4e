package judge0

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/compat"
)

// language is a language with its number in Judge0, and the commands that compile and run its programs. They are shell
// commands; %s stands for the options of a submission.
type language struct {
	id      int
	same    []int  // numbers of other versions, which run the same
	name    string // the server's name for it
	label   string // Judge0's label; %s is the version
	file    string
	compile string // empty if it is not compiled
	run     string // empty: the server runs the source itself
}

const javaFlags = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1" // short programs start sooner with them

var languages = []language{
	{46, nil, "bash", "Bash (%s)", "script.sh", "", "bash script.sh %s"},
	{50, []int{48, 49, 103}, "c", "C (GCC %s)", "main.c", "cc %s main.c -lm -pthread", "./a.out %s"},
	{54, []int{52, 53, 105}, "c++", "C++ (GCC %s)", "main.cpp", "c++ %s main.cpp -pthread", "./a.out %s"},
	{60, []int{95, 106, 107}, "go", "Go (%s)", "main.go", "go build %s main.go", "./main %s"},
	{62, []int{91}, "java", "Java (OpenJDK %s)", "Main.java", "javac -J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1 %s Main.java", "java " + javaFlags + " Main %s"},
	{63, []int{93, 97, 102}, "javascript", "JavaScript (Node.js %s)", "script.js", "", "node script.js %s"},
	{68, []int{98}, "php", "PHP (%s)", "script.php", "", "php script.php %s"},
	{71, []int{92, 100, 109}, "python", "Python (%s)", "script.py", "", "python3 script.py %s"},
	{72, nil, "ruby", "Ruby (%s)", "script.rb", "", "ruby script.rb %s"},
	{73, []int{108}, "rust", "Rust (%s)", "main.rs", "rustc %s main.rs", "./main %s"},
	{74, []int{94, 101}, "typescript", "TypeScript (Node.js %s)", "script.ts", "", ""},
	{80, []int{99}, "r", "R (%s)", "script.r", "", "Rscript script.r %s"},
	{85, nil, "perl", "Perl (%s)", "script.pl", "", "perl script.pl %s"},
}

// find returns the language of a number.
func find(id int) (language, bool) {
	i := slices.IndexFunc(languages, func(l language) bool { return l.id == id || slices.Contains(l.same, id) })
	if i < 0 {
		return language{}, false
	}
	return languages[i], true
}

// listed is a language in a list.
type listed struct {
	ID       int    `json:"id"`
	Name     string `json:"name"`
	Archived bool   `json:"is_archived"`
}

// described is the answer about one language.
type described struct {
	listed
	File    string  `json:"source_file"`
	Compile *string `json:"compile_cmd"`
	Run     string  `json:"run_cmd"`
}

// present returns the languages that sandboxes of the caller have, by number.
func (h *Handler) present(ctx context.Context) (map[int]listed, error) {
	found, err := h.languages.List(ctx)
	if err != nil {
		return nil, err
	}
	have := map[int]listed{}
	for _, l := range languages {
		if i := slices.IndexFunc(found, func(f hutch.Language) bool { return f.Name == l.name }); i >= 0 {
			have[l.id] = listed{ID: l.id, Name: fmt.Sprintf(l.label, compat.Version(found[i].Version))}
		}
	}
	return have, nil
}

func (h *Handler) listLanguages(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	have, err := h.present(r.Context())
	list := []listed{}
	for _, l := range languages {
		if one, ok := have[l.id]; ok {
			list = append(list, one)
		}
	}
	return http.StatusOK, list, err
}

func (h *Handler) showLanguage(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	id, err := strconv.Atoi(r.PathValue("id"))
	l, known := find(id)
	if err != nil || !known {
		return 0, nil, hutch.Errorf(hutch.NotFound, "Not Found")
	}
	have, err := h.present(r.Context())
	if err != nil {
		return 0, nil, err
	}
	one, ok := have[l.id]
	if !ok {
		return 0, nil, hutch.Errorf(hutch.NotFound, "Not Found")
	}
	d := described{listed: one, File: l.file, Run: command(l.run, "")}
	if l.compile != "" {
		text := command(l.compile, "")
		d.Compile = &text
	}
	return http.StatusOK, d, nil
}

// unsafe are the characters that Judge0 removes from options, so that they cannot start another command.
const unsafe = "$&;<>|`\n\r"

// command puts options into a command.
func command(text, options string) string {
	options = strings.Map(func(c rune) rune {
		if strings.ContainsRune(unsafe, c) {
			return -1
		}
		return c
	}, options)
	before, after, _ := strings.Cut(text, "%s")
	return strings.Join(strings.Fields(before), " ") + pad(strings.TrimSpace(options)) + pad(strings.TrimSpace(after))
}

func pad(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
}
