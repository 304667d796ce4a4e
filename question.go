package hutch

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Questions turn a question into a program, and run it.
type Questions interface {
	// Ask asks a model for a program that answers the question, runs it in a sandbox, and returns its output. A program
	// that fails goes back to the model with its error, for a limited number of repairs. If out is not nil, it gets the
	// events in the order in which they happen; an error from it cancels. A program that fails is an answer without
	// Success, not an error. An error of the model is of kind Unavailable or Timeout.
	Ask(ctx context.Context, q Question, out func(AnswerEvent) error) (Answer, error)
}

// Question asks for a program that answers it. The sandbox reaches no network unless Network says otherwise, and has
// no secrets.
type Question struct {
	Question  string `json:"question"`
	MaxTokens int    `json:"maxTokens,omitempty"` // most tokens of each answer of the model; default DefaultMaxTokens
	Timeout   int64  `json:"timeout,omitempty"`   // time limit of the program, in ms; default 30000
	Language  string `json:"language,omitempty"`  // language of the program; default python
	// Code is run unchanged: no model is asked, and Question can be empty.
	Code string `json:"code,omitempty"`
	// Agent names a component of the server whose text is added to the instructions to the model. Command names a
	// component whose text becomes the question, with Question in place of $ARGUMENTS.
	Agent   string `json:"agent,omitempty"`
	Command string `json:"command,omitempty"`
	// Instructions are added to the instructions to the model, after those of Agent.
	Instructions string `json:"instructions,omitempty"`
	// Files are put into the working folder before the program starts.
	Files []QuestionFile `json:"files,omitempty"`
	// ConversationID keeps the sandbox, and its questions and answers, for the next question with this id.
	ConversationID string `json:"conversationId,omitempty"`
	// NoCache asks the model even when the program for this question is known.
	NoCache bool `json:"noCache,omitempty"`
	// Repairs is how often a failing program is sent back to the model, 0 to MaxRepairs; default: the server's.
	Repairs *int    `json:"repairs,omitempty"`
	Measure bool    `json:"measure,omitempty"` // also report the resource use of the sandbox
	Network Network `json:"network,omitzero"`  // default none
}

// Limits of a question.
const (
	MaxQuestion      = 128 << 10 // bytes of a question, and of its instructions
	DefaultMaxTokens = 2048
	MaxMaxTokens     = 64000
	MaxRepairs       = 5
	// MaxQuestionFiles bounds the files of a question and of an answer, and MaxQuestionBytes their contents together.
	MaxQuestionFiles = 100
	MaxQuestionBytes = 4 << 20
)

// QuestionFile is a file that goes into or comes out of the working folder.
type QuestionFile struct {
	Path    string `json:"path"` // below the working folder
	Content []byte `json:"content"`
	// Size is the size of the file. Omitted says that the content is not part of the answer, because the answer would
	// exceed its limits. Both are set only in answers.
	Size    int64 `json:"size,omitempty"`
	Omitted bool  `json:"omitted,omitempty"`
}

// Check refuses a question that no server can answer.
func (q Question) Check() error {
	return cmp.Or(q.checkText(), q.checkNumbers(), checkQuestionFiles(q.Files), checkOptionalID(q.SandboxID()))
}

func (q Question) checkText() error {
	switch {
	case strings.TrimSpace(q.Question) == "" && q.Code == "" && q.Command == "":
		return Errorf(Invalid, "Question is required").Naming(AboutField, "question")
	case len(q.Question) > MaxQuestion:
		return Errorf(Invalid, "the question has %d bytes, over the limit of %d: send the data as files", len(q.Question), MaxQuestion).Naming(AboutField, "question")
	case len(q.Instructions) > MaxQuestion:
		return Errorf(Invalid, "the instructions have %d bytes, over the limit of %d: send the data as files", len(q.Instructions), MaxQuestion).Naming(AboutField, "instructions")
	case !utf8.ValidString(q.Question):
		return Errorf(Invalid, "the question is not valid UTF-8").Naming(AboutField, "question")
	case len(q.Code) > MaxCommand:
		return Errorf(Invalid, "the code has %d bytes, over the limit of %d: send the data as files", len(q.Code), MaxCommand).Naming(AboutField, "code")
	case q.Code != "" && (q.Agent != "" || q.Command != "" || q.Instructions != ""):
		return Errorf(Invalid, "code is run without a model: leave out agent, command and instructions").Naming(AboutField, "code")
	}
	return nil
}

func (q Question) checkNumbers() error {
	switch {
	case q.MaxTokens < 0 || q.MaxTokens > MaxMaxTokens:
		return Errorf(Invalid, "maxTokens is %d: give 1 to %d, or leave it out for %d", q.MaxTokens, MaxMaxTokens, DefaultMaxTokens).Naming(AboutField, "maxTokens")
	case q.Timeout < 0:
		return Errorf(Invalid, "timeout is %d ms: give a positive number, or leave it out for 30000", q.Timeout).Naming(AboutField, "timeout")
	case q.Repairs != nil && (*q.Repairs < 0 || *q.Repairs > MaxRepairs):
		return Errorf(Invalid, "repairs is %d: give 0 to %d", *q.Repairs, MaxRepairs).Naming(AboutField, "repairs")
	}
	return nil
}

func checkQuestionFiles(files []QuestionFile) error {
	if len(files) > MaxQuestionFiles {
		return Errorf(Invalid, "there are %d files, over the limit of %d: send an archive", len(files), MaxQuestionFiles).Naming(AboutField, "files")
	}
	total := 0
	for _, f := range files {
		if err := CheckLocalName(f.Path); err != nil {
			return err
		}
		if total += len(f.Content); total > MaxQuestionBytes {
			return Errorf(Invalid, "the files have more than %d bytes together: write large files into the sandbox of a conversation", MaxQuestionBytes).Naming(AboutField, "files")
		}
	}
	return nil
}

// CheckLocalName refuses a file name that is not in its canonical form or leads out of its folder.
func CheckLocalName(name string) error {
	if name == "" || name == "." || !filepath.IsLocal(name) || path.Clean(name) != name || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) || !utf8.ValidString(name) || len(name) > 1024 {
		return Errorf(Invalid, "the file name %.80q cannot be used: give a path below the working folder, such as data/in.csv", name).Naming(AboutField, "files")
	}
	return nil
}

// SandboxID returns the id of the sandbox that a conversation keeps; empty for a question without a conversation.
func (q Question) SandboxID() string {
	if q.ConversationID == "" {
		return ""
	}
	return "ask-" + q.ConversationID
}

// Answer is the result of a question's program.
type Answer struct {
	Success  bool   `json:"success"`
	Question string `json:"question"`
	Code     string `json:"code"`
	Output   string `json:"output"` // standard output
	Error    string `json:"error"`  // the error; empty with Success
	// SandboxID is the sandbox that the program ran in. It is destroyed unless the question had a conversation.
	SandboxID     string `json:"sandboxId"`
	ExecutionTime int64  `json:"executionTime"` // execution time of the last program, in ms

	Language  string `json:"language"`
	ExitCode  int    `json:"exitCode"`
	Stderr    string `json:"stderr"`
	TimedOut  bool   `json:"timedOut"`
	Truncated bool   `json:"truncated"` // the program wrote too much, and was killed
	// GenerationTime is how long the model took, in ms, with all repairs.
	GenerationTime int64          `json:"generationTime"`
	Cached         bool           `json:"cached"`  // the program came from the cache
	Repairs        int            `json:"repairs"` // how often a program went back to the model
	Model          string         `json:"model,omitempty"`
	Usage          ModelUsage     `json:"usage"`
	ConversationID string         `json:"conversationId,omitempty"`
	Files          []QuestionFile `json:"files,omitempty"` // files that the program wrote or changed in its working folder
	// Resources is the use of the sandbox since it was created; nil if it was not requested or cannot be measured.
	Resources *Consumption `json:"resources,omitempty"`
}

// Consumption is the resource use of a sandbox.
type Consumption struct {
	CPUSeconds float64 `json:"cpuSeconds"`
	MemoryPeak float64 `json:"memoryPeak"` // MiB
}

// ModelUsage counts tokens of a model.
type ModelUsage struct {
	InputTokens  int `json:"inputTokens"` // including those written to and read from the model's own cache
	OutputTokens int `json:"outputTokens"`
	// Cost is computed with the server's prices; nil if it has none for the model.
	Cost *float64 `json:"cost,omitempty"`
}

// Add returns the sum of u and v. The sum has a cost if both have one, or if one of them counts no tokens and the other
// has a cost.
func (u ModelUsage) Add(v ModelUsage) ModelUsage {
	sum := ModelUsage{InputTokens: u.InputTokens + v.InputTokens, OutputTokens: u.OutputTokens + v.OutputTokens}
	switch {
	case u == (ModelUsage{}):
		sum.Cost = v.Cost
	case v == (ModelUsage{}):
		sum.Cost = u.Cost
	case u.Cost != nil && v.Cost != nil:
		cost := *u.Cost + *v.Cost
		sum.Cost = &cost
	}
	return sum
}

// String returns the usage for people.
func (u ModelUsage) String() string {
	text := fmt.Sprintf("%d tokens in, %d out", u.InputTokens, u.OutputTokens)
	if u.Cost != nil {
		text += fmt.Sprintf(", cost %.6f", *u.Cost)
	}
	return text
}

// AnswerEvent is one step on the way to an answer: exactly one field is set.
type AnswerEvent struct {
	Text    string        `json:"text,omitempty"` // a piece of the model's answer
	Program *Program      `json:"program,omitempty"`
	Output  *AnswerOutput `json:"output,omitempty"`
	Repair  *Repair       `json:"repair,omitempty"`
}

// Name says which field is set.
func (e AnswerEvent) Name() string {
	switch {
	case e.Program != nil:
		return "program"
	case e.Output != nil:
		return "output"
	case e.Repair != nil:
		return "repair"
	}
	return "text"
}

// Program is code that is about to run.
type Program struct {
	Language string `json:"language"`
	Code     string `json:"code"`
	Attempt  int    `json:"attempt"` // 1 is the first
	Cached   bool   `json:"cached"`
}

// AnswerOutput is output of the program, as valid UTF-8.
type AnswerOutput struct {
	Stream Stream `json:"stream"`
	Text   string `json:"text"`
}

// Repair reports that a program is sent back to the model.
type Repair struct {
	Attempt int    `json:"attempt"` // the attempt that failed
	Error   string `json:"error"`
}
