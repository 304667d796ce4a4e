package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"unicode/utf8"

	"hutch"
	"hutch/internal/stream"
)

// inputPiece is the most input that one call sends.
const inputPiece = 256 << 10

// Input implements hutch.ProcessControl. It makes one call for each piece that r returns. A call ends when the
// program's side has accepted the piece.
func (c *Client) Input(ctx context.Context, sandbox, process string, r io.Reader, end bool) error {
	in := &pieces{r: r}
	if r == nil {
		in.r = bytes.NewReader(nil)
	}
	for first := true; ; first = false {
		b, err := in.next(ctx)
		over := errors.Is(err, io.EOF)
		if err != nil && !over {
			return err
		}
		if len(b) > 0 || first || over && end {
			if err := c.input(ctx, at("Input", sandbox, process), b, over && end); err != nil {
				return err
			}
		}
		if over {
			return nil
		}
	}
}

func (c *Client) input(ctx context.Context, to endpoint, b []byte, end bool) error {
	if to.err != nil {
		return to.err
	}
	if end {
		to = to.with(url.Values{"end": {"true"}})
	}
	req, err := http.NewRequestWithContext(ctx, to.method, c.url+to.path, bytes.NewReader(b))
	if err != nil {
		return hutch.Errorf(hutch.Invalid, "the server's URL %q cannot be used: %v", c.url, err)
	}
	req.Header = c.header(ctx)
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return c.fault(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return c.refusal(ctx, resp).Err()
	}
	return nil
}

// pieces reads an input in a goroutine, so that the caller can stop waiting for it. A blocked Read then continues in
// the background.
type pieces struct {
	r    io.Reader
	buf  []byte
	read chan result
}

type result struct {
	n   int
	err error
}

// next returns the next piece, and io.EOF with the last one.
func (p *pieces) next(ctx context.Context) ([]byte, error) {
	if p.buf == nil {
		p.buf, p.read = make([]byte, inputPiece), make(chan result, 1)
	}
	go func() {
		n, err := p.r.Read(p.buf)
		p.read <- result{n, err}
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case got := <-p.read:
		if got.err != nil && got.err != io.EOF {
			return nil, fmt.Errorf("read input: %w", got.err)
		}
		return p.buf[:got.n], got.err
	}
}

// Resize implements hutch.ProcessControl.
func (c *Client) Resize(ctx context.Context, sandbox, process string, size hutch.Size) error {
	_, err := call[struct{}](ctx, c, at("Resize", sandbox, process).check(size.Check()), size)
	return err
}

// Wait implements hutch.ProcessControl.
func (c *Client) Wait(ctx context.Context, sandbox, process string, req hutch.WaitRequest) (hutch.WaitResult, error) {
	if !utf8.ValidString(req.Text + req.Pattern + req.Path) {
		return hutch.WaitResult{}, hutch.Errorf(hutch.Invalid, "what to wait for is not UTF-8: in a pattern, write other bytes as \\xff")
	}
	return call[hutch.WaitResult](ctx, c, at("Wait", sandbox, process).check(req.Check()), req)
}

// CleanProcesses implements hutch.ProcessControl.
func (c *Client) CleanProcesses(ctx context.Context, sandbox string) (int, error) {
	cleaned, err := call[stream.Cleaned](ctx, c, at("CleanProcesses", sandbox), nil)
	return cleaned.Removed, err
}

// Languages implements hutch.ProcessControl.
func (c *Client) Languages(ctx context.Context, sandbox string) ([]hutch.Language, error) {
	return call[[]hutch.Language](ctx, c, at("Languages", sandbox), nil)
}
