package exposure_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/exposure"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/store"
)

func newTable(t *testing.T) *exposure.Table {
	return exposure.New(t.Context(), func(label string) string { return "http://" + label + ".localhost" }, slog.New(slog.DiscardHandler))
}

// box is a sandbox with its record in memory. The record can be made unwritable.
type box struct {
	*exposure.Table
	owner, id string
	ports     []store.Exposure
	broken    error
}

func (b *box) holder() exposure.Holder {
	return exposure.Holder{Owner: b.owner, Sandbox: b.id, Ports: b.ports, Keep: func(ports []store.Exposure) error {
		if b.broken == nil {
			b.ports = ports
		}
		return b.broken
	}}
}

func (b *box) expose(token string) (hutch.Port, error) {
	return b.Expose(b.holder(), hutch.ExposeRequest{Port: 80, Token: token})
}

// A change that cannot be written to the record changes nothing. A change that can be written closes the connections
// through the old label.
func TestExposeIsAllOrNothing(t *testing.T) {
	b := &box{Table: newTable(t), owner: "ada", id: "sb"}
	first, err := b.expose("one")
	if err != nil || first.URL != "http://80-sb-one.localhost" {
		t.Fatalf("%+v, %v", first, err)
	}
	old, ok := b.Preview("80-sb-one")
	if !ok || old.Owner != "ada" {
		t.Fatalf("the label leads to %+v", old)
	}
	b.broken = errors.New("the disk is full")
	if _, err := b.expose("two"); !errors.Is(err, b.broken) {
		t.Fatal(err)
	}
	if _, ok := b.Preview("80-sb-two"); ok {
		t.Error("a label that is not on record leads somewhere")
	}
	if _, ok := b.Preview("80-sb-one"); !ok {
		t.Error("the old label is gone, although nothing was changed")
	}
	b.broken = nil
	live, _ := b.Preview("80-sb-one")
	if _, err := b.expose("two"); err != nil || len(b.ports) != 1 {
		t.Fatalf("%+v, %v", b.ports, err)
	}
	if _, ok := b.Preview("80-sb-one"); ok || live.Life.Err() == nil {
		t.Error("the old label still leads somewhere, or its connections continue")
	}
	if err := b.Unexpose(b.holder(), 80); err != nil || len(b.ports) != 0 {
		t.Errorf("%+v, %v", b.ports, err)
	}
	if _, ok := b.Preview("80-sb-two"); ok {
		t.Error("an unexposed port is still shown")
	}
}

func TestPortsAreBounded(t *testing.T) {
	b := &box{Table: newTable(t), owner: "ada", id: "sb"}
	var err error
	for port := 1; err == nil && port < 1000; port++ {
		_, err = b.Expose(b.holder(), hutch.ExposeRequest{Port: port})
	}
	if !errors.Is(err, hutch.Exhausted) || len(b.ports) != 100 {
		t.Errorf("%d ports, then %v", len(b.ports), err)
	}
	if list := b.Table.Ports(b.ports); len(list) != 100 || list[0].Port != 1 || list[99].Port != 100 {
		t.Errorf("they are not listed by their numbers: %+v", list)
	}
}

// A label stays reserved for its owner for 30 days, also over a restart. No owner can cause the removal of another
// owner's labels.
func TestReservedLabels(t *testing.T) {
	db, err := store.Open(t.Context(), store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	open := func() *exposure.Table {
		table := newTable(t)
		if err := table.Open(t.Context(), db.Collection("labels")); err != nil {
			t.Fatal(err)
		}
		return table
	}
	table := open()
	ada := &box{Table: table, owner: "ada", id: "team-x"}
	if _, err := ada.expose("live"); err != nil {
		t.Fatal(err)
	}
	if err := ada.Unexpose(ada.holder(), 80); err != nil {
		t.Fatal(err)
	}
	for i := range exposure.MaxReserved + 10 {
		table.Reserve("bob", store.Exposure{Port: hutch.Port{Port: 1, SandboxID: "many", Token: fmt.Sprint(i)}})
	}
	for range 2 {
		bob := &box{Table: table, owner: "bob", id: "team"}
		if _, err := bob.expose("x-live"); !errors.Is(err, hutch.Conflict) {
			t.Errorf("another owner has the label: %v", err)
		}
		if docs, err := db.Collection("labels").All(t.Context()); err != nil || len(docs) != exposure.MaxReserved+1 {
			t.Errorf("%d labels are kept, %v", len(docs), err)
		}
		table = open()
	}
	if _, err := (&box{Table: table, owner: "ada", id: "team-x"}).expose("live"); err != nil {
		t.Errorf("its own owner has it again: %v", err)
	}
}

func TestReservationEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		x := store.Exposure{Port: hutch.Port{Port: 80, SandboxID: "sb", Token: "live"}}
		table.Reserve("ada", x)
		time.Sleep(29 * 24 * time.Hour)
		if err := table.Publish("bob", x); !errors.Is(err, hutch.Conflict) {
			t.Errorf("after 29 days: %v", err)
		}
		time.Sleep(48 * time.Hour)
		if err := table.Publish("bob", x); err != nil {
			t.Errorf("after 31 days: %v", err)
		}
	})
}

func TestLink(t *testing.T) {
	b := &box{Table: newTable(t), owner: "ada", id: "sb"}
	if _, err := b.expose("live"); err != nil {
		t.Fatal(err)
	}
	link := b.Link(b.ports[0], 60, "", nil)
	p, _ := b.Preview("80-sb-live")
	_, signature, _ := strings.Cut(link.URL, hutch.PortLinkParameter+"=")
	for after, opens := range map[time.Duration]bool{0: true, 58 * time.Second: true, time.Minute: false} {
		if _, ok := p.Signed(signature, time.Now().Add(after), nil); ok != opens {
			t.Errorf("after %v it opens the port: %v", after, ok)
		}
	}
	if !exposure.ValidToken(b.ports, 80, "live") || exposure.ValidToken(b.ports, 80, "liv") || exposure.ValidToken(b.ports, 81, "live") {
		t.Error("tokens are not told apart")
	}
	if exposure.CheckLinkTime(31*24*3600) == nil || exposure.CheckLinkTime(-1) == nil || exposure.CheckLinkTime(0) != nil {
		t.Error("lifetimes are not checked")
	}
}

// Each node of a fleet knows the owner of a label that is in use on another node.
func TestOwnerOnAnyNode(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	node := func(name string) *exposure.Table {
		kept, err := store.Connect(t.Context(), store.Options{URL: url, Node: name, Key: make([]byte, store.KeySize)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kept.Close() })
		table := newTable(t)
		if err := table.Open(t.Context(), kept.Collection("labels")); err != nil {
			t.Fatal(err)
		}
		return table
	}
	here, there := node("a"), node("b")
	p, err := (&box{Table: here, owner: "ada", id: "sb"}).expose("token")
	if err != nil {
		t.Fatal(err)
	}
	known := false
	for deadline := time.Now().Add(time.Minute); !known && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var owner string
		if owner, known = there.Owner(p.Label()); known && owner != "ada" {
			t.Errorf("it is of %q", owner)
		}
	}
	if !known {
		t.Error("the other node does not know the label")
	}
	if owner, known := there.Owner(p.Label() + "x"); known {
		t.Errorf("an unknown label is of %q", owner)
	}
}
