// Command brokered lets code in a sandbox call an API that needs a key, without giving it the key.
//
// It sets a secret that is brokered for the API's host, creates a sandbox that requests the secret, and runs a program
// that sends the secret's value. In the sandbox, the value is a placeholder; the server replaces it by the key on the
// way out.
//
//	API_KEY=… HUTCH_URL=http://127.0.0.1:7700 HUTCH_TOKEN=… go run ./examples/brokered https://api.example.com/v1/whoami
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"

	"hutch"
	"hutch/client"
)

// program sends the variable as any program would, and prints it.
const program = `
import json, os, sys, urllib.request
key = os.environ["API_KEY"]
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + key})
with urllib.request.urlopen(request, timeout=30) as answer:
    print("the API says:", answer.read().decode().strip())
print("the program has:", key)
`

func main() {
	if len(os.Args) != 2 || os.Getenv("API_KEY") == "" {
		fmt.Fprintln(os.Stderr, "usage: API_KEY=… HUTCH_URL=… HUTCH_TOKEN=… brokered https://HOST/PATH")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Getenv("API_KEY")); err != nil {
		fmt.Fprintln(os.Stderr, "brokered:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, api, key string) error {
	u, err := url.Parse(api)
	if err != nil {
		return err
	}
	c := client.New(os.Getenv("HUTCH_URL"), os.Getenv("HUTCH_TOKEN"))
	defer c.Close()
	secret := hutch.SecretRequest{Value: key, Brokered: &hutch.Brokering{Hosts: []string{u.Host}}}
	if _, err := c.SetSecret(ctx, "API_KEY", secret); err != nil {
		return err
	}
	// The host is allowed because the secret is requested; no other host is.
	s, err := c.Open(ctx, hutch.CreateRequest{Secrets: []string{"API_KEY"}})
	if err != nil {
		return err
	}
	defer s.Destroy(ctx)
	res, err := s.Exec(ctx, hutch.ExecRequest{Language: "python", Command: program, Args: []string{api}}, client.To(os.Stdout, os.Stderr))
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("the program ended with status %d", res.ExitCode)
	}
	return err
}
