// Command ask asks questions of a server with the Go SDK, and shows what happens: the program as the model writes it,
// its output as it is printed, and what it cost. All questions are one conversation, so each program finds the files of
// the earlier ones.
//
//	HUTCH_URL=http://127.0.0.1:7700 HUTCH_TOKEN=... go run ./examples/ask "Write the squares of 1 to 5 to squares.csv" "What is their sum?"
//
// The server needs a key for its model: ANTHROPIC_API_KEY. See docs/ask.md.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"hutch"
	"hutch/client"
)

const conversation = "example"

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, questions []string) error {
	c := client.New(os.Getenv("HUTCH_URL"), os.Getenv("HUTCH_TOKEN"))
	defer c.Close()
	for _, text := range questions {
		q := hutch.Question{Question: text, Language: os.Getenv("LANGUAGE"), ConversationID: conversation}
		answer, err := c.Ask(ctx, q, show)
		if err != nil {
			return err
		}
		for _, f := range answer.Files {
			fmt.Printf("\nwrote %s, %d bytes", f.Path, f.Size)
		}
		fmt.Printf("\nsuccess %v after %d repairs; %v\n\n", answer.Success, answer.Repairs, answer.Usage)
	}
	_, err := c.Destroy(ctx, hutch.Question{ConversationID: conversation}.SandboxID(), true)
	return err
}

// show shows one step on the way to an answer.
func show(e hutch.AnswerEvent) error {
	switch {
	case e.Program != nil:
		fmt.Printf("\n--- run %d ---\n", e.Program.Attempt)
	case e.Output != nil:
		fmt.Print(e.Output.Text)
	case e.Repair != nil:
		fmt.Printf("\n--- it failed: %s ---\n", e.Repair.Error)
	default:
		fmt.Print(e.Text)
	}
	return nil
}
