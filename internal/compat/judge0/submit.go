package judge0

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat"
)

// maxBatch is how many submissions a request can make, or ask for.
const maxBatch = 20

// prepare returns a new submission, or the error of the request.
func (h *Handler) prepare(ctx context.Context, q request, encoded bool) (*submission, error) {
	l, err := q.check(encoded)
	if err != nil {
		return nil, err
	}
	have, err := h.present(ctx)
	if err != nil {
		return nil, err
	}
	known, ok := have[l.id]
	if !ok {
		return nil, faults{"language_id": {fmt.Sprintf("language with id %v doesn't exist: sandboxes of this server have no %s", *q.Language, l.name)}}
	}
	if *q.Wall > number(h.longest.Seconds()) {
		return nil, faults{"wall_time_limit": {"must be less than or equal to " + h.longest.String()}}
	}
	return &submission{token: newToken(), language: l, title: known.Name, request: q, created: time.Now(), outcome: outcome{status: inQueue}}, nil
}

func (h *Handler) submit(w http.ResponseWriter, r *http.Request) (int, any, error) {
	f, err := formOf(r)
	if err != nil {
		return 0, nil, err
	}
	var q request
	if err := compat.ReadJSON(w, r, &q); err != nil {
		return 0, nil, err
	}
	s, err := h.prepare(r.Context(), q, f.encoded)
	if err != nil {
		return 0, nil, err
	}
	if !flag(r, "wait") {
		return http.StatusCreated, map[string]string{"token": s.token}, h.enqueue(r.Context(), s)
	}
	if err := h.wait(r.Context(), s); err != nil {
		return 0, nil, err
	}
	return h.shown(http.StatusCreated, r, s.token, f)
}

// wait judges a submission while its client waits. If this server cannot run it, no submission is kept.
func (h *Handler) wait(ctx context.Context, s *submission) error {
	owner := compat.Owner(ctx)
	if _, err := h.store.add(owner, s); err != nil {
		return err
	}
	h.store.begin(s)
	o, err := h.judge(ctx, s)
	if err != nil {
		h.store.remove(owner, s.token, true)
		return err
	}
	h.store.finish(owner, s, o)
	return nil
}

// enqueue judges a submission in the background.
func (h *Handler) enqueue(ctx context.Context, s *submission) error {
	owner := compat.Owner(ctx)
	running, err := h.store.add(owner, s)
	if err != nil {
		return err
	}
	h.calls.Go(ctx, func(ctx context.Context) {
		o, err := outcome{}, error(nil)
		select {
		case running <- struct{}{}:
			h.store.begin(s)
			o, err = h.judge(ctx, s)
			<-running
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			message := hutch.AsError(err).Message
			o = outcome{status: internal, message: &message}
			h.log.Warn("a submission was not judged", "err", err)
		}
		h.store.finish(owner, s, o)
	})
	return nil
}

func (h *Handler) submitBatch(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var body struct {
		Submissions []request `json:"submissions"`
	}
	if err := compat.ReadJSON(w, r, &body); err != nil {
		return 0, nil, err
	}
	if err := checkBatch(len(body.Submissions)); err != nil {
		return 0, nil, err
	}
	status, answers := http.StatusUnprocessableEntity, []any{}
	for _, q := range body.Submissions {
		s, err := h.prepare(r.Context(), q, flag(r, "base64_encoded"))
		if err == nil {
			err = h.enqueue(r.Context(), s)
		}
		switch wrong, isFaults := err.(faults); {
		case isFaults:
			answers = append(answers, wrong)
		case err != nil && status == http.StatusUnprocessableEntity:
			return 0, nil, err
		case err != nil:
			answers = append(answers, problem{hutch.AsError(err).Message})
		default:
			status = http.StatusCreated
			answers = append(answers, map[string]string{"token": s.token})
		}
	}
	return status, answers, nil
}

func checkBatch(n int) error {
	switch {
	case n == 0:
		return hutch.Errorf(hutch.Invalid, "there should be at least one submission in a batch")
	case n > maxBatch:
		return hutch.Errorf(hutch.Invalid, "number of submissions in a batch should be less than or equal to %d", maxBatch)
	}
	return nil
}

const (
	notText     = "some attributes for this submission cannot be converted to UTF-8, use base64_encoded=true query parameter"
	someNotText = "some attributes for one or more submissions cannot be converted to UTF-8, use base64_encoded=true query parameter"
)

// view is submissions in the form that a client requests. Their memory is charged to the client.
type view struct {
	form
	ctx    context.Context
	list   []any
	broken bool // a text is not UTF-8
	full   bool // the memory limit is reached
}

// add adds a submission. The store's mutex is held.
func (v *view) add(s *submission) {
	if v.full = v.full || !compat.Take(v.ctx, 2*s.size); v.full {
		return
	}
	answer, ok := v.of(s)
	v.list, v.broken = append(v.list, answer), v.broken || !ok
}

func (v *view) err() error {
	switch {
	case v.full:
		return compat.ErrNoRoom
	case v.broken:
		return hutch.Errorf(hutch.Invalid, someNotText)
	}
	return nil
}

// shown answers with a submission. If JSON cannot represent a new submission, it answers with the token.
func (h *Handler) shown(status int, r *http.Request, token string, f form) (int, any, error) {
	seen := view{form: f, ctx: r.Context()}
	if !h.store.get(compat.Owner(r.Context()), token, seen.add) {
		return 0, nil, hutch.Errorf(hutch.NotFound, "there is no submission %.60q: it may have expired", token)
	}
	switch {
	case seen.full:
		return 0, nil, compat.ErrNoRoom
	case seen.broken && status == http.StatusCreated:
		return status, map[string]string{"error": notText, "token": token}, nil
	case seen.broken:
		return 0, nil, hutch.Errorf(hutch.Invalid, notText)
	}
	return status, seen.list[0], nil
}

func (h *Handler) show(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	f, err := formOf(r)
	if err != nil {
		return 0, nil, err
	}
	return h.shown(http.StatusOK, r, r.PathValue("token"), f)
}

func (h *Handler) showBatch(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	f, err := formOf(r)
	if err != nil {
		return 0, nil, err
	}
	var tokens []string
	if given := strings.TrimSpace(r.URL.Query().Get("tokens")); given != "" {
		tokens = strings.Split(given, ",")
	}
	if err := checkBatch(len(tokens)); err != nil {
		return 0, nil, err
	}
	seen := view{form: f, ctx: r.Context()}
	for _, token := range tokens {
		if !h.store.get(compat.Owner(r.Context()), token, seen.add) {
			seen.list = append(seen.list, nil)
		}
	}
	return http.StatusOK, map[string]any{"submissions": seen.list}, seen.err()
}

// remove deletes a submission, and answers with it in base64, which can represent every submission.
func (h *Handler) remove(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	f, err := formOf(r)
	if err != nil {
		return 0, nil, err
	}
	f.encoded = true
	owner, token := compat.Owner(r.Context()), r.PathValue("token")
	status, answer, err := h.shown(http.StatusOK, r, token, f)
	if err == nil && !h.store.remove(owner, token, false) {
		return 0, nil, hutch.Errorf(hutch.Invalid, "submission cannot be deleted because it has not ended")
	}
	return status, answer, err
}

// list answers with the caller's submissions, the newest first.
func (h *Handler) list(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	f, err := formOf(r)
	if err != nil {
		return 0, nil, err
	}
	page, err := whole(r, "page", 1)
	if err != nil {
		return 0, nil, err
	}
	size, err := whole(r, "per_page", maxBatch)
	if err != nil {
		return 0, nil, err
	}
	seen := view{form: f, ctx: r.Context(), list: []any{}}
	total := h.store.page(compat.Owner(r.Context()), (page-1)*size, size, seen.add)
	return http.StatusOK, map[string]any{"submissions": seen.list, "meta": pages(page, size, total)}, seen.err()
}

// pages describes where a page of a list is.
func pages(page, size, total int) map[string]any {
	last := (total + size - 1) / size
	meta := map[string]any{"current_page": page, "next_page": nil, "prev_page": nil, "total_pages": last, "total_count": total}
	if page < last {
		meta["next_page"] = page + 1
	}
	if page > 1 {
		meta["prev_page"] = page - 1
	}
	return meta
}
