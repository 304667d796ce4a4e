package coding

import (
	"context"
	"time"

	"hutch"
)

// Listed is a session in a list.
type Listed struct {
	ID        string       `json:"sandboxId"`
	Agent     string       `json:"agent"`
	Status    hutch.Status `json:"status"` // status of the sandbox
	Work      Work         `json:"work"`
	CreatedAt time.Time    `json:"createdAt"`
}

// Work is what the agent of a session does.
type Work string

const (
	Working Work = "working"
	Done    Work = "done"   // it ended with 0
	Broke   Work = "failed" // it ended with another code
	Unknown Work = "-"      // there was no prompt since the session began, woke or was copied
)

// List returns the sessions of the caller, oldest first.
func List(ctx context.Context, svc hutch.Service) ([]Listed, error) {
	all, err := svc.Sandboxes(ctx, hutch.Filter{})
	var list []Listed
	for _, sb := range all {
		if sb.Labels[Label] == "" {
			continue
		}
		s := Listed{ID: sb.ID, Agent: sb.Labels[Label], Status: sb.Status, Work: Unknown, CreatedAt: sb.CreatedAt}
		for _, p := range sb.Processes {
			if p.Name == processName && p.Signal != notGiven {
				s.Work = workOf(p.Status)
			}
		}
		list = append(list, s)
	}
	return list, err
}

func workOf(s hutch.ProcessStatus) Work {
	switch {
	case s.Live():
		return Working
	case s == hutch.ProcessExited:
		return Done
	}
	return Broke
}
