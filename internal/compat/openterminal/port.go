package openterminal

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/compat"
)

// port is a port on which a program of the user listens. The program is not known; the original does not always know
// it, either.
type port struct {
	Port    int     `json:"port"`
	PID     *int    `json:"pid"`
	Process *string `json:"process"`
}

// socketsCommand prints the listening sockets in the kernel's lists or, if the image has no grep, the whole lists.
const socketsCommand = `grep -hs " 0A " /proc/net/tcp /proc/net/tcp6 || cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; true`

const maxSockets = 1 << 20 // bytes of these lists that are read

func (c *call) ports() (any, error) {
	out := compat.NewBuffer(c.ctx, maxSockets)
	_, err := c.svc.Exec(c.ctx, c.sandbox, hutch.ExecRequest{Command: socketsCommand, Timeout: 10, StreamOnly: true}, func(o hutch.Output) error {
		_, err := out.Write(o.Data)
		return err
	})
	if err != nil {
		return nil, err
	}
	list := []port{}
	for _, n := range listening(out.Bytes()) {
		list = append(list, port{Port: n})
	}
	return map[string][]port{"ports": list}, nil
}

// listening reads the kernel's lists of sockets: number, local address, remote address, state.
func listening(text []byte) []int {
	const listen = "0A"
	var list []int
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 4 || fields[3] != listen {
			continue
		}
		_, number, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(number, 16, 16); err == nil && n > 0 {
			list = append(list, int(n))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
