package e2b

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
)

// metric is one sample.
type metric struct {
	Timestamp time.Time `json:"timestamp"`
	Unix      int64     `json:"timestampUnix"`
	CPUCount  int       `json:"cpuCount"`
	CPUUsed   float64   `json:"cpuUsedPct"`
	MemUsed   int64     `json:"memUsed"`
	MemTotal  int64     `json:"memTotal"`
	MemCache  int64     `json:"memCache"`
	DiskUsed  int64     `json:"diskUsed"`
	DiskTotal int64     `json:"diskTotal"`
}

const (
	mebi   = 1 << 20
	bucket = 5 * time.Second // interval of E2B's metrics
)

// metrics answers with the samples of a period; by default that is the life of the sandbox. For a running sandbox
// without samples, it takes a sample now.
func (s *Server) metrics(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	sb, err := s.find(r)
	if err != nil {
		return 0, nil, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	from, to, err := span(r, sb, now)
	if err != nil {
		return 0, nil, err
	}
	samples, err := s.samples(r.Context(), sb, from, to)
	if err != nil {
		return 0, nil, err
	}
	if len(samples) == 0 && stateOf(sb) == running && !now.Before(from) && !now.After(to.Add(bucket)) {
		samples = []hutch.StatsSample{present(sb, s.disks(r), now)}
	}
	list := make([]metric, len(samples))
	for i, x := range samples {
		list[i] = metricOf(sb, x)
	}
	return http.StatusOK, list, nil
}

// samples returns what a sandbox used in the past. A caller that can read the sandbox can read its samples, too.
// Reading them does not count as another call.
func (s *Server) samples(ctx context.Context, sb hutch.Sandbox, from, to time.Time) ([]hutch.StatsSample, error) {
	if s.opt.Histories == nil || to.Before(from) {
		return nil, nil
	}
	past, err := s.opt.Histories.StatsHistory(caller.WithOwner(ctx, caller.Owner{ID: sb.Owner}), sb.ID, hutch.StatsQuery{Since: from, Until: to})
	return past.Samples, err
}

// present returns the current use of a sandbox.
func present(sb hutch.Sandbox, disks map[place]float64, now time.Time) hutch.StatsSample {
	return hutch.StatsSample{Time: now, CPU: sb.Resources.CPU, Memory: sb.Resources.Memory, Disk: disks[place{sb.Owner, sb.ID}]}
}

func metricOf(sb hutch.Sandbox, x hutch.StatsSample) metric {
	return metric{
		Timestamp: x.Time, Unix: x.Time.Unix(), CPUCount: list(sb).CPUCount, CPUUsed: x.CPU / max(sb.Limits.CPU, 1),
		MemUsed: int64(x.Memory * mebi), MemTotal: int64(sb.Limits.Memory) * mebi,
		DiskUsed: int64(x.Disk * mebi), DiskTotal: int64(sb.Limits.Disk) * mebi,
	}
}

// span returns the time that a client asks about.
func span(r *http.Request, sb hutch.Sandbox, now time.Time) (from, to time.Time, err error) {
	from, to = sb.CreatedAt.Truncate(time.Second), now
	for name, at := range map[string]*time.Time{"start": &from, "end": &to} {
		unix, given, err := numberIn(r, name)
		if err != nil {
			return from, to, err
		}
		if given {
			*at = time.Unix(unix, 0)
		}
	}
	return from, to, nil
}

// numberIn reads a number of the query.
func numberIn(r *http.Request, name string) (n int64, given bool, err error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, false, nil
	}
	if n, err = strconv.ParseInt(text, 10, 64); err != nil || n < 0 {
		return 0, true, badQuery(name, text)
	}
	return n, true, nil
}

// maxMetrics is how many sandboxes one request can ask about.
const maxMetrics = 100

// metricsOfMany answers with the present sample of each running sandbox that is named. Missing sandboxes are left out.
func (s *Server) metricsOfMany(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	ids := strings.FieldsFunc(strings.Join(r.URL.Query()["sandbox_ids"], ","), func(c rune) bool { return c == ',' })
	if len(ids) == 0 || len(ids) > maxMetrics {
		return 0, nil, hutch.Errorf(hutch.Invalid, "sandbox_ids names %d sandboxes: give 1 to %d, with commas between them", len(ids), maxMetrics).Naming(hutch.AboutField, "sandbox_ids")
	}
	all, err := s.svc.Sandboxes(r.Context(), hutch.Filter{Status: hutch.Running})
	if err != nil {
		return 0, nil, err
	}
	now, disks := time.Now().UTC().Truncate(time.Second), s.disks(r)
	found := map[string]metric{}
	for _, sb := range all {
		if slices.Contains(ids, sb.ID) {
			found[sb.ID] = metricOf(sb, present(sb, disks, now))
		}
	}
	return http.StatusOK, map[string]any{"sandboxes": found}, nil
}

// disks returns how much disk each sandbox of the caller uses, in MiB.
func (s *Server) disks(r *http.Request) map[place]float64 {
	if s.opt.Accounts == nil {
		return nil
	}
	report, err := s.opt.Accounts.Usage(r.Context())
	if err != nil {
		return nil
	}
	disks := map[place]float64{}
	for _, u := range report.Sandboxes {
		disks[place{u.Owner, u.SandboxID}] = u.Disk
	}
	return disks
}
