// Command agent is a whole AI agent in one file: a loop that gives a model the tools of a sandbox, runs the calls that
// the model requests, and returns the results, until the model answers.
//
// The model here is a fake one with three fixed answers, so that the program runs without an account anywhere. To use a
// real one, write a type with the method next that sends the tools and the results to it.
//
//	HUTCH_URL=http://127.0.0.1:7700 HUTCH_TOKEN=... go run ./examples/agent
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const question = "Which month of the file sales.csv had the highest sales?"

const sales = "month,amount\nJanuary,310\nFebruary,275\nMarch,420\nApril,390\n"

// A model decides what to do next, from the question, the tools it can use and the results so far. It returns the
// call of a tool, or its answer.
type model interface {
	next(question string, tools []*mcp.Tool, results []string) (call *mcp.CallToolParams, answer string)
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	session, err := connect(ctx)
	if err != nil {
		return err
	}
	defer session.Close()

	box, err := newSandbox(ctx, session)
	if err != nil {
		return err
	}
	defer session.CallTool(ctx, &mcp.CallToolParams{Name: "destroySandbox", Arguments: map[string]any{"sandboxId": box, "force": true}})
	return converse(ctx, session, script{sandbox: box})
}

// newSandbox creates a sandbox that contains the file of sales. An exec that names no sandbox creates one and returns
// its id.
func newSandbox(ctx context.Context, s *mcp.ClientSession) (id string, err error) {
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "exec", Arguments: map[string]any{
		"command": "cat > sales.csv <<'end'\n" + sales + "end",
	}})
	if err != nil {
		return "", err
	}
	fields, _ := res.StructuredContent.(map[string]any)
	id, _ = fields["sandboxId"].(string)
	if id == "" {
		return "", fmt.Errorf("exec returned no sandbox: %s", text(res))
	}
	return id, nil
}

// converse runs the loop of every agent: ask the model, call the tool that it requests, return the result.
func converse(ctx context.Context, s *mcp.ClientSession, m model) error {
	list, err := s.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Println("question:", question)
	for results := []string(nil); ; {
		call, answer := m.next(question, list.Tools, results)
		if call == nil {
			fmt.Println("answer:", answer)
			return nil
		}
		fmt.Printf("\nthe model calls %s:\n%s\n", call.Name, indent(call.Arguments.(map[string]any)["command"].(string)))
		res, err := s.CallTool(ctx, call)
		if err != nil {
			results = append(results, err.Error()) // a model can often correct its own call
			continue
		}
		results = append(results, text(res))
		fmt.Printf("the result:\n%s\n", indent(output(res)))
	}
}

// script is a fake model: its first program has a mistake, and its second one corrects it.
type script struct{ sandbox string }

func (m script) next(_ string, _ []*mcp.Tool, results []string) (*mcp.CallToolParams, string) {
	const read = "import csv\nrows = list(csv.DictReader(open('sales.csv')))\n"
	switch len(results) {
	case 0:
		return m.python(read + "print(max(rows, key=lambda r: int(r['sales']))['month'])"), ""
	case 1:
		return m.python(read + "print(max(rows, key=lambda r: int(r['amount']))['month'])"), ""
	}
	last := strings.TrimSpace(results[len(results)-1])
	return nil, last[strings.LastIndexByte(last, '\n')+1:]
}

func (m script) python(code string) *mcp.CallToolParams {
	return &mcp.CallToolParams{Name: "exec", Arguments: map[string]any{"sandboxId": m.sandbox, "language": "python", "command": code}}
}

// text returns a result's text for a model.
func text(res *mcp.CallToolResult) string {
	var all []string
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			all = append(all, t.Text)
		}
	}
	return strings.Join(all, "\n")
}

// output returns the program's output, for the person at the terminal.
func output(res *mcp.CallToolResult) string {
	fields, _ := res.StructuredContent.(map[string]any)
	return fmt.Sprint(fields["stdout"], fields["stderr"])
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ")
}

// connect begins a session with the server. Every MCP example has its own copy of this function and of the type bearer,
// so that its one file can be copied and run.
func connect(ctx context.Context) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	return client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint:   os.Getenv("HUTCH_URL") + "/mcp",
		HTTPClient: &http.Client{Transport: bearer(os.Getenv("HUTCH_TOKEN"))},
	}, nil)
}

// bearer adds a token to every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
