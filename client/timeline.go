package client

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"hutch"
)

var _ hutch.Timelines = (*Client)(nil)

// Timeline implements hutch.Timelines.
func (c *Client) Timeline(ctx context.Context, sandbox string, q hutch.TimelineQuery, out func(hutch.TimelineEntry) error) error {
	to := at("Timeline", sandbox).check(q.Check()).with(timelineQuery(q))
	if q.Follow {
		return follow(ctx, c, to, "entry", out)
	}
	page, err := call[hutch.TimelinePage](ctx, c, to, nil)
	for _, e := range page.Entries {
		if err == nil {
			err = out(e)
		}
	}
	return err
}

// Timeline returns what happened in the sandbox, filtered by q. To follow it, use [Client.Timeline].
func (s *Sandbox) Timeline(ctx context.Context, q hutch.TimelineQuery) (list []hutch.TimelineEntry, err error) {
	q.Follow = false
	err = s.client.Timeline(ctx, s.ID, q, func(e hutch.TimelineEntry) error { list = append(list, e); return nil })
	return list, err
}

func timelineQuery(q hutch.TimelineQuery) url.Values {
	v := url.Values{}
	for name, n := range map[string]int64{"after": q.After, "before": q.Before, "id": q.ID, "limit": int64(q.Limit)} {
		if n > 0 {
			v.Set(name, strconv.FormatInt(n, 10))
		}
	}
	kinds := make([]string, len(q.Kinds))
	for i, k := range q.Kinds {
		kinds[i] = string(k)
	}
	for name, value := range map[string]string{"since": timeOrEmpty(q.Since), "until": timeOrEmpty(q.Until), "text": q.Text, "kind": strings.Join(kinds, ",")} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v
}
