package bridge

import (
	"net/http"
	"slices"
	"time"

	"hutch"
	"hutch/internal/compat"
)

// sessionIdle is how long a session is kept without a command. Sessions of the original have no time limit.
const sessionIdle = hutch.Seconds(24 * 60 * 60)

func (h *Handler) createSession(w http.ResponseWriter, r *http.Request, id string) {
	var body struct {
		ID  string            `json:"id"`
		Dir string            `json:"cwd"`
		Env map[string]string `json:"env"`
	}
	if err := compat.ReadJSON(w, r, &body); err != nil {
		h.fail(w, r, err, codeSession)
		return
	}
	if body.ID == "" {
		body.ID = hutch.NewID("session")
	}
	session, ok := h.session(w, r, body.ID)
	if !ok {
		return
	}
	err := compat.OnFirstUse(r.Context(), h.svc, id, func() error {
		list, err := h.svc.Contexts(r.Context(), id)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(list, func(c hutch.CodeContext) bool { return c.ID == session }) {
			return hutch.Errorf(hutch.Conflict, "session create failed: Session '%s' already exists", body.ID)
		}
		_, err = h.svc.CreateContext(r.Context(), id, hutch.ContextRequest{ID: session, Language: "bash", Dir: body.Dir, Env: body.Env, IdleTimeout: sessionIdle})
		return err
	})
	if err != nil {
		h.fail(w, r, err, codeSession)
		return
	}
	h.answer(w, r, map[string]string{"id": body.ID})
}

// deleteSession ends a session and its terminal. A missing session is not an error.
func (h *Handler) deleteSession(w http.ResponseWriter, r *http.Request, id string) {
	name := r.PathValue("session")
	session, ok := h.session(w, r, name)
	if !ok {
		return
	}
	err := h.svc.DeleteContext(r.Context(), id, session)
	if err == nil {
		err = h.endTerminal(r.Context(), id, session)
	}
	if err != nil && !compat.Missing(err) {
		h.fail(w, r, err, codeSession)
		return
	}
	h.answer(w, r, struct {
		Success   bool      `json:"success"`
		SessionID string    `json:"sessionId"`
		Timestamp time.Time `json:"timestamp"`
	}{true, name, time.Now().UTC()})
}
