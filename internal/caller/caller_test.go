package caller

import (
	"testing"

	"hutch/internal/membudget"
)

// Each part is set without changing the others.
func TestPartsAreKept(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := With(t.Context(), Caller{Origin: Origin{Remote: "192.0.2.1:1", Request: "rq-1"}})
	ctx = WithTrace(ctx, trace)
	ctx = As(ctx, &Principal{ID: "tk-1", Owner: "ada"})
	ctx = WithSurface(ctx, "rest")
	ctx = WithTrace(ctx, "junk")
	c := From(WithOwner(ctx, Owner{ID: "eve"}))
	if c.Principal.ID != "tk-1" || c.Owner.ID != "eve" || c.Origin != (Origin{Surface: "rest", Remote: "192.0.2.1:1", Request: "rq-1"}) || c.Trace != trace {
		t.Errorf("%+v", c)
	}
	if id := c.TraceID(); id != trace[3:35] {
		t.Errorf("the trace's id is %q", id)
	}
	if o, ok := OwnerOf(ctx); o.ID != "ada" || !ok {
		t.Errorf("the owner that the call began with is %+v, %v", o, ok)
	}
	if o, ok := OwnerOf(WithoutOwner(ctx)); o.ID != "" || ok {
		t.Errorf("the server's own call has the owner %+v, %v", o, ok)
	}
}

// The server can clean up for a principal whose limits are used up; other calls of the principal are limited as before.
func TestUnmetered(t *testing.T) {
	t.Parallel()
	ctx := As(t.Context(), &Principal{ID: "tk-1", Owner: "ada"})
	free := From(Unmetered(ctx))
	if free.Principal.Limits != Unlimited || free.Owner.ID != "ada" || From(ctx).Principal.Limits == Unlimited {
		t.Errorf("%+v", free.Principal)
	}
	if From(Unmetered(t.Context())).Principal != nil {
		t.Error("a call of the server's own has a principal")
	}
}

// Work that outlives its request charges more to the same owner, and keeps what the request has charged.
func TestOwnBudget(t *testing.T) {
	t.Parallel()
	all := membudget.New(100, 50)
	tab, end := all.Open("ada")
	ctx, free := OwnBudget(With(t.Context(), Caller{Budget: tab}))
	tab.Take(30)
	own := From(ctx).Budget
	if own.Take(30) || !own.Take(20) {
		t.Error("the share of the owner is not what it has")
	}
	end()
	if own.Take(1) {
		t.Error("the request's memory was given back under the work that has it")
	}
	free()
	if tab, _ := all.Open("ada"); !tab.Take(50) {
		t.Error("all have ended, and memory is still taken")
	}
}
