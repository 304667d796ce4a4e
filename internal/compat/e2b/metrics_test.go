package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/history"
)

// fixedAccounts always reports the same, until the caller's context ends.
type fixedAccounts struct {
	hutch.Accounts
	stats hutch.Stats
}

func (a fixedAccounts) Stats(ctx context.Context, _ hutch.StatsRequest, out func(hutch.StatsReport) error) error {
	if err := out(hutch.StatsReport{Full: true, Sandboxes: []hutch.Stats{a.stats}}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// Clients get the samples of the time that they ask about, and of no other.
func TestMetricsOfThePast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		sb := hutch.Sandbox{ID: "a", Status: hutch.Running, CreatedAt: began, Limits: hutch.Limits{CPU: 2, Memory: 512, Disk: 1024}}
		past := history.New(history.Options{
			Accounts: fixedAccounts{stats: hutch.Stats{SandboxID: "a", Status: hutch.Running, CPU: 100, Memory: 64, Disk: 8, CreatedAt: began}},
			Sandbox:  func(context.Context, string) (hutch.Sandbox, error) { return sb, nil }, Log: slog.New(slog.DiscardHandler),
		})
		s := New(Options{Histories: past})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() { past.Run(ctx); close(ended) }()
		time.Sleep(4*history.Step + time.Millisecond)
		synctest.Wait()
		ask := func(query string) []hutch.StatsSample {
			from, to, err := span(httptest.NewRequest("GET", "/"+query, nil), sb, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			samples, err := s.samples(t.Context(), sb, from, to)
			if err != nil {
				t.Fatal(err)
			}
			return samples
		}
		if got := ask(""); len(got) != 4 || metricOf(sb, got[0]).CPUUsed != 50 || metricOf(sb, got[0]).MemUsed != 64*mebi || metricOf(sb, got[3]).DiskUsed != 8*mebi {
			t.Errorf("of its life: %+v", got)
		}
		if got := ask(fmt.Sprintf("?start=%d&end=%d", began.Unix()+6, began.Unix()+15)); len(got) != 2 {
			t.Errorf("of nine seconds: %+v", got)
		}
		if got := ask(fmt.Sprintf("?end=%d", began.Unix()-10)); len(got) != 0 {
			t.Errorf("from before it was created: %+v", got)
		}
		cancel()
		<-ended
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := open(t)
	id, _ := s.create(`{"templateID":"base"}`)
	var list []metric
	w := s.ask("GET", "/sandboxes/"+id+"/metrics", "")
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list) != 1 {
		t.Errorf("a sandbox without a past: %d %s", w.Code, w.Body)
	}
	many := s.want(200, "GET", "/sandboxes/metrics?sandbox_ids="+id+",nothing", "")
	if all := many["sandboxes"].(map[string]any); len(all) != 1 || all[id] == nil {
		t.Errorf("of many: %v", many)
	}
	for _, query := range []string{"/sandboxes/metrics", "/sandboxes/metrics?sandbox_ids=,", "/sandboxes/" + id + "/metrics?start=x", "/sandboxes/" + id + "/metrics?end=-1"} {
		s.want(400, "GET", query, "")
	}
}

// usage counts how often it is read. Two owners have a sandbox of the same id.
type usage struct {
	hutch.Accounts
	list []hutch.Usage
	read int
}

func (u *usage) Usage(context.Context) (hutch.UsageReport, error) {
	u.read++
	return hutch.UsageReport{Sandboxes: u.list}, nil
}

// The disk usage of many sandboxes is read at once, and each sandbox gets its own value.
func TestDisksOfMany(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, _ := s.create(`{"templateID":"base"}`)
	b, _ := s.create(`{"templateID":"base"}`)
	used := &usage{list: []hutch.Usage{{SandboxID: a, Owner: "eve", Disk: 9}, {SandboxID: a, Disk: 1}, {SandboxID: b, Disk: 2}}}
	s.opt.Accounts = used
	all := s.want(200, "GET", "/sandboxes/metrics?sandbox_ids="+a+","+b, "")["sandboxes"].(map[string]any)
	for id, want := range map[string]float64{a: mebi, b: 2 * mebi} {
		if got, _ := all[id].(map[string]any); got["diskUsed"] != want {
			t.Errorf("%s has %v on its disk, not %v", id, got["diskUsed"], want)
		}
	}
	if used.read != 1 {
		t.Errorf("all sandboxes were read %d times", used.read)
	}
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.want(501, "GET", "/volumes", "")
	s.want(501, "POST", "/volumes", `{"name":"v"}`)
	s.opt.Volumes = &oneVolume{}
	if got := s.want(201, "POST", "/volumes", `{"name":"data"}`); got["volumeID"] != "data" || got["name"] != "data" || got["token"] == nil {
		t.Errorf("made %v", got)
	}
	if got := s.want(200, "GET", "/volumes/data", ""); got["volumeID"] != "data" {
		t.Errorf("got %v", got)
	}
	w := s.ask("GET", "/volumes", "")
	if w.Code != 200 || w.Body.String() != `[{"volumeID":"data","name":"data"}]`+"\n" {
		t.Errorf("list: %d %s", w.Code, w.Body)
	}
	s.want(409, "POST", "/volumes", `{"name":"data"}`)
	s.want(501, "POST", "/volumes", `{"name":"b","region":"x"}`)
	s.want(404, "GET", "/volumes/nothing", "")
	s.want(204, "DELETE", "/volumes/data", "")
	s.want(404, "DELETE", "/volumes/data", "")
}

// oneVolume has one volume at most.
type oneVolume struct {
	otherVolumes
	name string
}

type otherVolumes hutch.Volumes

func (v *oneVolume) CreateVolume(_ context.Context, req hutch.VolumeRequest) (hutch.Volume, error) {
	if v.name != "" {
		return hutch.Volume{}, hutch.Errorf(hutch.Conflict, "there is a volume %q", v.name)
	}
	v.name = req.Name
	return hutch.Volume{Name: req.Name}, nil
}

func (v *oneVolume) Volumes(context.Context) ([]hutch.Volume, error) {
	return []hutch.Volume{{Name: v.name}}, nil
}

func (v *oneVolume) Volume(_ context.Context, name string) (hutch.Volume, error) {
	if name != v.name {
		return hutch.Volume{}, hutch.Errorf(hutch.NotFound, "there is no volume %q", name)
	}
	return hutch.Volume{Name: name}, nil
}

func (v *oneVolume) DeleteVolume(ctx context.Context, name string, _ bool) error {
	_, err := v.Volume(ctx, name)
	v.name = ""
	return err
}
