package router

import (
	"context"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat"
	"hutch/internal/httpio"
)

const (
	// execTime is the time limit of a command whose request sets none.
	execTime = 300 * time.Second
	// maxOutput is how much of each of stdout and stderr an answer has, in bytes. The client of the server holds about 14 times
	// as much, which no budget counts.
	maxOutput = 1 << 20
	// timedOut is the exit code of a command that its time limit has ended, as of timeout(1).
	timedOut = 124
	// maxEntries is how many files one answer lists.
	maxEntries = 100_000
)

// runtime answers in place of the runtime in a container.
func (h *Handler) runtime(w http.ResponseWriter, r *http.Request, to Target) {
	verb, escaped, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	name, err := url.PathUnescape(escaped)
	if err != nil {
		fault{http.StatusBadRequest, "the path is not URL encoded"}.answer(w)
		return
	}
	handlers := map[string]struct {
		method string
		handle func(http.ResponseWriter, *http.Request, Target, string) error
	}{
		"":         {http.MethodGet, h.root},
		"execute":  {http.MethodPost, h.execute},
		"upload":   {http.MethodPost, h.upload},
		"download": {http.MethodGet, h.download},
		"list":     {http.MethodGet, h.list},
		"exists":   {http.MethodGet, h.exists},
	}
	found, ok := handlers[verb]
	switch {
	case !ok:
		fault{http.StatusNotFound, "the runtime of this port has the routes /, /execute, /upload, /download, /list and /exists: for a server in the sandbox set X-Sandbox-Port"}.answer(w)
	case r.Method != found.method:
		w.Header().Set("Allow", found.method)
		fault{http.StatusMethodNotAllowed, "Method Not Allowed"}.answer(w)
	default:
		if err := found.handle(w, r, to, name); err != nil {
			fail(w, err)
		}
	}
}

func (h *Handler) root(w http.ResponseWriter, _ *http.Request, _ Target, _ string) error {
	compat.Answer(w, http.StatusOK, map[string]string{"status": "ok", "message": "the runtime is ready"})
	return nil
}

type execution struct {
	Command string   `json:"command"`
	Timeout *float64 `json:"timeout_seconds"`
}

type outcome struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exit_code"`
	TimedOut bool   `json:"timed_out"`
}

// execute runs a command line. It ends the command, with everything that it started, when its time is over or its
// client disconnects.
func (h *Handler) execute(w http.ResponseWriter, r *http.Request, to Target, _ string) error {
	var req execution
	if err := compat.ReadJSON(w, r, &req); err != nil {
		return err
	}
	limit := hutch.InSeconds(execTime)
	if req.Timeout != nil {
		if !(*req.Timeout > 0) || math.IsInf(*req.Timeout, 0) {
			return hutch.Errorf(hutch.Invalid, "timeout_seconds is %v: give a number of seconds over 0", *req.Timeout)
		}
		limit = hutch.Seconds(*req.Timeout)
	}
	res, err := h.opt.Service.Exec(r.Context(), to.Sandbox, hutch.ExecRequest{Command: req.Command, Dir: to.Dir, Timeout: limit, MaxOutput: maxOutput}, nil)
	if err != nil {
		return err
	}
	out := outcome{string(res.Stdout), string(res.Stderr), res.ExitCode, res.TimedOut}
	if res.TimedOut {
		out.ExitCode = timedOut
	}
	if res.Truncated {
		out.Stderr += "\nhutch: the middle of the output is missing: write long output to a file, and read that\n"
	}
	body, err := compat.Encode(r.Context(), out)
	if err != nil {
		return err
	}
	compat.Send(w, r, http.StatusOK, body)
	return nil
}

// inside returns the path of a file in the folder of a sandbox. As all of the sandbox is the caller's, this guards nothing; it keeps the
// contract of the API.
func inside(dir, name string) (string, error) {
	full := path.Join(dir, name)
	if full != path.Clean(dir) && !strings.HasPrefix(full, strings.TrimSuffix(path.Clean(dir), "/")+"/") {
		return "", hutch.Errorf(hutch.Denied, "the path %.200q leads out of %s: give one in it", name, dir)
	}
	return full, nil
}

func badUpload(format string, args ...any) error { return hutch.Errorf(hutch.Invalid, format, args...) }

// upload writes one file, whose path is the file name of the form's part.
func (h *Handler) upload(w http.ResponseWriter, r *http.Request, to Target, _ string) error {
	r.Body = httpio.NewBody(w, r, compat.Stall)
	parts, err := r.MultipartReader()
	if err != nil {
		return badUpload("an upload is multipart/form-data with a part \"file\"")
	}
	part, err := parts.NextRawPart()
	if err != nil || part.FormName() != "file" {
		return badUpload("an upload begins with the part \"file\"")
	}
	// part.FileName drops the folders.
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil || params["filename"] == "" {
		return badUpload("the part \"file\" has no file name, which is the path to write")
	}
	file, err := inside(to.Dir, strings.TrimLeft(params["filename"], "/"))
	if err != nil {
		return err
	}
	content := httpio.NewArriving(part, func(error) error { return badUpload("the upload did not arrive whole: send it again") })
	_, err = h.opt.Service.WriteFile(r.Context(), to.Sandbox, hutch.WriteRequest{Path: file, Parents: true}, content)
	if broken := content.Err(); broken != nil {
		return broken
	}
	if err != nil {
		return err
	}
	if _, err := parts.NextRawPart(); err != io.EOF {
		return badUpload("an upload is one file: the others were not written")
	}
	compat.Answer(w, http.StatusOK, map[string]string{"message": "written"})
	return nil
}

// download sends a file. An error after its first bytes breaks the connection, so that no client takes a part for the whole.
func (h *Handler) download(w http.ResponseWriter, r *http.Request, to Target, name string) error {
	file, err := inside(to.Dir, strings.TrimLeft(name, "/"))
	if err != nil {
		return err
	}
	begun := false
	req := hutch.ReadRequest{Path: file, Opened: func(info hutch.FileInfo) {
		begun = true
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", "attachment")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size, 10))
		w.WriteHeader(http.StatusOK)
	}}
	_, err = h.opt.Service.ReadFile(r.Context(), to.Sandbox, req, httpio.NewWriter(w, r, compat.Stall))
	if err != nil && begun {
		panic(http.ErrAbortHandler)
	}
	return notThere(err)
}

// notThere reports a path of another type as a path that does not exist, as this API does.
func notThere(err error) error {
	if kind := hutch.KindOf(err); err == nil || kind != hutch.Invalid && kind != hutch.Conflict {
		return err
	}
	return hutch.Errorf(hutch.NotFound, "%s", hutch.AsError(err).Message)
}

type entry struct {
	Name     string  `json:"name"`
	Size     int64   `json:"size"`
	Type     string  `json:"type"` // file or directory
	Modified float64 `json:"mod_time"`
}

func (h *Handler) list(w http.ResponseWriter, r *http.Request, to Target, name string) error {
	dir, err := inside(to.Dir, strings.TrimLeft(name, "/"))
	if err != nil {
		return err
	}
	entries := []entry{}
	err = h.opt.Service.ListFiles(r.Context(), to.Sandbox, hutch.ListRequest{Path: dir, Hidden: true, Limit: maxEntries}, func(f hutch.FileInfo) error {
		if !compat.Take(r.Context(), len(f.Name)+100) {
			return compat.ErrNoRoom
		}
		kind := "file" // a link is a file, too: the API has no other type
		if f.Type == hutch.Directory {
			kind = "directory"
		}
		entries = append(entries, entry{f.Name, f.Size, kind, float64(f.Modified.UnixNano()) / 1e9})
		return nil
	})
	if err != nil {
		return notThere(err)
	}
	body, err := compat.Encode(r.Context(), entries)
	if err != nil {
		return err
	}
	compat.Send(w, r, http.StatusOK, body)
	return nil
}

func (h *Handler) exists(w http.ResponseWriter, r *http.Request, to Target, name string) error {
	file, err := inside(to.Dir, strings.TrimLeft(name, "/"))
	if err != nil {
		return err
	}
	is, err := h.isThere(r.Context(), to.Sandbox, file)
	if err != nil {
		return err
	}
	body, err := compat.Encode(r.Context(), map[string]any{"path": name, "exists": is})
	if err != nil {
		return err
	}
	compat.Send(w, r, http.StatusOK, body)
	return nil
}

func (h *Handler) isThere(ctx context.Context, sandbox, file string) (bool, error) {
	_, err := h.opt.Service.Stat(ctx, sandbox, file)
	if hutch.KindOf(err) == hutch.NotFound && !compat.Missing(err) {
		return false, nil
	}
	return err == nil, err
}
