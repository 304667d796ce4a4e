package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/fakeservice"
	"hutch/internal/files"
	"hutch/internal/rest"
)

// The examples speak to a server whose sandboxes follow a script. A real server prints its URL and token when it
// starts.
var server = httptest.NewServer(rest.NewHandler(&fakeservice.Service{
	OnFiles: exampleFiles,
	OnExec: func(_ context.Context, id string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		text := "42\n"
		if req.Stdin != nil {
			b, err := io.ReadAll(req.Stdin)
			if err != nil {
				return hutch.ExecResult{}, err
			}
			text = strings.ToUpper(string(b))
		}
		return fakeservice.Print(id, req, out, hutch.Stdout, text)
	},
	OnRun: func(_ context.Context, id string, req hutch.RunRequest, out func(hutch.RunEvent) error) (hutch.RunResult, error) {
		if err := out(hutch.RunEvent{Input: &hutch.InputRequest{Prompt: "name? "}}); err != nil {
			return hutch.RunResult{}, err
		}
		name, err := bufio.NewReader(req.Stdin).ReadString('\n')
		if err != nil {
			return hutch.RunResult{}, err
		}
		text, _ := json.Marshal("'Hello " + strings.TrimSpace(name) + "'")
		value := hutch.CodeResult{Main: true, Data: map[string]json.RawMessage{"text/plain": text}}
		return hutch.RunResult{SandboxID: id, Results: []hutch.CodeResult{value}}, out(hutch.RunEvent{Result: &value})
	},
	OnLogs: func(_ context.Context, _ hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
		const text = "listening on :8000\n"
		return int64(len(text)), out(hutch.Output{Stream: hutch.Stdout, Data: []byte(text), Cursor: int64(len(text))})
	},
}, rest.Options{}))

// exampleFiles holds the files of the examples.
var exampleFiles = &files.FS{}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hutch-examples-")
	if err != nil {
		log.Fatal(err)
	}
	exampleFiles.Dir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

const token = "token"

func Example() {
	ctx := context.Background()
	c := client.New(server.URL, token)
	defer c.Close()

	sb, err := c.Open(ctx, hutch.CreateRequest{})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Destroy(ctx)

	res, err := sb.RunCode(ctx, "python", "print(6 * 7)")
	if err != nil {
		log.Fatal(err) // the command could not be run
	}
	fmt.Printf("exit code %d: %s", res.ExitCode, res.Stdout)
	// Output: exit code 0: 42
}

// Input and output flow while the command runs, byte-exact and at the pace of
// the slower side.
func ExampleSandbox_Exec() {
	ctx := context.Background()
	sb, err := client.New(server.URL, token).Open(ctx, hutch.CreateRequest{ID: "build-42"})
	if err != nil {
		log.Fatal(err)
	}
	res, err := sb.Exec(ctx, hutch.ExecRequest{
		Command: "tr a-z A-Z",
		Stdin:   strings.NewReader("hello\n"),
		Timeout: 5, // seconds
	}, client.To(os.Stdout, os.Stderr))
	if err != nil {
		log.Fatal(err)
	}
	if res.TimedOut {
		log.Fatal("killed by the time limit")
	}
	// Output: HELLO
}

// Code that asks for input gets an answer while it runs.
func ExampleContext_Stream() {
	ctx := context.Background()
	sb, err := client.New(server.URL, token).Open(ctx, hutch.CreateRequest{ID: "notebook"})
	if err != nil {
		log.Fatal(err)
	}
	python, err := sb.Interpreter(ctx, hutch.ContextRequest{Language: "python"})
	if err != nil {
		log.Fatal(err)
	}
	stdin, answer := io.Pipe()
	req := hutch.RunRequest{Code: "'Hello ' + input('name? ')", Stdin: stdin}
	_, err = python.Stream(ctx, req, func(e hutch.RunEvent) error {
		switch {
		case e.Input != nil:
			_, err := fmt.Fprintln(answer, "Ann") // the answer to e.Input.Prompt
			return err
		case e.Result != nil:
			fmt.Println(e.Result.Text())
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 'Hello Ann'
}

func ExampleSandbox_Start() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sb, err := client.New(server.URL, token).Open(ctx, hutch.CreateRequest{ID: "web"})
	if err != nil {
		log.Fatal(err)
	}
	p, err := sb.Start(ctx, hutch.ProcessRequest{Command: "python3 -m http.server", RestartPolicy: hutch.RestartOnFailure})
	if err != nil {
		log.Fatal(err)
	}
	// Follow reads until the process ends; an error from the output function ends it earlier.
	enough := errors.New("enough")
	_, err = p.Follow(ctx, 0, func(o hutch.Output) error {
		fmt.Printf("%s", o.Data)
		return enough
	})
	if !errors.Is(err, enough) {
		log.Fatal(err)
	}
	// Output: listening on :8000
}

// A file arrives as a whole or not at all. An edit is refused unless the old text is in the file exactly once.
func ExampleSandbox_EditFile() {
	ctx := context.Background()
	sb, err := client.New(server.URL, token).Open(ctx, hutch.CreateRequest{ID: "editor"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := sb.WriteFile(ctx, "src/hello.py", strings.NewReader("print('hello')\nprint('bye')\n")); err != nil {
		log.Fatal(err)
	}
	_, err = sb.EditFile(ctx, "src/hello.py", "print(", "say(")
	fmt.Println("twice:", errors.Is(err, hutch.Conflict))

	edit, err := sb.EditFile(ctx, "src/hello.py", "'bye'", "'good bye'")
	if err != nil {
		log.Fatal(err)
	}
	text, err := sb.ReadFile(ctx, "src/hello.py")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("line %d\n%s", edit.Line, text)
	// Output:
	// twice: true
	// line 2
	// print('hello')
	// print('good bye')
}

// A part of a file of any size can be read, to any writer.
func ExampleClient_ReadFile() {
	ctx := context.Background()
	c := client.New(server.URL, token)
	defer c.Close()
	sb, err := c.Open(ctx, hutch.CreateRequest{ID: "reader"})
	if err != nil {
		log.Fatal(err)
	}
	text := strings.Repeat("all is well\n", 1000) + "the end\n"
	if _, err := sb.WriteFile(ctx, "log", strings.NewReader(text)); err != nil {
		log.Fatal(err)
	}
	info, err := c.ReadFile(ctx, sb.ID, hutch.ReadRequest{Path: "log", Offset: -8}, os.Stdout)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Size, "bytes in all")
	// Output:
	// the end
	// 12008 bytes in all
}

// Errors have a kind, which programs act on, and a message for people.
func ExampleClient_errors() {
	_, err := client.New(server.URL, token).Handle("nobody").Run(context.Background(), "true")
	switch {
	case errors.Is(err, hutch.NotFound):
		fmt.Println("make it again")
	case errors.Is(err, hutch.Exhausted), errors.Is(err, hutch.Unavailable):
		fmt.Println("try again later")
	}
	// Output: make it again
}

// A process with an open standard input, and a wait for its output.
func ExampleProcess_Wait() {
	ctx := context.Background()
	c := client.New(server.URL, token)
	defer c.Close()
	sb, err := c.Open(ctx, hutch.CreateRequest{})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Destroy(ctx)

	p, err := sb.Start(ctx, hutch.ProcessRequest{Command: "./serve --ask", Stdin: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Write(ctx, "yes\n"); err != nil {
		log.Fatal(err)
	}
	res, err := p.Wait(ctx, hutch.WaitRequest{Port: 8000, Path: "/health", Timeout: 60})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Met, res.Process.Status)
	// Output: true running
}

// A terminal is a process; viewers follow it, and all can type.
func ExampleProcess_Resize() {
	ctx := context.Background()
	c := client.New(server.URL, token)
	defer c.Close()
	sb, err := c.Open(ctx, hutch.CreateRequest{})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Destroy(ctx)

	p, err := sb.Start(ctx, hutch.ProcessRequest{Command: "bash", Terminal: &hutch.Size{Columns: 80, Rows: 24}})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Resize(ctx, hutch.Size{Columns: 120, Rows: 40}); err != nil {
		log.Fatal(err)
	}
	if err := p.Write(ctx, "exit\r"); err != nil {
		log.Fatal(err)
	}
	if _, err := p.Follow(ctx, 0, client.To(os.Stdout, nil)); err != nil {
		log.Fatal(err)
	}
	// Output: listening on :8000
}
