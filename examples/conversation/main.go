// Command conversation is a small back end of a chat: it runs code twice in a conversation, where the second run uses
// the first one's files in /data, and downloads the resulting file. It needs only HTTP.
//
//	PUBLIC_BASE_URL=http://localhost:8080 MCP_API_TOKEN=... go run ./examples/conversation
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	if err := run(os.Getenv("PUBLIC_BASE_URL"), os.Getenv("MCP_API_TOKEN")); err != nil {
		log.Fatal(err)
	}
}

const (
	collect = `import csv
with open("/data/visits.csv", "w", newline="") as f:
    csv.writer(f).writerows([["day", "visits"], ["Mon", 31], ["Tue", 44], ["Wed", 27]])
print("collected")`
	report = `import csv
rows = list(csv.DictReader(open("/data/visits.csv")))
best = max(rows, key=lambda r: int(r["visits"]))
open("/data/report.txt", "w").write(f"best day: {best['day']} with {best['visits']}\n")
print(len(rows), "days")`
)

func run(base, token string) error {
	for _, code := range []string{collect, report} {
		res, err := call(base, token, code)
		if err != nil {
			return err
		}
		fmt.Print(res.Stdout, res.Stderr)
		for _, f := range res.Files {
			if err := download(f.Name, f.URL); err != nil {
				return err
			}
		}
	}
	return nil
}

type result struct {
	ExitCode       int
	Stdout, Stderr string
	Files          []struct{ Name, URL string }
}

// call runs Python in the conversation "example".
func call(base, token, code string) (res result, err error) {
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
			"name":      "sandbox.run_code",
			"arguments": map[string]any{"conversationId": "example", "language": "python", "code": code},
		},
	})
	if err != nil {
		return res, err
	}
	req, err := http.NewRequest(http.MethodPost, base+"/mcp", bytes.NewReader(body))
	if err != nil {
		return res, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return res, err
	}
	defer resp.Body.Close()
	return read(resp.Body)
}

// read finds the result in an answer.
func read(answer io.Reader) (res result, err error) {
	var message struct {
		Result struct{ StructuredContent result }
		Error  *struct{ Message string }
	}
	if err := json.NewDecoder(answer).Decode(&message); err != nil {
		return res, err
	}
	if message.Error != nil {
		return res, errors.New(message.Error.Message)
	}
	return message.Result.StructuredContent, nil
}

// download shows a file by its link, without a token.
func download(name, link string) error {
	resp, err := http.Get(link)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %w", name, resp.Status, err)
	}
	fmt.Printf("%s:\n  %s\n", name, strings.ReplaceAll(strings.TrimSpace(string(content)), "\n", "\n  "))
	return nil
}
