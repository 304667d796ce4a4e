package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/fakeservice"
)

// both returns two handlers of one service: one answers plain calls itself, the other passes all calls to the SDK.
func both(t testing.TB) (ours, sdks *Handler) {
	svc := &fakeservice.Service{}
	if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	ours, sdks = NewHandler(svc, Options{}), NewHandler(svc, Options{})
	t.Cleanup(func() { ours.Close(t.Context()); sdks.Close(t.Context()) })
	sdks.tools = nil
	return ours, sdks
}

// saidTo returns a handler's answer to a body, without the parts that differ from call to call.
func saidTo(h *Handler, header http.Header, body string) string {
	r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
	r.Header = header.Clone()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	data, stream := bytes.CutPrefix(w.Body.Bytes(), []byte("event: message\ndata: "))
	var msg struct {
		JSONRPC       string
		ID, Error     any
		Result        map[string]any
		Method, Extra string
	}
	err := json.Unmarshal(data, &msg)
	if c, ok := msg.Result["structuredContent"].(map[string]any); ok {
		delete(c, "executionTime")
		delete(c, "sandboxId") // made for the call
		if e, ok := c["error"].(map[string]any); ok {
			delete(e["data"].(map[string]any), "availableSandboxes")
		}
	}
	if list, ok := msg.Result["content"].([]any); ok && len(list) == 1 {
		delete(list[0].(map[string]any), "text") // the text contains the sandbox id too
	}
	return fmt.Sprintf("%d %v %v %v %+v %v", w.Code, w.Header()["Content-Type"], w.Header()["Cache-Control"], stream, msg, err)
}

func plainHeader() http.Header {
	return http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {modern}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"exec"},
	}
}

const (
	plainTail = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	plainBody = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":{"sandboxId":"box","command":"x"},` + plainTail
)

// plainBodies are well-formed and malformed calls. The value is whether a call is plain.
var plainBodies = map[string]bool{
	plainBody: true,
	strings.Replace(plainBody, `"id":1`, `"id":"a b"`, 1):                                                                         true,
	strings.Replace(plainBody, `"box"`, `"none"`, 1):                                                                              true,
	strings.Replace(plainBody, `"command"`, `"comand"`, 1):                                                                        true,
	strings.Replace(plainBody, `"sandboxId":"box",`, ``, 1):                                                                       true,
	strings.Replace(plainBody, `{"sandboxId":"box","command":"x"}`, `7`, 1):                                                       true,
	strings.Replace(plainBody, `{}}}}`, `{"roots":{}},"traceparent":"x","io.modelcontextprotocol/clientInfo":{"name":"n"}}}}`, 1): true,
	strings.Replace(plainBody, `"id":1`, `"id":1e3`, 1):                                                                           false,
	strings.Replace(plainBody, `"id":1`, `"id":null`, 1):                                                                          false,
	strings.Replace(plainBody, `"id":1,`, ``, 1):                                                                                  false,
	strings.Replace(plainBody, `"id":1`, `"id":{}`, 1):                                                                            false,
	strings.Replace(plainBody, `"id":1`, `"id":"\ud800"`, 1):                                                                      false,
	strings.Replace(plainBody, `"method"`, `"Method"`, 1):                                                                         false,
	strings.Replace(plainBody, `"2.0"`, `"1.0"`, 1):                                                                               false,
	strings.Replace(plainBody, `tools/call`, `tools/list`, 1):                                                                     false,
	strings.Replace(plainBody, `"exec"`, `"readFile"`, 1):                                                                         false,
	strings.Replace(plainBody, `2026`, `2025`, 1):                                                                                 false,
	strings.Replace(plainBody, `Capabilities":{}`, `Capabilities":7`, 1):                                                          false,
	strings.Replace(plainBody, `Capabilities":{}`, `Capabilities":null`, 1):                                                       false,
	strings.Replace(plainBody, `"_meta":{`, `"_meta":{"progressToken":1,`, 1):                                                     false,
	strings.Replace(plainBody, `"_meta":{`, `"requestState":"s","_meta":{`, 1):                                                    false,
	strings.Replace(plainBody, `"_meta":{`, `"_meta":null,"more":{`, 1):                                                           false,
	strings.Replace(plainBody, `{"jsonrpc"`, `{"result":{},"jsonrpc"`, 1):                                                         false,
	`[` + plainBody + `]`: false, `7`: false, `null`: false, `{}`: false,
}

// TestPlain: a client gets the same answer from both handlers, and only plain calls are answered without the SDK.
func TestPlain(t *testing.T) {
	t.Parallel()
	ours, sdks := both(t)
	for body, want := range plainBodies {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header = plainHeader()
		if _, ok := readPlain(r, []byte(body)); ok != want {
			t.Errorf("plain is %v: %s", ok, body)
		}
		if a, b := saidTo(ours, plainHeader(), body), saidTo(sdks, plainHeader(), body); a != b {
			t.Errorf("%s:\n%s\nand by the SDK\n%s", body, a, b)
		}
	}
	for name, value := range map[string]string{
		"Content-Type": "text/plain", "Accept": "application/json", "Mcp-Method": "tools/list", "Mcp-Name": "readFile", "Mcp-Protocol-Version": "2027-01-01", "Last-Event-Id": "1",
	} {
		for _, h := range []http.Header{without(plainHeader(), name), plainHeader()} {
			if h.Get(name) != "" || name == "Last-Event-Id" {
				h.Set(name, value)
			}
			if a, b := saidTo(ours, h, plainBody), saidTo(sdks, h, plainBody); a != b {
				t.Errorf("%v:\n%s\nand by the SDK\n%s", h, a, b)
			}
		}
	}
}

func without(h http.Header, name string) http.Header {
	h.Del(name)
	return h
}

// FuzzPlain looks for messages to which the two handlers answer differently.
func FuzzPlain(f *testing.F) {
	for body := range plainBodies {
		f.Add(body)
	}
	ours, sdks := both(f)
	f.Fuzz(func(t *testing.T, body string) {
		if a, b := saidTo(ours, plainHeader(), body), saidTo(sdks, plainHeader(), body); a != b {
			t.Errorf("%s:\n%s\nand by the SDK\n%s", body, a, b)
		}
	})
}

// BenchmarkPlain compares the two handlers with a call that runs nothing.
func BenchmarkPlain(b *testing.B) {
	ours, sdks := both(b)
	for name, h := range map[string]*Handler{"ours": ours, "SDK's": sdks} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				saidTo(h, plainHeader(), plainBody)
			}
		})
	}
}
