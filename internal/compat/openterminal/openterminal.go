// Package openterminal answers the clients of Open Terminal, which Open WebUI gives to models as tools: below
// /openterminal/ are openapi.json, "execute", "files", "ports" and "api/terminals".
//
// Each user has a sandbox. The header X-User-Id names the user. It needs no proof, because it only chooses among the
// sandboxes of the token's owner: the sandbox's id is a hash of the user's id. X-Session-Id names a chat, which has a
// working folder of its own. Sandboxes sleep between messages, and are destroyed when nothing has used them for
// Options.Keep.
//
// Terminals are for people, on Open WebUI's page. Their WebSockets bring the token in their first message: see [Front].
//
// Models can read the terminal that the user has open, and type into it; see shell.go.
//
// A port of the sandbox is at proxy/PORT/, for the preview in Open WebUI; see proxy.go.
package openterminal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/preview"
)

// Prefix is before all paths of the API.
const Prefix = "/openterminal"

// Open reports whether a request needs no token.
func Open(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.Path == Prefix+"/health" || r.URL.Path == Prefix+"/api/config")
}

// Uploads reports whether a request's body is a file, or goes to a program in a sandbox. Such a body is never held in
// memory.
func Uploads(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == Prefix+"/files/upload" || strings.HasPrefix(r.URL.Path, Prefix+"/proxy/")
}

// Options configure a handler; the zero value works.
type Options struct {
	// Image is the image or template of the sandboxes; default the server's.
	Image string
	// Keep is how long a sandbox stays without use; default 7 days.
	Keep time.Duration
	// Stall is how long a client can leave data unread, or send none, before it is disconnected; default 5 minutes.
	Stall time.Duration
	// Previews say how servers in sandboxes are shown. Their Sandboxes are set by the handler.
	Previews preview.Options
	Log      *slog.Logger
}

// Handler serves the API.
type Handler struct {
	svc   hutch.Service
	opt   Options
	log   *slog.Logger
	mux   *http.ServeMux
	calls *compat.Calls
	kept  *compat.Keeper
	dirs  dirs
	// attached are the terminals that have a client here.
	attached attachments
	visits   visits
	previews *preview.Handler
	routes   []string
}

// NewHandler returns a handler that calls svc.
func NewHandler(svc hutch.Service, opt Options) *Handler {
	opt.Keep, opt.Stall = cmp.Or(opt.Keep, 7*24*time.Hour), cmp.Or(opt.Stall, compat.Stall)
	h := &Handler{
		svc: svc, opt: opt, log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)), mux: http.NewServeMux(), calls: compat.NewCalls("openterminal"),
		kept: compat.NewKeeper(svc, opt.Keep), visits: visits{svc: svc},
	}
	h.opt.Previews.Sandboxes = &h.visits
	h.previews = preview.New(http.NotFoundHandler(), h.opt.Previews)
	for route, f := range map[string]func(*call) (any, error){
		"GET /files/cwd": (*call).getDir, "POST /files/cwd": (*call).setDir, "GET /files/list": (*call).list, "GET /files/read": (*call).read,
		"GET /files/display": (*call).display, "GET /files/view": (*call).view, "GET /files/serve/{path...}": (*call).view, "POST /files/write": (*call).write,
		"POST /files/mkdir": (*call).mkdir, "DELETE /files/delete": (*call).remove, "POST /files/move": (*call).move, "POST /files/replace": (*call).replace,
		"GET /files/grep": (*call).grep, "GET /files/glob": (*call).glob, "POST /files/upload": (*call).upload, "POST /files/archive": (*call).archive,
		"GET /execute": (*call).processes, "POST /execute": (*call).execute, "GET /execute/{process}/status": (*call).status,
		"POST /execute/{process}/input": (*call).input, "DELETE /execute/{process}": (*call).kill,
		"GET /ports": (*call).ports, "POST /api/terminals": (*call).createTerminal, "GET /api/terminals": (*call).listTerminals,
		"DELETE /api/terminals/{id}": (*call).deleteTerminal,
		"POST /notebooks":            (*call).openNotebook, "POST /notebooks/{session}/execute": (*call).runCell,
		"GET /api/terminals/user/output": (*call).readShell, "POST /api/terminals/user/input": (*call).typeShell,
		"GET /files/search": (*call).search, "GET /files/matches": (*call).matches, "GET /skills": (*call).skills, "GET /skills/read": (*call).readSkill,
		"GET /notebooks/{session}": (*call).notebookStatus, "DELETE /notebooks/{session}": (*call).closeNotebook,
	} {
		h.handle(route, h.serve(f, parameters[route]...))
	}
	for route, lack := range lacks {
		h.handle(route, func(w http.ResponseWriter, r *http.Request) { h.fail(w, r, lack) })
	}
	h.handle("GET /api/terminals/{id}", h.terminalRoute())
	h.handle("/proxy/{port}/{path...}", h.proxy())
	h.handle("GET /system", h.system)
	h.mux.HandleFunc("GET "+Prefix+"/openapi.json", func(w http.ResponseWriter, r *http.Request) { compat.Send(w, r, http.StatusOK, document) })
	h.mux.HandleFunc("GET "+Prefix+"/health", func(w http.ResponseWriter, r *http.Request) {
		compat.Send(w, r, http.StatusOK, []byte(`{"status":"ok"}`))
	})
	h.mux.HandleFunc("GET "+Prefix+"/api/config", func(w http.ResponseWriter, r *http.Request) {
		compat.Send(w, r, http.StatusOK, []byte(`{"features":{"terminal":true,"notebooks":true,"system":true}}`))
	})
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		Refuse(w, http.StatusNotFound, hutch.Errorf(hutch.NotFound, "Not Found"))
	})
	return h
}

// handle adds a route below the prefix.
func (h *Handler) handle(route string, f http.HandlerFunc) {
	method, pattern, found := strings.Cut(route, " ")
	if !found {
		method, pattern = "", method
	}
	route = strings.TrimSpace(method + " " + Prefix + pattern)
	h.routes = append(h.routes, route)
	h.mux.HandleFunc(route, f)
}

// Routes lists the routes that need a token, as patterns of [http.ServeMux].
func (h *Handler) Routes() []string { return h.routes }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Close ends the calls under way and waits for them.
func (h *Handler) Close() {
	h.calls.Close()
	h.previews.Close()
}

// parameters are the parameters of the routes that have some.
var parameters = map[string][]string{
	"GET /files/list": {"directory"}, "GET /files/read": {"path", "start_line", "end_line"}, "GET /files/display": {"path"}, "GET /files/view": {"path", "preview"},
	"DELETE /files/delete": {"path"}, "POST /files/upload": {"directory"},
	"GET /files/grep":    {"query", "path", "regex", "case_insensitive", "include", "match_per_line", "max_results"},
	"GET /files/glob":    {"pattern", "path", "exclude", "type", "max_results"},
	"GET /files/search":  {"query", "path", "limit", "type", "show_hidden"},
	"GET /files/matches": {"query", "path", "show_hidden", "offset", "limit"}, "GET /skills/read": {"name"},
	"POST /execute": {"wait", "tail"}, "GET /execute/{process}/status": {"wait", "offset", "tail"}, "DELETE /execute/{process}": {"force"},
}

// system answers without a sandbox: Open WebUI asks once for all users.
func (h *Handler) system(w http.ResponseWriter, r *http.Request) {
	if err := checkQuery(r, nil); err != nil {
		h.fail(w, r, err)
		return
	}
	compat.Send(w, r, http.StatusOK, systemPrompt)
}

// systemPrompt is the answer to GET /system, which Open WebUI adds to the prompt of a model with these tools. It is
// true of every sandbox.
var systemPrompt = promptOf("You have a computer: a Linux sandbox of the user's own, with bash. Its files stay from one chat to the next; other users cannot reach it. " +
	"Use your tools to run commands, and to read, write and search files, instead of telling the user to do so. " +
	"Look at the present state before you change it, and check the exit code and the output of each command. A command without output usually succeeded. " +
	"run_command returns an id at once unless you give wait: read more of a long command with get_process_status. " +
	"What the sandbox reaches in the network is limited: a connection that is refused may be refused by its rules. " +
	"A web server that you start on a port of the sandbox is shown to the user in the list of ports.")

func promptOf(text string) []byte {
	b, _ := json.Marshal(map[string]string{"prompt": text}) // a text
	return b
}

// lacks are the routes that are not translated, and what to use in their place.
var lacks = map[string]error{
	"GET /info":           lack("the info", "write it into the prompt in Open WebUI"),
	"POST /files/compare": lack("the comparison of files", "use run_command with diff"),
}

func lack(what, instead string) error {
	return hutch.Errorf(hutch.Unsupported, "this server does not have %s of Open Terminal: %s", what, instead)
}

// call is a request of a user.
type call struct {
	*Handler
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context
	sandbox string
	chat    string // the key of its working folder
	home    string
}

// maxHeader is the longest id of a user or a chat, in bytes.
const maxHeader = 512

var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "ot-" + lower.EncodeToString(sum[:])[:32]
}

// serve returns a handler that calls f with the sandbox of the user, which is created on first use. Parameters that are
// not known are refused.
func (h *Handler) serve(f func(*call) (any, error), known ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r, done := h.calls.Begin(r)
		defer done()
		var v any
		err := checkQuery(r, known)
		if err == nil {
			v, err = h.enter(w, r, f)
		}
		if err == nil && v != nil {
			var body []byte
			if body, err = compat.Encode(r.Context(), v); err == nil {
				compat.Send(w, r, http.StatusOK, body)
				return
			}
		}
		if err != nil {
			h.fail(w, r, err)
		}
	}
}

// lists are the parameters that can be given several times.
var lists = []string{"include", "exclude"}

// checkQuery refuses unknown parameters, unless their value is null: models write that for parameters that they leave out.
func checkQuery(r *http.Request, known []string) error {
	for name, values := range r.URL.Query() {
		if !slices.ContainsFunc(values, func(v string) bool { return !strings.EqualFold(v, "null") }) {
			known = append(slices.Clip(known), name)
		}
	}
	return compat.CheckQueryWithLists(r, lists, known...)
}

func (h *Handler) enter(w http.ResponseWriter, r *http.Request, f func(*call) (any, error)) (any, error) {
	user, chat := r.Header.Get("X-User-Id"), r.Header.Get("X-Session-Id")
	if len(user) > maxHeader || len(chat) > maxHeader || len(r.Header.Values("X-User-Id")) > 1 {
		return nil, hutch.Errorf(hutch.Invalid, "X-User-Id and X-Session-Id are one text each, of at most %d bytes", maxHeader)
	}
	c := &call{Handler: h, w: w, r: r, ctx: r.Context(), sandbox: hashed("user " + user)}
	if chat != "" {
		c.chat = c.sandbox + " " + hashed(chat)
	}
	req := hutch.CreateRequest{ID: c.sandbox, Image: h.opt.Image, Labels: map[string]string{"openterminal": "user"}}
	err := h.kept.Use(c.ctx, req, func() error {
		at, err := h.svc.Stat(c.ctx, c.sandbox, ".")
		c.home = at.Path
		return err
	})
	if err != nil {
		return nil, err
	}
	return f(c)
}

// resolve returns the absolute path of the file that a client names.
func (c *call) resolve(name string) (string, error) {
	switch {
	case name == "~":
		name = c.home
	case strings.HasPrefix(name, "~/"):
		name = path.Join(c.home, name[2:])
	case !strings.HasPrefix(name, "/"):
		name = path.Join(c.dir(), name)
	}
	name = path.Clean(name)
	return name, hutch.CheckPath(name)
}

// dir returns the working folder of the chat.
func (c *call) dir() string { return cmp.Or(c.dirs.get(compat.Owner(c.ctx), c.chat), c.home) }

// dirs are the working folders of the chats of each owner. A restart of the server forgets them.
type dirs struct {
	mu      sync.Mutex
	byOwner map[string]map[string]string
}

// maxChats is how many chats of an owner can have a working folder. Beyond it, the folder of a new chat replaces that
// of any other chat of the owner.
const maxChats = 2000

func (d *dirs) get(owner, chat string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byOwner[owner][chat]
}

func (d *dirs) set(owner, chat, dir string) {
	if chat == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byOwner == nil {
		d.byOwner = map[string]map[string]string{}
	}
	of := d.byOwner[owner]
	if of == nil {
		of = map[string]string{}
		d.byOwner[owner] = of
	}
	for other := range of {
		if len(of) < maxChats {
			break
		}
		delete(of, other)
	}
	of[chat] = dir
}

// query returns a parameter; the text "null" counts as none.
func (c *call) query(name string) string {
	v := c.r.URL.Query().Get(name)
	if strings.EqualFold(v, "null") {
		return ""
	}
	return v
}

// number returns a parameter between two numbers, or usual.
func (c *call) number(name string, usual, least, most float64) (float64, error) {
	v := c.query(name)
	if v == "" {
		return usual, nil
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n >= least && n <= most) {
		return 0, hutch.Errorf(hutch.Invalid, "%s must be a number from %.0f to %.0f", name, least, most)
	}
	return n, nil
}

func (c *call) flag(name string, usual bool) (bool, error) {
	switch v := c.query(name); strings.ToLower(v) {
	case "":
		return usual, nil
	case "true", "1", "yes", "on":
		return true, nil
	case "false", "0", "no", "off":
		return false, nil
	default:
		return false, hutch.Errorf(hutch.Invalid, "%s is %.40q: use true or false", name, v).Naming(hutch.AboutField, name)
	}
}

// statuses are the HTTP statuses for kinds of errors.
var statuses = map[hutch.Kind]int{
	hutch.Invalid: http.StatusBadRequest, hutch.Denied: http.StatusForbidden, hutch.NotFound: http.StatusNotFound, hutch.Conflict: http.StatusConflict,
	hutch.Exhausted: http.StatusTooManyRequests, hutch.Unsupported: http.StatusNotImplemented, hutch.Unavailable: http.StatusServiceUnavailable,
}

var errBinary = hutch.Errorf(hutch.Invalid, "Unsupported binary file type: read it with a command")

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	err = compat.Failed(h.log, r, err)
	e := hutch.AsError(err)
	status := cmp.Or(statuses[e.Kind], http.StatusInternalServerError)
	switch {
	case errors.Is(err, compat.ErrTooLarge), errors.Is(err, compat.ErrTooLong):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, errBinary):
		status = http.StatusUnsupportedMediaType
	}
	compat.RetryAfter(w, err)
	Refuse(w, status, err)
}

// Refuse answers with an error; a guard that refuses a request uses it, too. The message is in two fields: clients of terminals read
// "error", and the others read "detail". Each ignores the other field.
func Refuse(w http.ResponseWriter, status int, err error) {
	message := hutch.AsError(err).Message
	compat.Answer(w, status, map[string]string{"detail": message, "error": message})
}
