package jupyter

import (
	"fmt"
	"net/http"

	"hutch"
)

// spec is a kind of kernel: a language that has code contexts.
type spec struct {
	name, title, language string
	letters, colour       string // letters and colour of its logo
	info                  languageInfo
}

type languageInfo struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	MIMEType string `json:"mimetype"`
	File     string `json:"file_extension"`
	Lexer    string `json:"pygments_lexer"`
	Mode     any    `json:"codemirror_mode"`
	Exporter string `json:"nbconvert_exporter"`
}

const defaultSpec = "python3"

var specs = []spec{
	{"python3", "Python 3 (Hutch)", "python", "Py", "#3572a5", languageInfo{"python", "3", "text/x-python", ".py", "ipython3", map[string]any{"name": "ipython", "version": 3}, "python"}},
	{"javascript", "JavaScript (Hutch)", "javascript", "JS", "#b08800", languageInfo{"javascript", "ES2023", "application/javascript", ".js", "javascript", "javascript", "script"}},
	{"typescript", "TypeScript (Hutch)", "typescript", "TS", "#2b7489", languageInfo{"typescript", "5", "application/typescript", ".ts", "typescript", "text/typescript", "script"}},
	{"bash", "Bash (Hutch)", "bash", "sh", "#3a7d34", languageInfo{"bash", "5", "text/x-sh", ".sh", "bash", "shell", "script"}},
}

func specOf(name string) (spec, error) {
	for _, s := range specs {
		if s.name == name {
			return s, nil
		}
	}
	return spec{}, hutch.Errorf(hutch.NotFound, "there is no kernel %.60q: use python3, javascript, typescript or bash", name)
}

// model returns the spec as clients read it.
func (s spec) model() any {
	return map[string]any{
		"name": s.name,
		"spec": map[string]any{
			"display_name": s.title, "language": s.language, "argv": []string{}, "env": map[string]string{}, "interrupt_mode": "message", "metadata": map[string]any{},
		},
		"resources": map[string]string{"logo-svg": Prefix + "/kernelspecs/" + s.name + "/" + logo},
	}
}

func (h *Handler) specs(http.ResponseWriter, *http.Request) (int, any, error) {
	all := map[string]any{}
	for _, s := range specs {
		all[s.name] = s.model()
	}
	return http.StatusOK, map[string]any{"default": defaultSpec, "kernelspecs": all}, nil
}

func (h *Handler) spec(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	s, err := specOf(r.PathValue("name"))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, s.model(), nil
}

const logo = "logo-svg.svg"

// resource answers with a logo: the letters of a language.
func (h *Handler) resource(w http.ResponseWriter, r *http.Request) {
	s, err := specOf(r.PathValue("name"))
	if err == nil && r.PathValue("file") != logo {
		err = hutch.Errorf(hutch.NotFound, "the kernel %s has no file %.60q", s.name, r.PathValue("file"))
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><rect width="64" height="64" rx="10" fill="%s"/>`+
		`<text x="32" y="42" font-family="sans-serif" font-size="30" font-weight="bold" text-anchor="middle" fill="#fff">%s</text></svg>`, s.colour, s.letters)
}

// serverVersion is the version of the server of Jupyter whose API this is.
const serverVersion = "2.21.1"

func (h *Handler) version(http.ResponseWriter, *http.Request) (int, any, error) {
	return http.StatusOK, map[string]string{"version": serverVersion}, nil
}

// status counts the kernels that the caller can see.
func (h *Handler) status(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	list, err := h.visible(r, nil)
	if err != nil {
		return 0, nil, err
	}
	last, connections := date{h.began}, 0
	for _, k := range list {
		m := h.model(k)
		if m.Active.After(last.Time) {
			last = m.Active
		}
		connections += m.Connections
	}
	return http.StatusOK, map[string]any{"started": date{h.began}, "last_activity": last, "connections": connections, "kernels": len(list)}, nil
}
