// Package recipe translates the steps of a template, as E2B's clients send them, into a Dockerfile and the context of
// its build.
//
// No text of a client can become another instruction: commands are in the JSON form of RUN, names of users must match a
// pattern, and all other text is one quoted word without line breaks. Variables in the values of ENV, WORKDIR and COPY
// are replaced, as E2B does it.
//
// The files of a COPY come as an archive of paths relative to the client's folder. Each archive gets its own folder in
// the context of the build, laid out so that the Dockerfile needs no pattern: the client has already matched the
// patterns.
package recipe

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"hutch"
)

// Step is one step of a template.
type Step struct {
	Type      string   `json:"type"` // COPY, RUN, ENV, WORKDIR, USER
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash"` // for COPY: the name of the archive
	Force     bool     `json:"force"`     // not from the cache

	// The following fields are for the client itself.
	ForceUpload     *bool `json:"forceUpload"`
	ResolveSymlinks *bool `json:"resolveSymlinks"`
	Gzip            *bool `json:"gzip"`
}

// Base is the image or template that a template starts from.
type Base struct {
	Image string
	User  string // the default user of the steps; empty for root
	// Fresh says that the image was not made for E2B here: it gets E2B's user and folder.
	Fresh bool
}

// The user and the folder that every template of E2B begins with.
const (
	defaultUser   = "user"
	defaultFolder = "/home/user"
)

// The names for the phases before the first step and after the last one. E2B's clients count steps from 1.
const (
	BaseStep  = "base"
	FinalStep = "finalize"
)

// Files opens an archive by its name.
type Files func(hash string) (io.ReadCloser, error)

// Recipe is a template in the form that Hutch's builds read.
type Recipe struct {
	Dockerfile string
	Lines      []Line // the instructions that a build reports, in order
	copies     []copied
}

// Line is an instruction of the Dockerfile.
type Line struct {
	Kind    string // FROM, RUN, COPY, WORKDIR
	Step    string // the step that it belongs to, as E2B's clients name it
	Shown   string // for people
	Command string // command of RUN
	User    string // user of RUN
}

// Error says which step an error is about.
type Error struct {
	Step string
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Write translates steps. It reads only as much of the archives as it needs to know their content.
func Write(ctx context.Context, base Base, steps []Step, files Files) (Recipe, error) {
	if base.User != "" && !userName.MatchString(base.User) { // an image can name anything
		return Recipe{}, &Error{BaseStep, hutch.Errorf(hutch.Invalid, "the image's user %.100q is not the name of a user: begin with another image", base.User)}
	}
	w := &writer{user: base.User, archives: open(ctx, files)}
	w.say(Line{Kind: "FROM", Step: BaseStep, Shown: "FROM " + base.Image}, "FROM "+base.Image)
	if base.Fresh {
		w.step = BaseStep
		w.become(defaultUser)
		w.say(Line{Kind: "WORKDIR", Step: BaseStep, Shown: "WORKDIR " + defaultFolder}, "WORKDIR "+defaultFolder)
	}
	for i, s := range steps {
		w.step = strconv.Itoa(i + 1)
		if err := w.write(s); err != nil {
			return Recipe{}, &Error{w.step, err}
		}
	}
	w.Dockerfile = w.text.String()
	return w.Recipe, nil
}

// Forced reports whether a step must not come from the cache.
func Forced(steps []Step) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return s.Force })
}

type writer struct {
	Recipe
	text     strings.Builder
	archives *archives
	step     string
	user     string
	known    []string // users that exist already
}

// say adds an instruction. Builds do not report an instruction without a kind.
func (w *writer) say(l Line, text string) {
	w.text.WriteString(text + "\n")
	if l.Kind != "" {
		w.Lines = append(w.Lines, l)
	}
}

func (w *writer) write(s Step) error {
	for _, arg := range s.Args {
		if i := strings.IndexFunc(arg, func(r rune) bool { return r == 0 || r == '\r' || r == '\n' && s.Type != "RUN" }); i >= 0 {
			return hutch.Errorf(hutch.Invalid, "the step %.20s has a line break or a zero byte in %.100q: leave it out", s.Type, arg)
		}
	}
	switch s.Type {
	case "RUN":
		return w.run(s.Args)
	case "COPY":
		return w.copy(s)
	case "ENV":
		return w.env(s.Args)
	case "WORKDIR":
		if len(s.Args) != 1 || s.Args[0] == "" {
			return arguments(s.Type, "a path")
		}
		w.say(Line{Kind: "WORKDIR", Step: w.step, Shown: "WORKDIR " + s.Args[0]}, "WORKDIR "+escapeWord(s.Args[0]))
		return nil
	case "USER":
		if len(s.Args) != 1 || !userName.MatchString(s.Args[0]) {
			return arguments(s.Type, "the name of a user")
		}
		w.become(s.Args[0])
		return nil
	}
	return hutch.Errorf(hutch.Unsupported, "this server does not have the step %.40q: use RUN, COPY, ENV, WORKDIR and USER", s.Type).Naming(hutch.AboutField, "steps")
}

func arguments(kind, what string) error {
	return hutch.Errorf(hutch.Invalid, "the step %s needs %s", kind, what).Naming(hutch.AboutField, "steps")
}

// userName is the name or the number of a user, and perhaps of a group.
var userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,62})?$`)

// run writes a command, as the user of the step.
func (w *writer) run(args []string) error {
	if len(args) < 1 || len(args) > 2 || args[0] == "" {
		return arguments("RUN", "a command")
	}
	user := w.user
	if len(args) == 2 && args[1] != "" {
		user = args[1]
	}
	if user != "" && !userName.MatchString(user) {
		return arguments("RUN", "the name of a user, or none")
	}
	w.as(user, Line{Kind: "RUN", Step: w.step, Shown: "RUN " + args[0], Command: args[0], User: user}, "RUN "+list("/bin/bash", "-l", "-c", args[0]))
	return nil
}

// as writes an instruction that runs as another user than the steps do.
func (w *writer) as(user string, l Line, text string) {
	if user == w.user {
		w.say(l, text)
		return
	}
	w.say(Line{}, "USER "+root(user))
	w.say(l, text)
	w.say(Line{}, "USER "+root(w.user))
}

func root(user string) string {
	if user == "" {
		return "root"
	}
	return user
}

// addUser makes a user that the image does not have. If the image has no useradd, it adds a line to /etc/passwd and to
// /etc/group.
const addUser = `id -u "$1" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$1" 2>/dev/null || {
u=1000; while id "$u" >/dev/null 2>&1 || grep -q "^[^:]*:[^:]*:$u:" /etc/passwd; do u=$((u+1)); done
echo "$1:x:$u:$u::/home/$1:/bin/bash" >>/etc/passwd && echo "$1:x:$u:" >>/etc/group && mkdir -p "/home/$1" && chown "$u:$u" "/home/$1"; }
[ ! -f /etc/sudoers ] || grep -q "^$1 ALL" /etc/sudoers || echo "$1 ALL=(ALL:ALL) NOPASSWD: ALL" >>/etc/sudoers`

// become changes the user of the steps that follow. As in E2B, a user that does not exist is made.
func (w *writer) become(user string) {
	if user != "root" && user[0] > '9' && !strings.Contains(user, ":") && !slices.Contains(w.known, user) {
		w.known = append(w.known, user)
		w.as("root", Line{Kind: "RUN", Step: w.step, Shown: "USER " + user}, "RUN "+list("/bin/sh", "-c", addUser, "sh", user))
	}
	w.user = user
	w.say(Line{}, "USER "+user)
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

func (w *writer) env(args []string) error {
	if len(args) == 0 || len(args)%2 != 0 {
		return arguments("ENV", "names and values in turn")
	}
	line := "ENV"
	for i := 0; i < len(args); i += 2 {
		if !variable.MatchString(args[i]) {
			return arguments("ENV", fmt.Sprintf("names of variables, and %.100q is none", args[i]))
		}
		line += " " + args[i] + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(args[i+1]) + `"`
	}
	w.say(Line{}, line)
	return nil
}

var permissions = regexp.MustCompile(`^[0-7]{3,4}$`)

// copy writes a COPY. [Recipe.Context] lays out its files.
func (w *writer) copy(s Step) error {
	if len(s.Args) < 2 || len(s.Args) > 4 || s.Args[0] == "" || s.Args[1] == "" || s.FilesHash == "" {
		return arguments("COPY", "a source, a destination and filesHash")
	}
	c := copied{folder: "c" + strconv.Itoa(len(w.copies)), hash: s.FilesHash}
	flags, err := w.copyFlags(s.Args[2:])
	if err == nil {
		err = c.look(s.Args[0], w.archives)
	}
	if err != nil {
		return err
	}
	from, to := c.folder+"/", strings.TrimSuffix(s.Args[1], "/")+"/"
	if c.single {
		from, to = c.layOut(s.Args[1])
	}
	w.copies = append(w.copies, c)
	w.say(Line{Kind: "COPY", Step: w.step, Shown: "COPY " + s.Args[0] + " " + s.Args[1]}, "COPY "+flags+list(from, escapeWord(to)))
	return nil
}

func (w *writer) copyFlags(args []string) (string, error) {
	owner, mode := w.user, ""
	if len(args) > 0 && args[0] != "" {
		owner = args[0]
	}
	if len(args) > 1 {
		mode = args[1]
	}
	flags := ""
	if owner != "" {
		if !userName.MatchString(owner) {
			return "", arguments("COPY", "the name of a user, or none")
		}
		flags = "--chown=" + owner + " "
	}
	if mode != "" {
		if !permissions.MatchString(mode) {
			return "", arguments("COPY", "permissions in octal, or none")
		}
		flags += "--chmod=" + mode + " "
	}
	return flags, nil
}

// plainName is a name that means itself in the source of a COPY.
var plainName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// layOut names the one file of a COPY in the context, and returns source and target of the copy. A link, or a name that
// would be a pattern, is copied as the content of a folder: then nothing is followed or matched.
func (c *copied) layOut(to string) (from, dest string) {
	folder := strings.HasSuffix(to, "/") || path.Base(to) == "." || path.Base(to) == ".."
	c.name = path.Base(c.base)
	if !c.link && plainName.MatchString(c.name) {
		return c.folder + "/" + c.name, to
	}
	if folder {
		return c.folder + "/", strings.TrimSuffix(to, "/") + "/"
	}
	c.name = path.Base(to)
	return c.folder + "/", path.Dir(to) + "/"
}

// escapeWord escapes characters with a meaning in a word of a Dockerfile, except variables.
func escapeWord(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`).Replace(text)
}

// list returns the JSON form of an instruction's arguments.
func list(args ...string) string {
	text, _ := json.Marshal(args) // strings always have a form
	return string(text)
}
