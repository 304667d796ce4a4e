package engine

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/driver"
)

const traceparent = "TRACEPARENT"

// traced returns an environment with the trace of ctx, for programs inside that make their own spans.
func traced(ctx context.Context, env map[string]string) map[string]string {
	trace := caller.From(ctx).Trace
	if _, ok := env[traceparent]; ok || trace == "" {
		return env
	}
	env = maps.Clone(env)
	if env == nil {
		env = map[string]string{}
	}
	env[traceparent] = trace
	return env
}

// accounts are the verbs that report what sandboxes use.
type accounts struct {
	life  *lifecycle
	stats *statsTable
}

// account reads the usage of the instance of s, and adds the increase to the sandbox's account. It is called at
// intervals, and before the instance is removed, because the account has only what was read.
func (s *sandbox) account(ctx context.Context, inst driver.Instance) (driver.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	u, err := inst.Usage(ctx)
	if err != nil {
		return u, err
	}
	s.NoteUsage(inst, u)
	return u, nil
}

// Usage implements hutch.Accounts.
func (a accounts) Usage(ctx context.Context) (hutch.UsageReport, error) {
	all, sums := a.life.table.used()
	if owner, ok := caller.OwnerOf(ctx); ok {
		all = slices.DeleteFunc(all, func(s *sandbox) bool { return s.Owner() != owner.ID })
		maps.DeleteFunc(sums, func(id string, _ hutch.Usage) bool { return id != owner.ID })
	}
	list := a.usages(ctx, all)
	for _, u := range list {
		sums[u.Owner] = sums[u.Owner].Add(u)
	}
	report := hutch.UsageReport{Sandboxes: list, Owners: []hutch.Usage{}}
	for owner, u := range sums {
		u.Owner, u.Cost = owner, a.life.opt.Prices.Of(u)
		report.Owners = append(report.Owners, u)
	}
	slices.SortFunc(report.Owners, func(a, b hutch.Usage) int { return strings.Compare(a.Owner, b.Owner) })
	return report, nil
}

// maxUsageRows limits the answer of UsageHistory.
const maxUsageRows = 10_000

var errUsageRows = hutch.Errorf(hutch.Invalid, "the answer would have more than %d rows: ask for fewer days, or for fewer groups in by", maxUsageRows)

// UsageHistory implements hutch.Accounts.
func (a accounts) UsageHistory(ctx context.Context, q hutch.UsageQuery) ([]hutch.Usage, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	from, to := q.Days(now)
	var only *string
	if owner, ok := caller.OwnerOf(ctx); ok {
		only = &owner.ID
	}
	var list []hutch.Usage
	err := a.life.ledger.Between(ctx, from, to, only, func(u hutch.Usage) error {
		if list = append(list, u); len(list) >= 2*maxUsageRows { // there can be many more rows than the answer has
			if list = q.Grouped(list); len(list) > maxUsageRows {
				return errUsageRows
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if today := now.Truncate(24 * time.Hour); !today.Before(from) && !today.After(to) {
		all := a.life.visible(ctx, "")
		unspent := make([]hutch.Usage, len(all))
		visit(all, func(i int, s *sandbox) { unspent[i] = a.unspent(ctx, s, now) })
		list = append(list, slices.DeleteFunc(unspent, hutch.Usage.Idle)...)
	}
	list = q.Grouped(list)
	if len(list) > maxUsageRows {
		return nil, errUsageRows
	}
	for i := range list {
		list[i].Cost = a.life.opt.Prices.Of(list[i])
	}
	return list, nil
}

// saveLedger saves the sums of the day. After a failure they are only in memory, and are lost if the server ends.
func (a accounts) saveLedger(ctx context.Context) {
	if err := a.life.ledger.Save(ctx); err != nil && ctx.Err() == nil {
		a.life.log.Error("save what was used today", "err", err)
	}
}

// unspent returns what a sandbox used today that is not in the ledger.
func (a accounts) unspent(ctx context.Context, s *sandbox, now time.Time) hutch.Usage {
	if inst := s.Instance(); inst != nil {
		s.account(ctx, inst)
	}
	image, more := s.Unspent()
	more.Day, more.Owner, more.Image = now.Format(time.DateOnly), s.Owner(), image
	return more
}

// usages reads the usage of several sandboxes.
func (a accounts) usages(ctx context.Context, all []*sandbox) []hutch.Usage {
	list := make([]hutch.Usage, len(all))
	visit(all, func(i int, s *sandbox) { list[i] = a.usage(ctx, s) })
	return list
}

func (a accounts) usage(ctx context.Context, s *sandbox) hutch.Usage {
	if inst := s.Instance(); inst != nil {
		s.account(ctx, inst) // without an instance, the last reading counts
	}
	u := s.Used()
	v := s.Sandbox()
	u.SandboxID, u.Owner, u.Status, u.Image = v.ID, v.Owner, v.Status, v.Image
	u.Cost = a.life.opt.Prices.Of(u)
	return u
}
