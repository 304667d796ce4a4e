package client

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
)

// A command that prints nothing for longer than the grace survives lost connections: the server was there all the time.
func TestQuietCommandSurvivesLostConnections(t *testing.T) {
	const grace = 100 * time.Millisecond
	var connections atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		if connections.Add(1) < 3 {
			time.Sleep(3 * grace)
			return
		}
		if err := conn.Write(r.Context(), websocket.MessageText, []byte(`{"result": {"exitCode": 7}}`)); err != nil {
			t.Error(err)
		}
	}))
	c := New(srv.URL, "")
	r := c.resuming("box", nil, nil)
	r.id, r.grace = "x-1", grace
	if res, err := r.run(t.Context(), r.again(), nil); res.ExitCode != 7 || err != nil {
		t.Errorf("%+v, %v", res, err)
	}
	srv.Close()
	began := time.Now()
	r = c.resuming("box", nil, nil)
	r.id, r.grace = "x-1", grace
	if _, err := r.run(t.Context(), r.again(), nil); hutch.KindOf(err) != hutch.Unavailable || time.Since(began) < grace {
		t.Errorf("without a server, after %v: %v", time.Since(began), err)
	}
}
