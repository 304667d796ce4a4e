package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/membudget"
	"hutch/internal/wire"
)

// liar is the client of an agent that answers each request with the same reply.
func liar(t *testing.T, reply string) *wire.Client {
	c := wire.NewClient(func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { ours.Close() })
		go func() {
			defer theirs.Close()
			r, w := wire.NewReader(theirs, wire.MaxRequest), wire.NewWriter(theirs)
			_, payload, _ := r.Next()
			var h wire.Hello
			json.Unmarshal(payload, &h)
			n := wire.Nonces{Daemon: h.Nonce, Agent: wire.NewNonce()}
			w.WriteJSON(wire.TypeWelcome, wire.Welcome{Version: wire.Version, Nonce: n.Agent, Proof: n.Proof("token", wire.AgentSide)})
			r.Next() // the proof
			for {
				if _, _, err := r.Next(); err != nil || w.Write(wire.TypeReply, []byte(reply)) != nil {
					return
				}
			}
		}()
		return ours, nil
	}, "token")
	t.Cleanup(c.Close)
	return c
}

func listOf(ctx context.Context, agent *wire.Client) ([]hutch.Process, error) {
	all, err := agent.List(ctx)
	if err != nil {
		return nil, err
	}
	return processes(ctx, "a", all)
}

// A list that no honest agent makes costs the timeline no more than an honest one, and the newest ends are on the
// timeline.
func TestLastEnded(t *testing.T) {
	t.Parallel()
	var all []wire.Process
	for i := range 4096 {
		all = append(all, wire.Process{ID: fmt.Sprint("p-", i), Status: hutch.ProcessExited, EndMS: 1})
		if i%2 == 0 {
			all[i].Status = hutch.ProcessRunning
		}
	}
	if ended := lastEnded(all); len(ended) != wire.MaxFinished || ended[0].ID != "p-3969" || ended[wire.MaxFinished-1].ID != "p-4095" {
		t.Errorf("%d processes: %+v", len(ended), ended)
	}
}

// TestProcessListsCountAsMemory: a list of processes counts towards the memory of the caller for as long as its call is
// in progress, because an agent chooses how long the list is.
func TestProcessListsCountAsMemory(t *testing.T) {
	t.Parallel()
	one := `{"id":"p","status":"running","command":"` + strings.Repeat("x", 100) + `"}`
	long := liar(t, "["+strings.Repeat(one+",", 3999)+one+"]")
	short := liar(t, "["+one+"]")
	memory := membudget.New(8<<20, 8<<20)
	budget, free := memory.Open("ada")
	ctx := caller.With(t.Context(), caller.Caller{Budget: budget})
	lists := 0
	for ; lists < 100; lists++ {
		if _, err := listOf(ctx, long); errors.Is(err, hutch.Exhausted) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if lists < 1 || lists > 3 {
		t.Errorf("%d lists of 4000 processes fit into 8 MiB", lists)
	}
	if _, err := listOf(ctx, short); err != nil {
		t.Errorf("a short list: %v", err)
	}
	free()
	budget, free = memory.Open("ada")
	defer free()
	if _, err := listOf(caller.With(t.Context(), caller.Caller{Budget: budget}), long); err != nil {
		t.Errorf("when the calls have ended: %v", err)
	}
}
