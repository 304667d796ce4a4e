package dify

import (
	"fmt"
	"net/http"
	"strings"

	"hutch"
	"hutch/internal/compat"
)

// program is the body of a run.
type program struct {
	Language string `json:"language"`
	Code     string `json:"code"`
	Preload  string `json:"preload"`
	Network  bool   `json:"enable_network"`
}

// language says how to run a language of Dify. The loader runs the code on its standard input, in the loader's module.
type language struct{ name, loader string }

var languages = map[string]language{
	"python3": {"python", `exec(compile(__import__("sys").stdin.buffer.read().decode("utf-8"), "<code>", "exec"))`},
	"nodejs":  {"javascript", `eval(require("fs").readFileSync(0, "utf8"))`},
}

// check refuses a run that no server can carry out.
func (p program) check() (language, error) {
	l, ok := languages[p.Language]
	switch {
	case p.Language == "" || p.Code == "":
		return l, hutch.Errorf(hutch.Invalid, "language and code are required")
	case !ok:
		return l, hutch.Errorf(hutch.Invalid, "unsupported language %.40q: use python3 or nodejs", p.Language)
	}
	return l, nil
}

// network returns the network access of the sandbox. Dify always asks for a network; the server decides about the
// access.
func (p program) network() hutch.Network {
	if p.Network {
		return hutch.Network{}
	}
	return hutch.Network{Mode: hutch.NetworkNone}
}

// outcome is how a run ended.
type outcome struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	Error    string `json:"error"` // empty exactly if the run succeeded
	ExitCode int    `json:"exit_code"`
}

// maxOutput is how many bytes a run can write to stdout, and to stderr. A result that is cut would be useless, so a run
// that writes more fails.
const maxOutput = 8 << 20

func (h *Handler) run(w http.ResponseWriter, r *http.Request) (any, error) {
	var p program
	if err := compat.ReadJSON(w, r, &p); err != nil {
		return nil, err
	}
	l, err := p.check()
	if err != nil {
		return nil, err
	}
	req := hutch.ExecRequest{
		Language: l.name, Command: p.Preload + "\n" + l.loader, Stdin: strings.NewReader(p.Code), Timeout: hutch.InSeconds(h.timeout), StreamOnly: true,
	}
	if err := req.Check(); err != nil {
		return nil, err
	}
	out := compat.Collected{Max: maxOutput}
	var res hutch.ExecResult
	err = compat.Once(r.Context(), h.svc, h.log, hutch.CreateRequest{Image: h.image, Network: p.network()}, h.timeout, func(sandbox string) error {
		var err error
		res, err = h.svc.Exec(r.Context(), sandbox, req, out.Add(r.Context()))
		return err
	})
	if err != nil && out.Full == "" {
		return nil, err
	}
	return describe(res, &out), nil
}

// describe describes the end of a run in the words of Dify's own service.
func describe(res hutch.ExecResult, out *compat.Collected) outcome {
	o := outcome{Stdout: out.Stdout(), Stderr: out.Stderr(), ExitCode: res.ExitCode}
	reason := ""
	switch {
	case out.Full != "":
		o.ExitCode, reason = -1, fmt.Sprintf("error: the program wrote more than %d MiB to %s\n", maxOutput>>20, out.Full)
	case res.TimedOut:
		o.ExitCode, reason = -1, "error: timeout\n"
	case res.Limit != "":
		o.ExitCode, reason = -1, "error: the limit of the sandbox is reached: "+res.Limit+"\n"
	}
	if o.ExitCode != 0 {
		o.Error = fmt.Sprintf("process exited with code %d\n%s%s", o.ExitCode, reason, o.Stderr)
	}
	return o
}
