package mcp

import (
	"context"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
	"hutch/internal/conversation"
)

// Conversations runs code for chats, and keeps the files that the runs create.
type Conversations interface {
	Run(ctx context.Context, req conversation.Request, out func(hutch.Output) error) (conversation.Result, error)
	Runners(ctx context.Context) ([]hutch.Language, error)
}

const conversationInstructions = `Hutch runs code for conversations in isolated Linux sandboxes without a network.
Call sandbox.run_code with the id of your conversation: files in /data stay from run to run, and each result has links to those that the run made or changed. Give people these links as they are.
A run has 30 seconds, half a CPU and 256 MB of memory; variables do not carry over. sandbox.list_runners names the languages.`

// addConversationTools registers the tools of conversations, under the names that clients of existing deployments use.
func (s *server) addConversationTools() {
	add(s, &sdk.Tool{
		Name: "sandbox.run_code", Title: "Run code in a conversation",
		Description: "Run source code in an isolated sandbox of a conversation and wait for its end (at most 30 seconds; no network). " +
			"Files in /data stay for the conversation's next runs; the result lists those that this run made or changed, with download links. " +
			"A non-zero exitCode is a result, not an error.",
		Annotations: hints{destructive: true}.annotations(),
		InputSchema: schema[runCodeArgs](nil),
	}, s.conversationRun)
	add(s, &sdk.Tool{
		Name: "sandbox.list_runners", Title: "List languages",
		Description: "List the languages that sandbox.run_code takes, with their versions.",
		Annotations: hints{readOnly: true, idempotent: true}.annotations(),
		InputSchema: schema[struct{}](nil),
	}, s.listRunners)
}

type runCodeArgs struct {
	ConversationID string `json:"conversationId" jsonschema:"any id; the same one has the same /data"`
	Language       string `json:"language" jsonschema:"such as python, javascript, typescript, bash"`
	Code           string `json:"code"`
}

// ranCode is the structured result of sandbox.run_code, and the data of its errors.
type ranCode struct {
	ConversationID string              `json:"conversationId"`
	Language       string              `json:"language"`
	ExitCode       int                 `json:"exitCode"` // 128+n: ended by signal n
	Stdout         string              `json:"stdout"`
	Stderr         string              `json:"stderr"`
	Encoding       string              `json:"encoding,omitempty"` // base64 for both streams when stdout or stderr is not UTF-8
	ExecutionTime  int64               `json:"executionTime"`      // milliseconds
	TimedOut       bool                `json:"timedOut"`
	Truncated      bool                `json:"truncated"`           // the middle of long output was left out
	Files          []conversation.File `json:"files"`               // made or changed by this run
	MoreFiles      int                 `json:"moreFiles,omitempty"` // how many files are not listed
	Denied         []string            `json:"denied,omitempty"`    // what the network denied during the run
}

func (s *server) conversationRun(ctx context.Context, c *call, in runCodeArgs) (reply, error) {
	for _, err := range []error{
		need("conversationId", in.ConversationID, "an id of the conversation, any that you like"),
		need("language", in.Language, "a language; sandbox.list_runners names them"),
		need("code", in.Code, "the source code"),
	} {
		if err != nil {
			return reply{}, err
		}
	}
	c.keepAlive()
	out := follow(ctx, c.req, 30)
	res, err := s.opt.Conversations.Run(ctx, conversation.Request(in), out.add)
	out.close()
	if err == nil {
		err = conversationVerdict(res)
	}
	shown, text := show(res.ExecResult, out.total)
	ran := ranCode{
		ConversationID: in.ConversationID, Language: in.Language, ExitCode: shown.ExitCode, Stdout: shown.Stdout, Stderr: shown.Stderr,
		Encoding: shown.Encoding, ExecutionTime: shown.ExecutionTime, TimedOut: shown.TimedOut, Truncated: shown.Truncated,
		Files: append([]conversation.File{}, res.Files[:min(len(res.Files), conversation.MaxShown)]...), MoreFiles: max(0, len(res.Files)-conversation.MaxShown), Denied: res.Denied,
	}
	if len(ran.Denied) > 0 {
		text = strings.TrimSuffix(text, "\n") + fmt.Sprintf("\n[the network denied %s: runs of conversations have only what the server allows]", strings.Join(oneLine(ran.Denied), ", "))
	}
	text += ran.links()
	switch {
	case err == nil:
		return reply{fmt.Sprintf("exit %d · %s\n", res.ExitCode, length(res.Duration)) + text, ran}, nil
	case text == "":
		return reply{}, err
	}
	return reply{}, &unfinished{err, ran, text}
}

// links describes the files and their links in text.
func (r ranCode) links() string {
	if len(r.Files) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n[files]\n")
	for _, f := range r.Files {
		fmt.Fprintf(&b, "%s (%d bytes): %s\n", printable(f.Name), f.Size, f.URL)
	}
	if r.MoreFiles > 0 {
		fmt.Fprintf(&b, "… and %d more\n", r.MoreFiles)
	}
	return b.String()
}

// conversationVerdict returns the error for a run that was ended by a limit.
func conversationVerdict(res conversation.Result) error {
	switch {
	case res.TimedOut:
		return hutch.Errorf(hutch.Timeout, "the run reached its limit of 30 seconds and was killed, with everything it had started. Do less in one run, and keep what is half done in /data")
	case res.Limit != "":
		return hutch.Errorf(hutch.Exhausted, "the run reached the %s limit and was killed. Let it use less", res.Limit).With("limit", res.Limit)
	}
	return nil
}

// into adds the result to the data of an error.
func (r ranCode) into(data map[string]any) {
	data["conversationId"], data["language"], data["files"] = r.ConversationID, r.Language, r.Files
	data["exitCode"], data["stdout"], data["stderr"] = r.ExitCode, r.Stdout, r.Stderr
	data["executionTime"], data["timedOut"], data["truncated"] = r.ExecutionTime, r.TimedOut, r.Truncated
	if r.Encoding != "" {
		data["encoding"] = r.Encoding
	}
	if len(r.Denied) > 0 {
		data["denied"] = r.Denied
	}
}

type runnerList struct {
	Runners []runnerEntry `json:"runners"`
}

type runnerEntry struct {
	Language string   `json:"language"`
	Version  string   `json:"version"`
	Aliases  []string `json:"aliases"`
}

func (s *server) listRunners(ctx context.Context, _ *call, _ struct{}) (reply, error) {
	list, err := s.opt.Conversations.Runners(ctx)
	if err != nil {
		return reply{}, err
	}
	var b strings.Builder
	out := runnerList{Runners: make([]runnerEntry, len(list))}
	for i, l := range list {
		out.Runners[i] = runnerEntry{l.Name, l.Version, l.Aliases}
		fmt.Fprintf(&b, "%s %s\n", l.Name, l.Version)
	}
	return reply{b.String(), out}, nil
}
