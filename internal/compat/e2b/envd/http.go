package envd

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat/e2b/seam"
)

// routeHTTP registers the paths that are not remote procedure calls. The paths of E2B's own control plane (/init,
// /freeze and so on) have no handler: the daemon does that work itself.
func (h *Handler) routeHTTP() {
	h.mux.HandleFunc("GET /health", h.health)
	h.mux.HandleFunc("GET /metrics", h.metrics)
	h.mux.HandleFunc("GET /envs", h.envs)
	h.mux.HandleFunc("GET /files", h.download)
	h.mux.HandleFunc("POST /files", h.upload)
	h.mux.HandleFunc("POST /files/compose", h.compose)
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		seam.Refuse(w, http.StatusNotFound, "there is nothing at "+r.URL.Path)
	})
}

// refusesUnverified answers a request without the sandbox's access token, unless the request needs no token or is
// signed.
func (h *Handler) refusesUnverified(w http.ResponseWriter, r *http.Request, t seam.Target) bool {
	switch {
	case t.Verified, r.Method == http.MethodGet && r.URL.Path == "/health":
		return false
	case r.URL.Path != "/files":
		seam.Refuse(w, http.StatusUnauthorized, "unauthorized access, please provide a valid access token or method signing if supported")
		return true
	case t.Secret == "":
		return false
	}
	if err := checkSignature(r, t.Secret, time.Now()); err != nil {
		seam.Refuse(w, http.StatusUnauthorized, err.Error())
		return true
	}
	return false
}

// fail answers with an error in the shape that /files and its neighbours have.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	e, own := errors.AsType[*rpcError](err)
	switch subject, _ := hutch.AsError(err).About(); {
	case own:
		seam.Refuse(w, httpStatus[e.Code], e.Message)
	case gone(err):
		refuseGone(w, seam.From(r.Context()))
	case hutch.KindOf(err) == hutch.Exhausted && subject == hutch.AboutFile:
		seam.Refuse(w, http.StatusInsufficientStorage, err.Error())
	case hutch.KindOf(err) == hutch.Conflict:
		seam.Refuse(w, http.StatusBadRequest, err.Error())
	default:
		e := h.describe(r, err)
		seam.Refuse(w, httpStatus[e.Code], e.Message)
	}
}

// health says that the sandbox runs. It wakes nothing.
func (h *Handler) health(w http.ResponseWriter, r *http.Request) {
	t := seam.From(r.Context())
	switch t.Record.Status {
	case hutch.Creating, hutch.Running:
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
	default:
		refuseGone(w, t)
	}
}

// metrics returns the use of the sandbox. The agent does not measure how full the disk is, so that figure is left out.
func (h *Handler) metrics(w http.ResponseWriter, r *http.Request) {
	t := seam.From(r.Context())
	sb, err := t.Service.Sandbox(r.Context(), t.Sandbox)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	const mib = 1 << 20
	writeJSON(w, http.StatusOK, map[string]any{
		"ts": time.Now().Unix(), "cpu_count": max(1, int(sb.Limits.CPU)), "cpu_used_pct": sb.Resources.CPU,
		"mem_total": sb.Limits.Memory * mib, "mem_used": int64(sb.Resources.Memory * mib),
		"mem_total_mib": sb.Limits.Memory, "mem_used_mib": int64(sb.Resources.Memory), "disk_total": int64(sb.Limits.Disk) * mib,
	})
}

// envs returns the environment that programs of the sandbox get.
func (h *Handler) envs(w http.ResponseWriter, r *http.Request) {
	t := seam.From(r.Context())
	res, err := t.Service.Exec(r.Context(), t.Sandbox, hutch.ExecRequest{Command: "env -0"}, nil)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	env := map[string]string{}
	for pair := range strings.SplitSeq(string(res.Stdout), "\x00") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	writeJSON(w, http.StatusOK, env)
}

// compose answers a call that is in E2B's description, although no client of E2B makes it.
func (h *Handler) compose(w http.ResponseWriter, r *http.Request) {
	seam.Refuse(w, http.StatusNotImplemented, "this server does not have /files/compose: upload the whole file, or join the parts by a command")
}

func writeEntries(w http.ResponseWriter, entries []writtenFile) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(entries)
}
