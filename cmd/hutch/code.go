package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/text"
)

func newCode(h *home, std streams) *cobra.Command {
	var f codeFlags
	var m maker
	c := &cobra.Command{
		Use:   "code [flags] SANDBOX [FILE]",
		Short: "Run code in a context of a sandbox, which keeps its state",
		Long: `Run code in a code context of the sandbox of that id; both are made if there are
none. Variables stay for the next call. At a terminal, without code, it is a
prompt: an empty line ends a block, Ctrl-C interrupts what runs, Ctrl-D leaves.
Code given with --code or in a file reads our standard input.
Tables are printed as text. Images are shown where the terminal can, and else
saved in --save.
` + remoteHelp,
		Example: `  hutch code demo
  hutch code -c 'x = 6 * 7' demo && hutch code -c x demo
  hutch code -l javascript demo script.js`,
		Args: cobra.RangeArgs(1, 2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			source, kind, err := f.source(args[1:], std.in)
			if err != nil {
				return err
			}
			if kind != typed {
				if err := f.request(source).Check(); err != nil { // before a sandbox is created for the code
					return err
				}
			}
			if err := m.ensure(ctx, svc, hutch.CreateRequest{ID: args[0]}, std); err != nil {
				return err
			}
			r := &repl{svc: svc, sandbox: args[0], codeFlags: f, std: std, images: imageProtocol(std.out)}
			switch kind {
			case typed:
				return r.prompt(ctx)
			case piped:
				r.std.in = nil
			}
			return r.once(ctx, source)
		}),
	}
	f.flags(c)
	m.flags(c)
	return c
}

// codeFlags are the flags of code.
type codeFlags struct {
	language, context, code, save string
	timeout                       time.Duration
}

func (f *codeFlags) flags(c *cobra.Command) {
	c.Flags().StringVarP(&f.language, "language", "l", "python", "python, javascript, typescript or bash")
	c.Flags().StringVar(&f.context, "context", "", "name of the context (default one for each language)")
	c.Flags().StringVarP(&f.code, "code", "c", "", "the code itself, instead of a file or a prompt")
	positiveDurationVar(c.Flags(), &f.timeout, "timeout", "t", 0, "interrupt it after this time, e.g. 90s")
	c.Flags().StringVar(&f.save, "save", ".", "folder to save images in, when the terminal cannot show them")
}

// request asks for a run of code.
func (f *codeFlags) request(code string) hutch.RunRequest {
	return hutch.RunRequest{ContextID: f.context, Language: f.language, Code: code, Timeout: hutch.InSeconds(f.timeout), StreamOnly: true}
}

// origin is the source of the code.
type origin int

const (
	given origin = iota // given as an argument, so the standard input belongs to the code
	piped
	typed // the person types code at a prompt
)

func (f *codeFlags) source(args []string, in *os.File) (code string, from origin, err error) {
	switch {
	case f.code != "" && len(args) > 0:
		return "", given, usageError{fmt.Errorf("with --code there is no file, got %q: leave one of them out", strings.Join(args, " "))}
	case f.code != "":
		return f.code, given, nil
	case len(args) > 0 && args[0] != "-":
		code, err = readSource(args[0])
		return code, given, err
	case len(args) == 0 && isTerminal(in):
		return "", typed, nil
	}
	code, err = readAll(in, "the standard input")
	return code, piped, err
}

// repl runs code and shows the results.
type repl struct {
	codeFlags
	svc     hutch.Service
	sandbox string
	std     streams
	images  string                   // the terminal's image protocol; "" for none
	ask     func(hutch.InputRequest) // nil without a terminal
	saved   int
}

// once runs code, and returns its exit code as an error.
func (r *repl) once(ctx context.Context, code string) error {
	res, err := r.run(ctx, code)
	switch {
	case err != nil:
		return err
	case res.TimedOut:
		return hutch.Errorf(hutch.Timeout, "the code ran into its time limit after %v", res.Duration.Round(time.Millisecond))
	case res.ExitCode != 0:
		return exitCode(res.ExitCode)
	}
	return nil
}

func (r *repl) run(ctx context.Context, code string) (hutch.RunResult, error) {
	req := r.request(code)
	switch {
	case r.std.in == nil:
	case isTerminal(r.std.in):
		k, err := newKeyboard(r.std.in)
		if err != nil {
			return hutch.RunResult{}, err
		}
		defer k.close()
		r.ask, req.Stdin = k.ask, k.lines
	default:
		req.Stdin = r.std.in
	}
	res, err := r.svc.RunCode(ctx, r.sandbox, req, r.show)
	if err == nil {
		warnOfDenied(r.std.err, r.sandbox, res.ExitCode, res.Denied)
	}
	return res, err
}

// show shows one event.
func (r *repl) show(e hutch.RunEvent) (err error) {
	switch {
	case e.Input != nil:
		if r.ask != nil {
			r.ask(*e.Input)
		}
	case e.Output != nil && e.Output.Stream == hutch.Stderr:
		_, err = r.std.err.Write(e.Output.Data)
	case e.Output != nil:
		_, err = r.std.out.Write(e.Output.Data)
	case e.Error != nil:
		text := strings.TrimSuffix(e.Error.Traceback, "\n")
		if showsColours(r.std.err) {
			text = "\x1b[31m" + text + "\x1b[0m"
		}
		_, err = fmt.Fprintln(r.std.err, text)
	default:
		err = r.value(*e.Result)
	}
	return err
}

// value shows a value in the best form that a terminal can show.
func (r *repl) value(v hutch.CodeResult) error {
	if done, err := r.table(v.Data["application/vnd.hutch.table+json"]); done {
		return err
	}
	for mime, suffix := range map[string]string{"image/png": ".png", "image/jpeg": ".jpg"} {
		var data []byte // base64 in JSON
		if json.Unmarshal(v.Data[mime], &data) == nil && len(data) > 0 {
			return r.image(data, suffix)
		}
	}
	_, err := fmt.Fprintln(r.std.out, v.Text())
	return err
}

func (r *repl) table(form json.RawMessage) (bool, error) {
	var t struct {
		Columns []string            `json:"columns"`
		Rows    [][]json.RawMessage `json:"rows"`
		Total   int                 `json:"total"`
	}
	if json.Unmarshal(form, &t) != nil || len(t.Columns) == 0 {
		return false, nil
	}
	w := tabwriter.NewWriter(r.std.out, 0, 0, 2, ' ', 0)
	for i := range t.Columns {
		t.Columns[i] = text.Line(t.Columns[i])
	}
	fmt.Fprintln(w, strings.Join(t.Columns, "\t"))
	for _, row := range t.Rows {
		for i, v := range row {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, text.Line(cell(v)))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return true, err
	}
	if more := t.Total - len(t.Rows); more > 0 {
		fmt.Fprintf(r.std.out, "… %d more rows\n", more)
	}
	return true, nil
}

// cell returns a JSON value for a table: a text without quotes, nothing for null, and other values as they are in JSON.
func cell(value json.RawMessage) string {
	var s *string
	switch {
	case json.Unmarshal(value, &s) != nil:
		return string(value)
	case s == nil:
		return ""
	}
	return *s
}

// image shows an image, or saves it.
func (r *repl) image(data []byte, suffix string) error {
	switch r.images {
	case "iterm":
		_, err := fmt.Fprintf(r.std.out, "\x1b]1337;File=inline=1;size=%d:%s\a\n", len(data), base64.StdEncoding.EncodeToString(data))
		return err
	case "kitty":
		if suffix == ".png" {
			return kitty(r.std.out, base64.StdEncoding.EncodeToString(data))
		}
	}
	for {
		r.saved++
		path := filepath.Join(r.save, fmt.Sprintf("%s-%d%s", r.sandbox, r.saved, suffix))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return hutch.Errorf(hutch.Invalid, "the image cannot be saved: %v; choose another folder with --save", err)
		}
		_, err = f.Write(data)
		fmt.Fprintf(r.std.out, "[image saved as %s]\n", path)
		return errors.Join(err, f.Close())
	}
}

// kitty sends an image in the pieces that its protocol requires.
func kitty(w io.Writer, data string) error {
	const piece = 4096
	for first := true; len(data) > 0; first = false {
		n := min(piece, len(data))
		keys := fmt.Sprintf("m=%d", min(1, len(data)-n))
		if first {
			keys = "a=T,f=100," + keys
		}
		if _, err := fmt.Fprintf(w, "\x1b_G%s;%s\x1b\\", keys, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	_, err := fmt.Fprintln(w)
	return err
}

// showsColours reports whether w is a terminal that shows colours. NO_COLOR and a terminal without control sequences turn
// them off.
func showsColours(w io.Writer) bool {
	return showsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// showsTerminal reports whether output to w is shown on a terminal.
func showsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f)
}

// imageProtocol returns the terminal's protocol for images.
func imageProtocol(out io.Writer) string {
	switch {
	case !showsTerminal(out):
		return ""
	case os.Getenv("KITTY_WINDOW_ID") != "" || strings.Contains(os.Getenv("TERM"), "kitty"):
		return "kitty"
	case os.Getenv("TERM_PROGRAM") == "iTerm.app" || os.Getenv("TERM_PROGRAM") == "WezTerm":
		return "iterm"
	}
	return ""
}
