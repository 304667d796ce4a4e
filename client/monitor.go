package client

import (
	"bufio"
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/audit"
)

// AuditQuery chooses records of the audit log; the zero value chooses all.
type AuditQuery = audit.Query

// AuditRecord is one record of the audit log.
type AuditRecord = audit.Record

var (
	_ hutch.Accounts    = (*Client)(nil)
	_ hutch.Histories   = (*Client)(nil)
	_ hutch.Pools       = (*Client)(nil)
	_ hutch.Checkpoints = (*Client)(nil)
	_ hutch.Examiner    = (*Client)(nil)
	_ hutch.Owners      = (*Client)(nil)
)

// Usage implements hutch.Accounts.
func (c *Client) Usage(ctx context.Context) (hutch.UsageReport, error) {
	return call[hutch.UsageReport](ctx, c, at("Usage"), nil)
}

// UsageHistory implements hutch.Accounts.
func (c *Client) UsageHistory(ctx context.Context, q hutch.UsageQuery) ([]hutch.Usage, error) {
	values := url.Values{}
	for name, value := range map[string]string{"from": q.From, "to": q.To, "by": joined(q.By)} {
		if value != "" {
			values.Set(name, value)
		}
	}
	return call[[]hutch.Usage](ctx, c, at("UsageHistory").check(q.Check()).with(values), nil)
}

func joined(by []hutch.UsageGroup) string {
	names := make([]string, len(by))
	for i, g := range by {
		names[i] = string(g)
	}
	return strings.Join(names, ",")
}

// Stats implements hutch.Accounts.
func (c *Client) Stats(ctx context.Context, req hutch.StatsRequest, out func(hutch.StatsReport) error) error {
	to := at("Stats").check(req.Check())
	if req.Interval > 0 {
		to = to.with(url.Values{"interval": {req.Interval.String()}})
	}
	if req.Follow {
		return follow(ctx, c, to, "stats", out)
	}
	report, err := call[hutch.StatsReport](ctx, c, to, nil)
	if err != nil {
		return err
	}
	return out(report)
}

// StatsHistory implements hutch.Histories.
func (c *Client) StatsHistory(ctx context.Context, sandbox string, q hutch.StatsQuery) (hutch.StatsHistory, error) {
	values := url.Values{}
	for name, value := range map[string]string{"since": timeOrEmpty(q.Since), "until": timeOrEmpty(q.Until)} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if q.Step > 0 {
		values.Set("step", q.Step.String())
	}
	return call[hutch.StatsHistory](ctx, c, at("StatsHistory", sandbox).check(q.Check()).with(values), nil)
}

// StatsHistory returns what the sandbox used over time.
func (s *Sandbox) StatsHistory(ctx context.Context, q hutch.StatsQuery) (hutch.StatsHistory, error) {
	return s.client.StatsHistory(ctx, s.ID, q)
}

// Version returns the version of the server. Any valid token can read it.
func (c *Client) Version(ctx context.Context) (hutch.Version, error) {
	return call[hutch.Version](ctx, c, endpoint{method: "GET", path: "/v1/version"}, nil)
}

// Pool implements hutch.Pools.
func (c *Client) Pool(ctx context.Context) (hutch.PoolState, error) {
	return call[hutch.PoolState](ctx, c, at("Pool"), nil)
}

// CheckpointAll implements hutch.Checkpoints.
func (c *Client) CheckpointAll(ctx context.Context, out func(hutch.Checkpoint) error) error {
	return follow(ctx, c, at("CheckpointAll"), "checkpoint", out)
}

// Examine implements hutch.Examiner.
func (c *Client) Examine(ctx context.Context) (hutch.Examination, error) {
	return call[hutch.Examination](ctx, c, at("Examine"), nil)
}

// VerifyAudit implements hutch.Examiner.
func (c *Client) VerifyAudit(ctx context.Context, head string) (hutch.AuditVerification, error) {
	to := at("VerifyAudit")
	if head != "" {
		to = to.with(url.Values{"head": {head}})
	}
	return call[hutch.AuditVerification](ctx, c, to, nil)
}

// Owners implements hutch.Owners.
func (c *Client) Owners(ctx context.Context) ([]hutch.Owned, error) {
	return call[[]hutch.Owned](ctx, c, at("Owners"), nil)
}

// DeleteOwner implements hutch.Owners.
func (c *Client) DeleteOwner(ctx context.Context, owner string) (hutch.Owned, error) {
	return call[hutch.Owned](ctx, c, at("DeleteOwner", owner), nil)
}

// Audit passes the chosen records of the audit log to out, in the order in which they were written, until out fails.
// With follow it continues with new records. It needs a token with the scope admin.
func (c *Client) Audit(ctx context.Context, q AuditQuery, follow bool, out func(AuditRecord) error) error {
	resp, err := c.do(ctx, at("Audit").with(auditQuery(q, follow)), nil, "application/jsonl")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return c.refusal(ctx, resp).Err()
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r AuditRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return hutch.Errorf(hutch.Unavailable, "what answers at %s does not speak as Hutch does: check the URL", c.url).Because(err)
		}
		if err := out(r); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return c.fault(ctx, err)
	}
	return nil
}

func auditQuery(q AuditQuery, follow bool) url.Values {
	v := url.Values{}
	for name, value := range map[string]string{
		"since": timeOrEmpty(q.Since), "until": timeOrEmpty(q.Until), "token": q.Token, "owner": q.Owner,
		"sandbox": q.Sandbox, "verb": q.Verb, "result": q.Result,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	for name, n := range map[string]int64{"after": q.After, "limit": int64(q.Limit)} {
		if n > 0 {
			v.Set(name, strconv.FormatInt(n, 10))
		}
	}
	for name, set := range map[string]bool{"running": q.Running, "follow": follow} {
		if set {
			v.Set(name, "true")
		}
	}
	return v
}
