package preview

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Long answers arrive complete, however many there are at a time, and their memory is bounded.
func TestLongAnswers(t *testing.T) {
	const visitors = maxLarge + 8
	body := bytes.Repeat([]byte("0123456789abcdef"), 2*long/16)
	var begun atomic.Int32
	rest := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(rest) })
	defer goOn()
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body[:long])
		w.(http.Flusher).Flush()
		begun.Add(1)
		<-rest
		w.Write(body[long:])
	}, nil)
	var visits sync.WaitGroup
	for range visitors {
		visits.Go(func() {
			if resp, text := b.ask(t, "GET", public, "/", nil); text != string(body) {
				t.Errorf("%d: %d bytes, not what was sent", resp.StatusCode, len(text))
			}
		})
	}
	until(t, "all answers have begun", func() bool { return begun.Load() == visitors })
	lent := &b.handler.buffers.inUse
	until(t, "all large buffers are lent", func() bool { return lent.Load() == maxLarge })
	goOn()
	visits.Wait()
	until(t, "they are back", func() bool { return lent.Load() == 0 })
}

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited without success until %s", what)
		}
	}
}
