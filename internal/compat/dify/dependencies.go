package dify

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"hutch"
	"hutch/internal/compat"
)

// dependency is a package of Python that code can import.
type dependency struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// dependencies is the answer with the list of packages.
type dependencies struct {
	List []dependency `json:"dependencies"`
}

// listing prints the packages of the default image.
const listing = `import importlib.metadata, json
seen = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
print(json.dumps([{"name": n, "version": v} for n, v in sorted(seen.items())]))`

// The limits of a sandbox that lists its packages.
const (
	listTime        = 20 * time.Second
	maxDependencies = 2000
	maxListing      = 256 << 10 // bytes
)

func checkPython(language string) error {
	if language != "python3" {
		return hutch.Errorf(hutch.Invalid, "unsupported language %.40q: dependencies are those of python3", language)
	}
	return nil
}

func (h *Handler) listDependencies(_ http.ResponseWriter, r *http.Request) (any, error) {
	if list, ok := h.lists.Get(r.Context()); ok && checkPython(r.URL.Query().Get("language")) == nil {
		return dependencies{list}, nil
	}
	return h.refreshDependencies(nil, r)
}

// refreshDependencies asks a new sandbox of the caller.
func (h *Handler) refreshDependencies(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := checkPython(r.URL.Query().Get("language")); err != nil {
		return nil, err
	}
	list, err := h.ask(r.Context())
	if err != nil {
		return nil, err
	}
	h.lists.Put(r.Context(), list)
	return dependencies{list}, nil
}

// updateDependencies installs nothing: the packages are those of the server's default image, and each run starts with
// them. It only reads the list again.
func (h *Handler) updateDependencies(w http.ResponseWriter, r *http.Request) (any, error) {
	var body struct {
		Language string `json:"language"`
	}
	if err := compat.ReadJSON(w, r, &body); err != nil {
		return nil, err
	}
	if err := checkPython(body.Language); err != nil {
		return nil, err
	}
	list, err := h.ask(r.Context())
	if err == nil {
		h.lists.Put(r.Context(), list)
	}
	return struct{}{}, err
}

func (h *Handler) ask(ctx context.Context) ([]dependency, error) {
	out := compat.Collected{Max: maxListing}
	var res hutch.ExecResult
	err := compat.Once(ctx, h.svc, h.log, hutch.CreateRequest{Image: h.image, Network: hutch.Network{Mode: hutch.NetworkNone}}, listTime, func(sandbox string) error {
		var err error
		res, err = h.svc.Exec(ctx, sandbox, hutch.ExecRequest{Language: "python", Command: listing, Timeout: hutch.InSeconds(listTime), StreamOnly: true}, out.Add(ctx))
		return err
	})
	if err != nil {
		return nil, err
	}
	list, ok := decodeListing(out.Stdout())
	if !res.Success() || !ok {
		return nil, hutch.Errorf(hutch.Unavailable, "the packages of Python could not be listed: does the default image have Python?")
	}
	return list, nil
}

// decodeListing decodes the output of a sandbox.
func decodeListing(text string) ([]dependency, bool) {
	list := []dependency{}
	err := json.Unmarshal([]byte(text), &list)
	return list, err == nil && list != nil && len(list) <= maxDependencies
}
