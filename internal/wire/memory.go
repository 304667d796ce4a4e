package wire

import (
	"context"
	"encoding/json"
	"fmt"
)

// Relieve ends the program that uses the most memory, because the sandbox is over its memory limit.
type Relieve struct {
	Used int64 `json:"used"` // bytes that the sandbox uses, by the host's count
	// Urgent is set if a process must be killed, even if it is unknown which one uses the memory.
	Urgent bool `json:"urgent,omitempty"`
}

// Relieved answers Relieve.
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

// Relieve ends the command, run or background process that uses the most memory, with everything that it started, and
// reports whether it ended any.
func (c *Client) Relieve(ctx context.Context, req Relieve) (bool, error) {
	r, err := call[Relieved](ctx, c, Request{Op: "relieve", Relieve: &req})
	return r.Ended > 0, err
}
