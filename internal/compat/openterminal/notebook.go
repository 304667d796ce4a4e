package openterminal

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/compat"
)

// A session of a notebook is a code context of the user's sandbox, and a file there. Its id consists of the context's id
// and the file's path, so this server need not remember the session: it continues after a restart.

const (
	// cellTime bounds the run of a cell, as in Open Terminal.
	cellTime = hutch.Seconds(120)
	// maxOutputs limits what is kept of a cell's output, in bytes.
	maxOutputs = 4 << 20
	// outputCost estimates what an output takes in memory beside its data, in bytes, and lineCost a line of a traceback.
	outputCost, lineCost = 1 << 10, 64
	// notebookCopies is how many copies of a notebook's text are in memory while a cell is run and saved.
	notebookCopies = 5
	// ourTypes begins the MIME types that Hutch adds to results.
	ourTypes = "application/vnd.hutch."
)

// session is a notebook that is open.
type session struct {
	hutch.CodeContext
	path string
}

func (s session) id() string {
	return s.ID + "." + base64.RawURLEncoding.EncodeToString([]byte(s.path))
}

func (s session) status() string {
	if s.Busy {
		return "busy"
	}
	return "ready"
}

// kernels are the languages of Jupyter's usual kernels. The kernels of other languages have the language's name.
var kernels = map[string]string{"": "python", "python3": "python", "deno": "typescript", "tslab": "typescript", "jslab": "javascript"}

func kernelOf(language string) string {
	if language == "python" {
		return "python3"
	}
	return language
}

var errNoNotebook = hutch.Errorf(hutch.NotFound, "Session not found: open the notebook again with POST /notebooks")

// session finds the session that a request names.
func (c *call) session() (s session, err error) {
	id, name, _ := strings.Cut(c.r.PathValue("session"), ".")
	path, err := base64.RawURLEncoding.DecodeString(name)
	if err != nil || !strings.HasPrefix(string(path), "/") || hutch.CheckPath(string(path)) != nil {
		return s, errNoNotebook
	}
	list, err := c.svc.Contexts(c.ctx, c.sandbox)
	if err != nil {
		return s, err
	}
	i := slices.IndexFunc(list, func(x hutch.CodeContext) bool { return x.ID == id })
	if i < 0 {
		return s, errNoNotebook
	}
	return session{list[i], string(path)}, nil
}

func (c *call) openNotebook() (any, error) {
	path, err := c.inBody()
	if err != nil {
		return nil, err
	}
	nb, err := c.notebook(path)
	if err != nil {
		return nil, err
	}
	kernel := nb.kernel()
	language, ok := kernels[kernel]
	if !ok {
		language = kernel
	}
	x, err := c.svc.CreateContext(c.ctx, c.sandbox, hutch.ContextRequest{ID: hutch.NewID("nb"), Language: language, Dir: c.home})
	if err != nil {
		return nil, err
	}
	return map[string]string{"id": session{x, path}.id(), "kernel": kernelOf(x.Language), "status": "ready"}, nil
}

func (c *call) notebookStatus() (any, error) {
	s, err := c.session()
	return map[string]string{"id": s.id(), "path": s.path, "kernel": kernelOf(s.Language), "status": s.status()}, err
}

func (c *call) closeNotebook() (any, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	return map[string]string{"status": "stopped"}, c.svc.DeleteContext(c.ctx, c.sandbox, s.ID)
}

// cellResult is the answer to a cell that has run.
type cellResult struct {
	Status  string           `json:"status"` // "ok" or "error"
	Count   *int             `json:"execution_count"`
	Outputs []map[string]any `json:"outputs"`
}

// runCell runs a cell, and writes its output to the notebook's file.
func (c *call) runCell() (any, error) {
	var req struct {
		Cell   *int    `json:"cell_index"`
		Source *string `json:"source"`
	}
	if err := compat.ReadJSON(c.w, c.r, &req); err != nil {
		return nil, err
	}
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	if s.Busy {
		return nil, hutch.Errorf(hutch.Conflict, "Cell already executing: wait until it has ended")
	}
	nb, err := c.notebook(s.path)
	if err != nil {
		return nil, err
	}
	if req.Cell == nil || *req.Cell < 0 || *req.Cell >= len(nb.cells) {
		return nil, hutch.Errorf(hutch.Invalid, "cell_index is required, from 0 to %d", len(nb.cells)-1)
	}
	cell, err := nb.cell(*req.Cell)
	if err != nil {
		return nil, err
	}
	if req.Source != nil {
		cell.source = *req.Source
	}
	if !cell.isCode() || strings.TrimSpace(cell.source) == "" {
		return cellResult{Status: "ok", Outputs: []map[string]any{}}, nil
	}
	out := cellOutput{ctx: c.ctx, list: []map[string]any{}}
	res, err := c.svc.RunCode(c.ctx, c.sandbox, hutch.RunRequest{ContextID: s.ID, Code: cell.source, Timeout: cellTime, StreamOnly: true}, out.add)
	if err != nil {
		return nil, err
	}
	answer := out.result(res)
	if text, err := nb.with(*req.Cell, cell, answer); err != nil || len(text) > maxText {
		c.log.Warn("a notebook cannot be saved with its output", "sandbox", c.sandbox, "bytes", len(text), "err", err)
	} else if _, err := c.store(s.path, bytes.NewReader(c.indented(text))); err != nil { // the caller gets the result even so
		c.log.Warn("save a notebook", "sandbox", c.sandbox, "err", err)
	}
	return answer, nil
}

// cellOutput collects the output of a cell as Jupyter describes it.
type cellOutput struct {
	ctx  context.Context
	list []map[string]any
	text []byte // of the newest output, if that is a stream
	size int
	full bool
	// failed says that an error is shown without its text.
	failed bool
}

func (o *cellOutput) add(e hutch.RunEvent) error {
	switch {
	case e.Output != nil:
		name := string(e.Output.Stream)
		if n := len(o.list); n == 0 || o.list[n-1]["name"] != name {
			o.put(len(e.Output.Data), map[string]any{"output_type": "stream", "name": name})
		} else {
			o.take(len(e.Output.Data))
		}
		if !o.full {
			o.text = append(o.text, e.Output.Data...)
		}
	case e.Result != nil:
		o.addResult(e.Result)
	case e.Error != nil:
		o.addError(e.Error.Name, e.Error.Message, e.Error.Traceback)
	}
	return nil
}

func (o *cellOutput) addResult(r *hutch.CodeResult) {
	data, size := map[string]any{}, 0
	for kind, value := range r.Data {
		if !strings.HasPrefix(kind, ourTypes) {
			data[kind], size = value, size+len(kind)+len(value)
		}
	}
	kind := "display_data"
	if r.Main {
		kind = "execute_result"
	}
	o.put(size, map[string]any{"output_type": kind, "data": data, "metadata": map[string]any{}})
}

// addError adds an error of the cell. If there is no room for the error, it is shown once, without its text.
func (o *cellOutput) addError(name, message, traceback string) {
	lines := strings.Count(traceback, "\n") + 1
	switch {
	case o.take(outputCost + len(name) + len(message) + len(traceback) + lines*lineCost):
		o.append(errorOutput(name, message, traceback))
	case !o.failed:
		o.append(errorOutput("Error", "the error is too long to be shown", ""))
		o.failed = true
	}
}

func errorOutput(name, message, traceback string) map[string]any {
	return map[string]any{"output_type": "error", "ename": name, "evalue": message, "traceback": strings.Split(traceback, "\n")}
}

// put adds an output with size bytes of data, if there is room for it.
func (o *cellOutput) put(size int, one map[string]any) {
	if o.take(outputCost + size) {
		o.append(one)
	}
}

func (o *cellOutput) append(one map[string]any) {
	o.flush()
	o.list = append(o.list, one)
}

// take reports whether more output can be kept.
func (o *cellOutput) take(n int) bool {
	if o.size += n; !o.full && (o.size > maxOutputs || !compat.Take(o.ctx, n)) {
		o.full = true
	}
	return !o.full
}

// flush completes the newest output, if it is a stream.
func (o *cellOutput) flush() {
	if o.text != nil {
		o.list[len(o.list)-1]["text"] = valid(string(o.text))
		o.text = nil
	}
}

func (o *cellOutput) result(res hutch.RunResult) cellResult {
	status := "ok"
	switch {
	case res.TimedOut:
		o.append(errorOutput("TimeoutError", fmt.Sprintf("the cell ran for longer than %v seconds, and was interrupted", cellTime), ""))
	case res.Limit != "":
		o.append(errorOutput("MemoryError", "a program of the cell was ended, because the sandbox reached its limit of "+res.Limit, ""))
	case res.Ended:
		o.append(errorOutput("DeadKernelError", "the interpreter has ended; the next cell gets a new one", ""))
	}
	o.flush()
	if o.full {
		o.list = append(o.list, map[string]any{"output_type": "stream", "name": "stderr", "text": fmt.Sprintf("[more output than %d MiB is not shown]\n", maxOutputs>>20)})
	}
	for _, one := range o.list {
		switch one["output_type"] {
		case "execute_result":
			one["execution_count"] = res.Executions
		case "error":
			status = "error"
		}
	}
	return cellResult{status, &res.Executions, o.list}
}

// notebook is a file of Jupyter's format 4. Fields that are not needed here stay as they are.
type notebook struct {
	fields map[string]json.RawMessage
	cells  []json.RawMessage
}

// cell is a cell of a notebook.
type cell struct {
	fields map[string]json.RawMessage
	source string
}

func (c cell) isCode() bool { return string(c.fields["cell_type"]) == `"code"` }

// lines is a text, which can be written as a list of lines.
type lines string

func (l *lines) UnmarshalJSON(b []byte) error {
	var list []string
	if len(b) > 0 && b[0] == '[' {
		err := json.Unmarshal(b, &list)
		*l = lines(strings.Join(list, ""))
		return err
	}
	return json.Unmarshal(b, (*string)(l))
}

// notebook reads a notebook. It comes from the sandbox, and can be anything.
func (c *call) notebook(path string) (nb notebook, err error) {
	text, err := c.text(path)
	if err != nil {
		if errors.Is(err, hutch.NotFound) {
			err = hutch.Errorf(hutch.NotFound, "Notebook not found: %s", path).Because(err)
		}
		return nb, err
	}
	b := []byte(text)
	if !compat.Take(c.ctx, notebookCopies*len(b)) || !compat.TakeJSON(c.ctx, b) {
		return nb, compat.ErrNoRoom
	}
	var head struct {
		Format int               `json:"nbformat"`
		Cells  []json.RawMessage `json:"cells"`
	}
	if json.Unmarshal(b, &nb.fields) != nil {
		return nb, hutch.Errorf(hutch.Invalid, "Invalid notebook: %s is not a JSON object", path)
	}
	switch err = json.Unmarshal(b, &head); {
	case err != nil:
		return nb, hutch.Errorf(hutch.Invalid, "Invalid notebook: %s has no number nbformat, or no list of cells", path)
	case head.Format != 4:
		return nb, hutch.Errorf(hutch.Invalid, "Invalid notebook: %s has the format %d: save it in Jupyter's format 4", path, head.Format)
	}
	nb.cells = head.Cells
	return nb, nil
}

// kernel returns the name of the kernel that a notebook wants; it can be empty.
func (nb notebook) kernel() string {
	var meta struct {
		Kernel struct {
			Name string `json:"name"`
		} `json:"kernelspec"`
	}
	json.Unmarshal(nb.fields["metadata"], &meta) // without metadata it is Python
	return meta.Kernel.Name
}

func (nb notebook) cell(i int) (c cell, err error) {
	var source lines
	if err = json.Unmarshal(nb.cells[i], &c.fields); err == nil && c.fields["source"] != nil {
		err = json.Unmarshal(c.fields["source"], &source)
	}
	if c.source = string(source); err != nil {
		err = hutch.Errorf(hutch.Invalid, "Invalid notebook: the cell %d is not an object whose source is a string or a list of strings", i)
	}
	return c, err
}

// with returns the text of a notebook in which a cell has run.
func (nb notebook) with(i int, c cell, res cellResult) ([]byte, error) {
	fields := maps.Clone(c.fields)
	for name, v := range map[string]any{"source": c.source, "execution_count": res.Count, "outputs": res.Outputs} {
		b, err := compat.Marshal(v)
		if err != nil {
			return nil, err
		}
		fields[name] = b
	}
	b, err := compat.Marshal(fields)
	if err != nil {
		return nil, err
	}
	cells := slices.Clone(nb.cells)
	cells[i] = b
	all := maps.Clone(nb.fields)
	if all["cells"], err = compat.Marshal(cells); err != nil {
		return nil, err
	}
	return compat.Marshal(all)
}

// indented returns JSON as Jupyter writes it, or unchanged if that would be too long to be saved: a short text of lists in
// lists needs much space when each value is on a line.
func (c *call) indented(text []byte) []byte {
	size := indentedSize(text)
	if size > maxText || !compat.Take(c.ctx, size) {
		return text
	}
	var b bytes.Buffer
	b.Grow(size)
	if json.Indent(&b, text, "", " ") != nil {
		return text
	}
	return b.Bytes()
}

// indentedSize returns the size of JSON that is indented by one space for each level, in bytes. The text has no spaces
// between its values.
func indentedSize(text []byte) (size int) {
	depth, quoted, begun := 0, false, false // begun: a list or an object has begun, and has no value yet
	for i := 0; i < len(text); i++ {
		c := text[i]
		size++
		switch {
		case quoted && c == '\\':
			i++
			size++
			continue
		case quoted && c != '"':
			continue
		case begun && c != ']' && c != '}':
			depth++
			size += 1 + depth
			begun = false
		}
		switch c {
		case '"':
			quoted = !quoted
		case '{', '[':
			begun = true
		case ',':
			size += 1 + depth
		case ':':
			size++
		case '}', ']':
			if !begun {
				depth--
				size += 1 + depth
			}
			begun = false
		}
	}
	return size
}
