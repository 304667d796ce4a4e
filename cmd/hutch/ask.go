package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hutch"
	"hutch/client"
	"hutch/internal/ask"
	"hutch/internal/daemon"
	"hutch/internal/text"
)

// askFlags are the flags of a server about the model that answers questions.
type askFlags struct {
	keyFile string
	prices  map[string]string
}

func (a *askFlags) define(f *pflag.FlagSet, q *daemon.Questions) {
	f.StringVar(&a.keyFile, "ask-key-file", "", "file with the key of the model that answers questions (default $ANTHROPIC_API_KEY)")
	f.StringVar(&q.URL, "ask-url", "", "URL of an endpoint that speaks Anthropic's Messages API (default $ANTHROPIC_BASE_URL, else "+ask.AnthropicURL+")")
	f.StringVar(&q.Model, "ask-model", "", "model that answers questions (default $ANTHROPIC_MODEL, else "+ask.DefaultModel+")")
	f.StringVar(&q.Components, "ask-components", "", "folder with the agents and commands that questions can name, such as a folder .claude (default none)")
	durationVar(f, &q.CacheAge, "ask-cache", "", ask.DefaultCacheAge, "how long a program is used again for the same question, 0 for never")
	f.IntVar(&q.Repairs, "ask-repairs", ask.DefaultRepairs, "how often a program that fails goes back to the model, for questions that do not say, 0 to 5")
	f.StringToStringVar(&a.prices, "ask-prices", nil, "what a million tokens of a model cost, as MODEL=INPUT/OUTPUT, e.g. claude-sonnet-4-5=3/15; the beginning of a model's name is enough; may be repeated")
}

// set completes the flags with the environment.
func (a *askFlags) set(q *daemon.Questions) (err error) {
	if q.Repairs < 0 || q.Repairs > hutch.MaxRepairs {
		return usageError{fmt.Errorf("--ask-repairs is %d: give a number from 0 to %d", q.Repairs, hutch.MaxRepairs)}
	}
	if q.CacheAge < 0 {
		return usageError{fmt.Errorf("--ask-cache is %v: give a time, or 0 for never", q.CacheAge)}
	}
	q.Prices = ask.Prices{}
	for model, price := range a.prices {
		if q.Prices[model], err = ask.ParsePrice(price); err != nil {
			return usageError{fmt.Errorf("--ask-prices: %w", err)}
		}
	}
	q.Key, q.URL, q.Model = os.Getenv(hutch.AnthropicKey), cmp.Or(q.URL, os.Getenv("ANTHROPIC_BASE_URL")), cmp.Or(q.Model, os.Getenv("ANTHROPIC_MODEL"))
	if a.keyFile == "" {
		return nil
	}
	b, err := os.ReadFile(a.keyFile)
	if err != nil {
		return usageError{fmt.Errorf("--ask-key-file: %w: give the path of a file with the key", err)}
	}
	if q.Key = strings.TrimSpace(string(b)); q.Key == "" {
		return usageError{fmt.Errorf("--ask-key-file: the file %s is empty: write the key into it", a.keyFile)}
	}
	return nil
}

func newAsk(h *home, std streams) *cobra.Command {
	var a asker
	c := &cobra.Command{
		Use:   "ask [flags] QUESTION...",
		Short: "Let a model write a program that answers a question, and run it in a sandbox",
		Long: `Let a model write a program that answers a question, and run it in a sandbox that
has no network and no secrets. The program's output and exit code are passed
through; what the model writes is shown at a terminal.

If a server runs, it asks its model. Without a server the question is answered
here, with the key in ANTHROPIC_API_KEY, in a sandbox of this process;
ANTHROPIC_BASE_URL and ANTHROPIC_MODEL choose another endpoint and model.

--agent and --command name Markdown files in the folders agents and commands of
.hutch or .claude, here or in the home folder; else those of the server.
Without a question it is read from the standard input.
` + remoteHelp,
		Example: `  hutch ask "What is the 100th prime number?"
  hutch ask --file sales.csv --save out "Draw the sales of each month as chart.svg"
  hutch ask -l javascript --json "How many days until 2030?"
  hutch ask -l bash --code 'echo $((6*7))'`,
		RunE: func(c *cobra.Command, args []string) error {
			q, err := a.request(args, std.in)
			if err != nil {
				return err
			}
			return a.run(c.Context(), h, q, std)
		},
	}
	a.flags(c.Flags())
	return c
}

// asker asks a question, as the flags say.
type asker struct {
	question        hutch.Question
	files           []string
	save, runtime   string
	timeout         time.Duration
	repairs         int
	asJSON, verbose bool
	quiet           bool
	answer          hutch.Answer // to the question
}

func (a *asker) flags(f *pflag.FlagSet) {
	q := &a.question
	f.StringVarP(&q.Language, "language", "l", "", "language of the program: python, javascript, typescript, bash, go ... (default python)")
	f.StringVar(&q.Agent, "agent", "", "agent whose text is added to the instructions to the model")
	f.StringVar(&q.Command, "command", "", "command whose text becomes the question, with QUESTION in the place of $ARGUMENTS")
	f.StringArrayVarP(&a.files, "file", "f", nil, "file to put into the working folder, `PATH`, or NAME=PATH for another name there; may be repeated")
	f.StringVar(&a.save, "save", "", "folder to save the files in that the program writes")
	f.StringVarP(&q.Code, "code", "c", "", "run this program, and ask no model")
	f.StringVar(&q.ConversationID, "conversation", "", "id of a conversation, which keeps its sandbox and what was said (needs a server)")
	f.IntVar(&q.MaxTokens, "max-tokens", 0, "most tokens of an answer of the model (default 2048)")
	positiveDurationVar(f, &a.timeout, "timeout", "t", ask.DefaultTimeout, "time limit of the program")
	f.IntVar(&a.repairs, "repairs", -1, "how often a program that fails goes back to the model, 0 to 5 (default: the server's, 2)")
	f.BoolVar(&q.NoCache, "no-cache", false, "ask the model even when the program for this question is known")
	f.StringVar(&a.runtime, "runtime", "", "runtime without a server: gvisor, native, docker or kubernetes (default: the first that works)")
	f.BoolVar(&a.asJSON, "json", false, "print the answer as JSON at the end, instead of output as it comes")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "show only what the program prints")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "show what the model writes, also when the standard error is not a terminal, and log what is done")
}

// request turns flags and arguments into a question.
func (a *asker) request(args []string, stdin *os.File) (hutch.Question, error) {
	q := a.question
	q.Question, q.Timeout = strings.Join(args, " "), a.timeout.Milliseconds()
	if len(args) == 0 && q.Code == "" && q.Command == "" {
		if isTerminal(stdin) {
			return q, usageError{errors.New("there is no question: give one as an argument, or on the standard input")}
		}
		var err error
		if q.Question, err = readAll(stdin, "the standard input"); err != nil {
			return q, err
		}
	}
	if strings.TrimSpace(q.Question) == "" && q.Code == "" && q.Command == "" { // the service's message for this is shorter
		return q, hutch.Errorf(hutch.Invalid, "the question is empty: give one as an argument, such as \"How many days has 2028?\", or on the standard input")
	}
	if a.repairs >= 0 {
		q.Repairs = &a.repairs
	}
	for _, given := range a.files {
		f, err := readFile(given)
		if err != nil {
			return q, err
		}
		q.Files = append(q.Files, f)
	}
	return q, q.Check()
}

// readFile reads a file for the working folder: PATH or NAME=PATH.
func readFile(given string) (hutch.QuestionFile, error) {
	name, file, named := strings.Cut(given, "=")
	if !named {
		name, file = filepath.Base(given), given
	}
	f, err := os.Open(file)
	if err != nil {
		return hutch.QuestionFile{}, usageError{fmt.Errorf("--file: %w", err)}
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, hutch.MaxQuestionBytes+1))
	if err != nil {
		return hutch.QuestionFile{}, usageError{fmt.Errorf("--file: %w", err)}
	}
	return hutch.QuestionFile{Path: name, Content: content}, nil
}

// run asks the server if one runs. Otherwise it answers in this process.
func (a *asker) run(ctx context.Context, h *home, q hutch.Question, std streams) (err error) {
	parts := &ask.Components{}
	if q.Agent != "" || q.Command != "" {
		if parts, err = localComponents(); err != nil {
			return err
		}
	}
	if svc, err := serverThatRuns(h); err != nil || svc != nil {
		if err == nil {
			q, err = parts.Fold(q)
		}
		if err != nil {
			return err
		}
		return a.ask(ctx, svc, q, std)
	}
	if q.ConversationID != "" {
		return hutch.Errorf(hutch.Unavailable, "a conversation needs a server, which keeps its sandbox: start one with `hutch serve`")
	}
	var model daemon.Questions
	if err := new(askFlags).set(&model); err != nil {
		return err
	}
	opt := ask.Options{Components: parts, Repairs: ask.DefaultRepairs}
	switch {
	case model.Key != "":
		opt.Model = ask.NewAnthropic(ask.AnthropicOptions{Key: model.Key, BaseURL: model.URL, Model: model.Model, Retries: 2})
	case q.Code == "":
		return hutch.Errorf(hutch.Unavailable, "there is no key for the model: set ANTHROPIC_API_KEY to yours, start a server that has one, or give a program with --code, which needs no model")
	}
	m, err := h.embed(ctx, a.runtime, "", newLog(std, a.verbose))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := m.Close(); err == nil {
			err = cerr
		}
	}()
	opt.Service, opt.Accounts = m, m.engine
	e := ask.New(opt)
	defer e.Close()
	return a.ask(ctx, e, q, std)
}

// serverThatRuns returns the server to ask; nil if there is none. An unknown server is an error, because otherwise the
// program would run on a machine that the person did not choose.
func serverThatRuns(h *home) (*client.Client, error) {
	t, err := h.target()
	switch {
	case err != nil && (h.server != "" || os.Getenv("HUTCH_URL") != ""):
		return nil, err
	case err != nil || t.idle:
		return nil, nil
	}
	return h.dial()
}

// localComponents reads the person's agents and commands. Those of the current folder come first.
func localComponents() (*ask.Components, error) {
	folders := []string{".hutch", ".claude"}
	if user, err := os.UserHomeDir(); err == nil {
		folders = append(folders, filepath.Join(user, ".hutch"), filepath.Join(user, ".claude"))
	}
	return ask.FindComponents(folders...)
}

// ask asks a question, shows the answer, and returns the program's exit code as an error.
func (a *asker) ask(ctx context.Context, to hutch.Questions, q hutch.Question, std streams) error {
	s := &shownAnswer{std: std, asJSON: a.asJSON, model: !a.asJSON && !a.quiet && (a.verbose || showsTerminal(std.err)), colour: showsColours(std.err)}
	answer, err := to.Ask(ctx, q, s.show)
	s.end()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	if a.asJSON {
		if err := writeJSON(std.out, answer); err != nil {
			return err
		}
	}
	if err := a.saveFiles(answer.Files, std); err != nil {
		return err
	}
	a.answer = answer
	s.remark(answer)
	switch {
	case answer.Success:
		return nil
	case answer.ExitCode == 0:
		return exitCode(1) // the program was killed, and its runtime reports no signal
	}
	return exitCode(answer.ExitCode)
}

// saveFiles saves the files of an answer. A program chose their names, so no name can lead out of the folder, not even
// through a link in it.
func (a *asker) saveFiles(files []hutch.QuestionFile, std streams) error {
	if a.save == "" {
		if len(files) > 0 && !a.quiet && !a.asJSON {
			fmt.Fprintf(std.err, "hutch: the program wrote %s; --save DIR keeps it\n", text.Line(namesOf(files)))
		}
		return nil
	}
	if err := os.MkdirAll(a.save, 0o755); err != nil {
		return hutch.Errorf(hutch.Invalid, "the files cannot be saved: %v; choose another folder with --save", err)
	}
	root, err := os.OpenRoot(a.save)
	if err != nil {
		return hutch.Errorf(hutch.Invalid, "the files cannot be saved: %v; choose another folder with --save", err)
	}
	defer root.Close()
	for _, f := range files {
		if f.Omitted {
			fmt.Fprintf(std.err, "hutch: %s is too large for the answer (%d bytes): ask in a conversation, and copy it with `hutch cp`\n", text.Line(f.Path), f.Size)
			continue
		}
		if err := saveFile(root, f); err != nil {
			return hutch.Errorf(hutch.Invalid, "the file %q cannot be saved below %s: %v; ask in a conversation, and copy it with `hutch cp`", f.Path, a.save, err)
		}
		if !a.quiet && !a.asJSON {
			fmt.Fprintf(std.err, "hutch: saved %s\n", text.Line(filepath.Join(a.save, f.Path)))
		}
	}
	return nil
}

func saveFile(root *os.Root, f hutch.QuestionFile) error {
	if err := hutch.CheckLocalName(f.Path); err != nil {
		return err
	}
	if ask.Hidden(f.Path) { // git or a shell could read such a file
		return errors.New("it is a hidden file")
	}
	if dir := path.Dir(f.Path); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return root.WriteFile(f.Path, f.Content, 0o644)
}

func namesOf(files []hutch.QuestionFile) string {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Path
	}
	return strings.Join(names, ", ")
}

// shownAnswer shows the events of an answer: the program's output unchanged, and the rest on standard error.
type shownAnswer struct {
	std           streams
	asJSON, model bool
	colour        bool
	dim           bool // the model's text is being shown
}

// Escape sequences of terminals.
const (
	faint  = "\x1b[2m"
	red    = "\x1b[31m"
	normal = "\x1b[0m"
)

func (s *shownAnswer) show(e hutch.AnswerEvent) (err error) {
	switch {
	case e.Output != nil:
		s.end()
		if s.asJSON {
			return nil
		}
		to := s.std.out
		if e.Output.Stream == hutch.Stderr {
			to = s.std.err
		}
		_, err = io.WriteString(to, e.Output.Text)
	case !s.model:
	case e.Repair != nil:
		s.end()
		_, err = fmt.Fprintf(s.std.err, "%s\n", s.in(red, "That failed; the model repairs it."))
	case e.Program != nil && e.Program.Cached:
		_, err = fmt.Fprintf(s.std.err, "%s\n", s.in(faint, text.Inert(strings.TrimSuffix(e.Program.Code, "\n"))))
	case e.Program != nil:
		s.end()
	default:
		if !s.dim && s.colour {
			io.WriteString(s.std.err, faint)
		}
		s.dim = true
		_, err = io.WriteString(s.std.err, text.Inert(e.Text))
	}
	return err
}

// end ends the model's text.
func (s *shownAnswer) end() {
	if !s.dim {
		return
	}
	s.dim = false
	if s.colour {
		io.WriteString(s.std.err, normal)
	}
	io.WriteString(s.std.err, "\n")
}

func (s *shownAnswer) in(colour, words string) string {
	if !s.colour {
		return words
	}
	return colour + words + normal
}

// remark reports details that the output and the exit code do not show.
func (s *shownAnswer) remark(a hutch.Answer) {
	if s.asJSON {
		return
	}
	switch {
	case a.TimedOut:
		fmt.Fprintln(s.std.err, "hutch: the program was killed at its time limit: allow more with --timeout")
	case a.Truncated:
		fmt.Fprintln(s.std.err, "hutch: the program wrote too much, and was killed")
	}
	if s.model && a.Model != "" {
		fmt.Fprintln(s.std.err, s.in(faint, text.Line(fmt.Sprintf("%s: %v, wrote for %v; ran for %v", a.Model, a.Usage, ms(a.GenerationTime), ms(a.ExecutionTime)))))
	}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
