package images

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch/internal/hutchtest/server"
)

// withToken adds a token to requests.
type withToken string

func (t withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(t))
	return http.DefaultTransport.RoundTrip(r)
}

// TestPullOverMCP: a call over MCP with a new sandbox reports the layers of an image that the server does not have.
func TestPullOverMCP(t *testing.T) {
	b := newBed(t, "native")
	var mu sync.Mutex
	var text strings.Builder
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
		mu.Lock()
		defer mu.Unlock()
		text.WriteString(req.Params.Message)
	}})
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: b.URL + "/mcp", HTTPClient: &http.Client{Transport: withToken(server.Token)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	params := &sdk.CallToolParams{Name: "exec", Arguments: map[string]any{"image": "hello:1", "command": "/program"}}
	params.SetProgressToken("pull")
	res, err := session.CallTool(t.Context(), params)
	if err != nil || res.IsError {
		t.Fatalf("exec: %+v, %v", res, err)
	}
	img, err := b.Image(t.Context(), "hello:1")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // notifications are handled concurrently
		mu.Lock()
		got := text.String()
		mu.Unlock()
		if strings.Contains(got, "layer "+img.Layers[0][:19]+" done: ") && strings.Contains(got, "hello 7000 7001") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the progress is %q", got)
		}
	}
}
