package ask

import (
	"fmt"
	"strings"

	"hutch"
	"hutch/internal/runner"
)

// instructions are the beginning of the system prompt. They describe the form of the answer, and the environment of the
// program.
const instructions = `You write one program that answers the user's question. It runs at once in a sandbox, and the user sees what it prints.

Answer with exactly one fenced code block in %[1]s, marked %[1]s, and nothing else: no text before or after it.
- The program is complete, and prints the answer to standard output.
- It reads no input from the user, and has %[2]d seconds.
- It uses the standard library; other packages may be missing.
- %[3]s
- There are no keys, tokens or passwords in the sandbox: do not look for any.
- It can read and write files in its working folder. The user gets the files that it writes there.
- When something fails, it prints the reason to standard error and exits with a status that is not 0.
`

func systemPrompt(q hutch.Question, lang runner.Language) string {
	network := "It has no network."
	if q.Network.Mode != hutch.NetworkNone {
		network = "It reaches only some hosts of the network."
	}
	return fmt.Sprintf(instructions, lang.Name, (q.Timeout+999)/1000, network)
}

// prompt puts the parts together: our instructions, the component's and the question's, then the conversation.
func (t composed) prompt(q hutch.Question, lang runner.Language, before []turn) Prompt {
	p := Prompt{Model: t.model, System: systemPrompt(q, lang), MaxTokens: q.MaxTokens}
	for _, more := range []string{t.instructions, q.Instructions} {
		if more = strings.TrimSpace(more); more != "" {
			p.System += "\n" + more + "\n"
		}
	}
	last := ""
	for _, b := range before {
		p.Messages = append(p.Messages, Message{User, last + b.question}, Message{Assistant, b.answer})
		last = "The program printed:\n" + b.output + "\n\n"
	}
	p.Messages = append(p.Messages, Message{User, last + t.question + fileList(q.Files)})
	return p
}

// fileList returns the part of a prompt that names the files which the program finds.
func fileList(files []hutch.QuestionFile) string {
	if len(files) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n\nFiles in the working folder:\n")
	for _, f := range files {
		fmt.Fprintf(&b, "- %s (%d bytes)\n", f.Path, len(f.Content))
	}
	return b.String()
}

// maxShownError is how many bytes of an error go back to the model.
const maxShownError = 4 << 10

func repairPrompt(problem string, lang runner.Language) string {
	return tail(problem, maxShownError) + fmt.Sprintf("\n\nAnswer with the whole corrected program: exactly one fenced code block in %s, and nothing else.", lang.Name)
}
