package daemon

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/driver/fake"
)

// Clients that do not read an endless answer do not delay the end of the server.
func TestEndDespiteClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	d, svc, end := start(t, config(t, fake.New(t.TempDir())))
	if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "same"}); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(d.URL())
	if err != nil {
		t.Fatal(err)
	}
	token, _ := d.Token()
	conn, err := net.Dial("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/sandboxes/same/exec HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"command\":\"yes\"}", at.Host, token)
	c, _, err := websocket.Dial(t.Context(), strings.Replace(d.URL(), "http", "ws", 1)+"/v1/sandboxes/same/exec?access_token="+token, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := c.Write(t.Context(), websocket.MessageText, []byte(`{"command":"yes"}`)); err != nil {
		t.Fatal(err)
	}
	for usage, wait := 0, time.Now().Add(20*time.Second); usage < 2 && time.Now().Before(wait); time.Sleep(50 * time.Millisecond) {
		report, err := svc.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		usage = int(report.Owners[0].Executions)
	}
	time.Sleep(500 * time.Millisecond) // until the buffers of the kernel are full
	began := time.Now()
	end()
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the end took %v", took)
	}
}
