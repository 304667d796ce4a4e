package client_test

import (
	"context"
	"fmt"
	"log"

	"hutch"
	"hutch/client"
)

// The password is in no file inside, and in no error.
func ExampleSandbox_GitClone() {
	ctx := context.Background()
	sb, err := client.New(server.URL, token).Open(ctx, hutch.CreateRequest{ID: "review-7"})
	if err != nil {
		log.Fatal(err)
	}
	repo, err := sb.GitClone(ctx, hutch.GitCloneRequest{
		URL: "https://example.com/team/app.git", Branch: "main", Depth: 1,
		Username: "x", Password: "a token",
	})
	if err != nil {
		log.Fatal(err)
	}
	status, err := sb.GitStatus(ctx, repo.Dir)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(repo.Dir, status.Branch, status.Ahead, "ahead")
	for _, f := range status.Files {
		fmt.Println(f.Index+f.Tree, f.Path)
	}
	// Output:
	// /workspace/app main 1 ahead
	// .M main.go
}
