package wire

import (
	"context"
	"encoding/json"
	"fmt"
)

// Relieve ends what uses the most memory: the sandbox is over its limit.
type Relieve struct {
	Used int64 `json:"used"` // bytes that the sandbox uses, as the host counts
	// Urgent says that something must be ended, also when it is unknown what
	// uses the memory.
	Urgent bool `json:"urgent,omitempty"`
}

// Relieved answers it.
type Relieved struct {
	Ended int `json:"ended"` // how many processes were ended
}

func (r *Relieved) UnmarshalJSON(b []byte) error {
	type plain Relieved
	if err := json.Unmarshal(b, (*plain)(r)); err != nil {
		return err
	}
	if r.Ended < 0 {
		return fmt.Errorf("%d processes ended", r.Ended)
	}
	return nil
}

// Relieve ends the command, run or background process that uses the most
// memory, with all that it started, and reports whether it ended any.
func (c *Client) Relieve(ctx context.Context, req Relieve) (bool, error) {
	r, err := call[Relieved](ctx, c, Request{Op: "relieve", Relieve: &req})
	return r.Ended > 0, err
}
