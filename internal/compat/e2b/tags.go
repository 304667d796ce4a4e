package e2b

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat/e2b/seam"
)

// tagged is a template of Hutch, which E2B's clients see as one tag of a template.
type tagged struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`

	template string
	snapshot hutch.Snapshot
}

// tagOf returns the template and the tag that a name of a snapshot stands for.
func tagOf(x hutch.Snapshot, of string) tagged {
	name, tag, ok := strings.Cut(of, ":")
	if !ok {
		tag = defaultTag
	}
	id := x.Template.Labels[labelBuild]
	if id == "" { // the template was not made by a build, so it counts as its own build
		sum := sha256.Sum256([]byte(x.ID))
		id = fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	}
	return tagged{tag, id, x.CreatedAt, name, x}
}

// tagsOf returns the tags of a template, oldest first, or of all templates if template is empty. template can be a
// name, or the id of one of the template's snapshots. The caller's own template comes before a shared one.
func (s *Server) tagsOf(ctx context.Context, template string) ([]tagged, error) {
	all, err := s.svc.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, x := range all {
		for _, name := range x.Names {
			own[name] = own[name] || isOwn(ctx, x)
		}
	}
	list := []tagged{}
	for _, x := range all {
		if x.Template == nil {
			continue
		}
		for _, name := range x.Names {
			if own[name] && !isOwn(ctx, x) && x.ID != template {
				continue
			}
			if t := tagOf(x, name); template == "" || t.template == template || x.ID == template {
				list = append(list, t)
			}
		}
	}
	if len(list) == 0 && template != "" {
		return nil, noTemplate(template)
	}
	return list, nil
}

// tags lists the tags of a template.
func (s *Server) tags(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	list, err := s.tagsOf(r.Context(), r.PathValue("id"))
	return http.StatusOK, list, err
}

type assigned struct {
	BuildID string   `json:"buildID"`
	Tags    []string `json:"tags"`
}

// assignTags gives a build further tags: each is a name of its template.
func (s *Server) assignTags(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	name, tag, ok := strings.Cut(req.Target, ":")
	if !ok {
		tag = defaultTag
	}
	if err := cmp.Or(checkTags(name, []string{tag}), checkTags(name, req.Tags)); err != nil {
		return 0, nil, err
	}
	list, err := s.tagsOf(r.Context(), name)
	if err != nil {
		return 0, nil, err
	}
	i := slices.IndexFunc(list, func(t tagged) bool { return templateName(name, t.Tag) == templateName(name, tag) })
	if i < 0 {
		return 0, nil, noTemplate(req.Target)
	}
	for _, more := range req.Tags {
		if err := s.tag(r.Context(), list[i].snapshot, templateName(name, more)); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusCreated, assigned{list[i].BuildID, req.Tags}, nil
}

// removeTags deletes tags of a template.
func (s *Server) removeTags(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var req struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := read(w, r, &req); err != nil {
		return 0, nil, err
	}
	if err := checkTags(req.Name, req.Tags); err != nil {
		return 0, nil, err
	}
	list, err := s.tagsOf(r.Context(), req.Name)
	if err != nil {
		return 0, nil, err
	}
	for _, tag := range req.Tags {
		i := slices.IndexFunc(list, func(t tagged) bool { return templateName(req.Name, t.Tag) == templateName(req.Name, tag) })
		if i < 0 {
			return 0, nil, noTemplate(req.Name + ":" + tag)
		}
		if err := s.svc.DeleteSnapshot(r.Context(), templateName(req.Name, tag)); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusNoContent, nil, nil
}

type templateInfo struct {
	TemplateID  string    `json:"templateID"`
	BuildID     string    `json:"buildID"`
	CPUCount    int       `json:"cpuCount"`
	MemoryMB    int       `json:"memoryMB"`
	DiskSizeMB  int       `json:"diskSizeMB"`
	Public      bool      `json:"public"`
	Aliases     []string  `json:"aliases"`
	Names       []string  `json:"names"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	CreatedBy   *struct{} `json:"createdBy"`
	LastSpawned *string   `json:"lastSpawnedAt"`
	SpawnCount  int       `json:"spawnCount"`
	BuildCount  int       `json:"buildCount"`
	EnvdVersion string    `json:"envdVersion"`
	BuildStatus string    `json:"buildStatus"`
}

// templates lists the templates.
func (s *Server) templates(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	all, err := s.tagsOf(r.Context(), "")
	if err != nil {
		return 0, nil, err
	}
	list := []templateInfo{}
	for _, t := range all { // the newest tag of a template comes last
		if i := slices.IndexFunc(list, func(x templateInfo) bool { return x.TemplateID == t.template }); i >= 0 {
			n, since := list[i].BuildCount, list[i].CreatedAt
			list[i] = infoOfTemplate(t)
			list[i].BuildCount, list[i].CreatedAt = n+1, since
			continue
		}
		list = append(list, infoOfTemplate(t))
	}
	return http.StatusOK, list, nil
}

func infoOfTemplate(t tagged) templateInfo {
	x := t.snapshot
	return templateInfo{
		TemplateID: t.template, BuildID: t.BuildID, CPUCount: int(math.Ceil(x.Limits.CPU)), MemoryMB: x.Limits.Memory, DiskSizeMB: x.Limits.Disk,
		Public: x.Shared, Aliases: []string{t.template}, Names: []string{t.template}, CreatedAt: x.CreatedAt, UpdatedAt: x.CreatedAt,
		BuildCount: 1, EnvdVersion: seam.EnvdVersion, BuildStatus: buildReady,
	}
}
