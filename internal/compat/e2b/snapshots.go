package e2b

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
)

// Snapshots of E2B are snapshots of Hutch. Templates of E2B are snapshots of Hutch with a name.

type snapshotInfo struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func infoOf(s hutch.Snapshot) snapshotInfo {
	return snapshotInfo{SnapshotID: s.ID, Names: append([]string{}, s.Names...)}
}

func isOwn(ctx context.Context, x hutch.Snapshot) bool {
	owner, _ := caller.OwnerOf(ctx)
	return x.Owner == owner.ID
}

// findSnapshot finds a snapshot by its id or name, or by a template and the id of its build, as TEMPLATE:BUILD. A name
// comes before a build, and the caller's own snapshot before a shared one.
func (s *Server) findSnapshot(ctx context.Context, name string) (found hutch.Snapshot, ok bool, err error) {
	all, err := s.svc.Snapshots(ctx)
	if err != nil {
		return found, false, err
	}
	for _, matches := range []func(hutch.Snapshot) bool{
		func(x hutch.Snapshot) bool { return x.IsCalled(name) },
		func(x hutch.Snapshot) bool { return isBuild(x, name) },
	} {
		for _, x := range all {
			if matches(x) && (!ok || isOwn(ctx, x) && !isOwn(ctx, found)) {
				found, ok = x, true
			}
		}
		if ok {
			break
		}
	}
	return found, ok, nil
}

// looksLikeBuild reports whether a text has the form of a build's id.
func looksLikeBuild(text string) bool {
	return len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' && strings.Trim(text, "0123456789abcdef-") == ""
}

// isBuild reports whether a name is TEMPLATE:BUILD of a template: a client that has the id of a build starts exactly
// that build, whichever tags it has now.
func isBuild(x hutch.Snapshot, name string) bool {
	template, build, ok := strings.Cut(name, ":")
	return ok && x.Template != nil && slices.ContainsFunc(x.Names, func(of string) bool {
		t := tagOf(x, of)
		return t.template == template && t.BuildID == build
	})
}

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Name string `json:"name"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	sb, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	made, err := s.svc.Snapshot(r.Context(), sb.ID, hutch.SnapshotRequest{Name: hutch.TemplateName(req.Name)})
	return http.StatusCreated, infoOf(made), err
}

func (s *Server) snapshots(w http.ResponseWriter, r *http.Request) (int, any, error) {
	v := r.URL.Query()
	limit, err := readLimit(v)
	if err != nil {
		return 0, nil, err
	}
	all, err := s.svc.Snapshots(r.Context())
	if err != nil {
		return 0, nil, err
	}
	sandbox, name := v.Get("sandboxID"), hutch.TemplateName(v.Get("name"))
	all = slices.DeleteFunc(all, func(x hutch.Snapshot) bool {
		return x.Template != nil || sandbox != "" && x.SandboxID != sandbox || name != "" && !x.IsCalled(name)
	})
	slices.SortFunc(all, func(a, b hutch.Snapshot) int { return strings.Compare(snapshotPlace(b), snapshotPlace(a)) })
	page, err := pageOf(w, all, v.Get("nextToken"), limit, false, snapshotPlace)
	if err != nil {
		return 0, nil, err
	}
	list := []snapshotInfo{}
	for _, x := range page {
		list = append(list, infoOf(x))
	}
	return http.StatusOK, list, nil
}

func snapshotPlace(x hutch.Snapshot) string {
	return x.CreatedAt.UTC().Format("20060102150405.000000000") + " " + x.ID
}

// deleteTemplate deletes a snapshot, or a template with all its tags. Tags that another owner shares are kept.
func (s *Server) deleteTemplate(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	name := hutch.TemplateName(r.PathValue("id"))
	found, ok, err := s.findSnapshot(r.Context(), name)
	if err != nil {
		return 0, nil, err
	}
	if ok && (found.Template == nil || !found.HasName(name)) {
		return http.StatusNoContent, nil, s.svc.DeleteSnapshot(r.Context(), found.ID)
	}
	list, err := s.tagsOf(r.Context(), name)
	own := slices.ContainsFunc(list, func(t tagged) bool { return isOwn(r.Context(), t.snapshot) })
	for _, t := range list {
		if err == nil && (!own || isOwn(r.Context(), t.snapshot)) {
			err = s.svc.DeleteSnapshot(r.Context(), templateName(t.template, t.Tag))
		}
	}
	return http.StatusNoContent, nil, err
}

// partOfTemplate answers /templates/{id}/tags and /templates/aliases/{alias}.
func (s *Server) partOfTemplate(w http.ResponseWriter, r *http.Request) (int, any, error) {
	switch id, part := r.PathValue("id"), r.PathValue("part"); {
	case id == "aliases":
		return s.alias(r.Context(), hutch.TemplateName(part))
	case part == "tags":
		return s.tags(w, r)
	}
	return 0, nil, hutch.Errorf(hutch.Unsupported, "this server does not have %.100q of templates", r.PathValue("part"))
}

// alias reports whether a template with a name exists.
func (s *Server) alias(ctx context.Context, name string) (int, any, error) {
	found, ok, err := s.findSnapshot(ctx, name)
	if err != nil {
		return 0, nil, err
	}
	if ok && found.Template != nil && found.ID != name { // a template's id is its name, as in the answer to a build's request
		template, _, _ := strings.Cut(name, ":")
		return http.StatusOK, aliasInfo{template, found.Shared}, nil
	}
	if ok {
		return http.StatusOK, aliasInfo{found.ID, found.Shared}, nil
	}
	if list, err := s.tagsOf(ctx, name); err == nil {
		return http.StatusOK, aliasInfo{name, list[0].snapshot.Shared}, nil
	}
	if slices.Contains(hosts, name) {
		return http.StatusOK, aliasInfo{name, true}, nil
	}
	return 0, nil, noTemplate(name)
}

type aliasInfo struct {
	TemplateID string `json:"templateID"`
	Public     bool   `json:"public"`
}

// forkLife is how long the snapshot of a fork is kept, if the server ends before it is deleted.
const forkLife = 10 * 60

type forked struct {
	Sandbox *opening      `json:"sandbox,omitempty"`
	Error   *seam.Refusal `json:"error,omitempty"`
}

// fork makes copies of a sandbox from one snapshot. As in E2B, each copy succeeds or fails separately, so it does not
// use the Fork of [hutch.Service].
func (s *Server) fork(w http.ResponseWriter, r *http.Request) (int, any, error) {
	req := struct {
		Timeout *float64 `json:"timeout"`
		Count   *int     `json:"count"`
	}{}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	count, timeout := 1, float64(timeoutV2)
	if req.Count != nil {
		count = *req.Count
	}
	if req.Timeout != nil {
		timeout = *req.Timeout
	}
	if count < 1 || count > hutch.MaxForks {
		return 0, nil, hutch.Errorf(hutch.Invalid, "count is %d: give 1 to %d", count, hutch.MaxForks).Naming(hutch.AboutField, "count")
	}
	seconds, err := checkTimeout(timeout)
	if err != nil {
		return 0, nil, err
	}
	who, err := s.holder(r.Context())
	if err != nil {
		return 0, nil, err
	}
	sb, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	from, err := s.svc.Snapshot(r.Context(), sb.ID, hutch.SnapshotRequest{TTL: forkLife})
	if err != nil {
		return 0, nil, err
	}
	defer s.svc.DeleteSnapshot(context.WithoutCancel(r.Context()), from.ID)
	return http.StatusCreated, s.copies(r.Context(), who, sb, from.ID, seconds, count), nil
}

func (s *Server) copies(ctx context.Context, who *caller.Principal, sb hutch.Sandbox, snapshot string, timeout hutch.Seconds, count int) []forked {
	list := make([]forked, count)
	for i := range list {
		req := hutch.CreateRequest{ID: s.newID(who.Owner), Snapshot: snapshot, Labels: maps.Clone(sb.Labels), KeepAlive: sb.KeepAlive, OnIdle: sb.OnIdle}
		if req.Labels == nil {
			req.Labels = map[string]string{}
		}
		if req.KeepAlive {
			req.Timeout = timeout
		} else {
			req.SleepAfter = timeout
		}
		s.setVariables(&req, templateOf(sb))
		made, err := s.svc.Create(ctx, req)
		if err != nil {
			list[i].Error = &seam.Refusal{Code: seam.Status(hutch.KindOf(err)), Message: hutch.AsError(err).Message}
			continue
		}
		o := s.opened(who, made)
		list[i].Sandbox = &o
	}
	return list
}
