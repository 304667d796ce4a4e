package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/driver/gvisor/contract"
)

const (
	controlTime = 10 * time.Second // for one call, unless its context sets another limit
	maxAnswer   = 1 << 20          // bytes of one answer
)

// control is the sentry's control socket. Code inside can have corrupted the sentry, so its answers have a maximum
// size, and late answers are errors.
type control struct{ path string }

// errRemote marks an error that the sentry returned.
var errRemote = errors.New("refused by the sandbox")

// call makes one remote call, as gVisor's package urpc does: JSON without framing, with files attached to the first
// byte.
func (c control) call(ctx context.Context, method string, arg, result any, files ...*os.File) error {
	if err := c.exchange(ctx, method, arg, result, files); err != nil {
		return fmt.Errorf("call %s: %w", method, err)
	}
	return nil
}

func (c control) exchange(ctx context.Context, method string, arg, result any, files []*os.File) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, controlTime)
		defer cancel()
	}
	conn, err := dial(ctx, c.path)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	err = send(conn, map[string]any{"method": method, "arg": arg}, files)
	if err == nil {
		err = receive(conn, result)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func send(conn *net.UnixConn, v any, files []*os.File) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(text, rights, nil)
	if err == nil && n < len(text) {
		_, err = conn.Write(text[n:])
	}
	return err
}

// receive reads an answer. It never accepts files with the answer.
func receive(conn *net.UnixConn, result any) error {
	answer := struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
		Result  any    `json:"result"`
	}{Result: result}
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&answer); err != nil {
		return err
	}
	if !answer.Success {
		return fmt.Errorf("%w: %.2000q", errRemote, answer.Err)
	}
	return nil
}

// start sets up the network interfaces and starts the first process, or continues a saved sandbox.
func (c control) start(ctx context.Context, saved saved, devices ...*os.File) error {
	if err := c.call(ctx, contract.SetNetworkArgs, links(len(devices) > 0), nil, devices...); err != nil {
		return err
	}
	if saved == nil {
		return c.call(ctx, contract.StartRoot, container, nil)
	}
	return c.call(ctx, contract.Restore, map[string]any{"HavePagesFile": true}, nil, saved...)
}

// readGroup reads a file of the control group inside, which contains all processes.
func (c control) readGroup(ctx context.Context, controller, name string) (string, error) {
	file := map[string]string{"controller": controller, "path": "/" + container, "name": name}
	arg := map[string]any{"args": []any{map[string]any{"file": file}}}
	var answer struct {
		Results []struct {
			Value   string `json:"value"`
			IsError bool   `json:"is_error"`
		} `json:"results"`
	}
	if err := c.call(ctx, contract.ReadControlFiles, arg, &answer); err != nil {
		return "", err
	}
	if len(answer.Results) != 1 || answer.Results[0].IsError {
		return "", fmt.Errorf("read %s: %w: %.2000q", name, errRemote, fmt.Sprint(answer.Results))
	}
	return answer.Results[0].Value, nil
}
