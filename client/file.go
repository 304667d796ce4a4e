package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"unicode/utf8"

	"hutch"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

// fileAt returns the endpoint of a verb on files, for the user of the context. query holds names and values; empty
// values are left out.
func fileAt(ctx context.Context, name, sandbox string, query ...string) endpoint {
	to, q := at(name, sandbox), url.Values{}
	if user := hutch.FileUser(ctx); user != "" {
		q.Set("user", user)
	}
	for i := 0; i < len(query); i += 2 {
		name, value := query[i], query[i+1]
		if name == "path" || name == "from" || name == "to" {
			to = to.check(hutch.CheckPath(value))
		}
		if value != "" {
			q.Set(name, value)
		}
	}
	return to.with(q)
}

func number[T int | int64](n T) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

func trueOrEmpty(b bool) string {
	if b {
		return "true"
	}
	return ""
}

// object returns a JSON object, or nothing if there are no values.
func object(values map[string]string) string {
	if len(values) == 0 {
		return ""
	}
	text, _ := json.Marshal(values) // strings can always be encoded
	return string(text)
}

func octal(mode hutch.FileMode) string {
	if mode == 0 {
		return ""
	}
	return mode.String()
}

// fileCall makes a call about files whose answer is one value or nothing.
func fileCall[T any](ctx context.Context, c *Client, name, sandbox string, body any, query ...string) (T, error) {
	return call[T](ctx, c, fileAt(ctx, name, sandbox, query...), body)
}

// Stat implements hutch.Service.
func (c *Client) Stat(ctx context.Context, sandbox, path string) (hutch.FileInfo, error) {
	return fileCall[hutch.FileInfo](ctx, c, "Stat", sandbox, nil, "path", path)
}

// EditFile implements hutch.Service.
func (c *Client) EditFile(ctx context.Context, sandbox string, req hutch.EditRequest) (hutch.Edit, error) {
	for _, text := range []string{req.Old, req.New} {
		if !utf8.ValidString(text) {
			return hutch.Edit{}, hutch.Errorf(hutch.Invalid, "%.80q is not UTF-8: read the file, change it and write it whole", text)
		}
	}
	if err := req.Check(); err != nil {
		return hutch.Edit{}, err
	}
	path := req.Path
	req.Path = ""
	return fileCall[hutch.Edit](ctx, c, "EditFile", sandbox, req, "path", path)
}

// Mkdir implements hutch.Service.
func (c *Client) Mkdir(ctx context.Context, sandbox, path string, parents bool) error {
	_, err := fileCall[struct{}](ctx, c, "Mkdir", sandbox, nil, "path", path, "parents", trueOrEmpty(parents))
	return err
}

// Move implements hutch.Service.
func (c *Client) Move(ctx context.Context, sandbox, from, to string, replace bool) error {
	_, err := fileCall[struct{}](ctx, c, "Move", sandbox, nil, "from", from, "to", to, "replace", trueOrEmpty(replace))
	return err
}

// Copy implements hutch.Service.
func (c *Client) Copy(ctx context.Context, sandbox, from, to string, replace bool) error {
	_, err := fileCall[struct{}](ctx, c, "Copy", sandbox, nil, "from", from, "to", to, "replace", trueOrEmpty(replace))
	return err
}

// Delete implements hutch.Service.
func (c *Client) Delete(ctx context.Context, sandbox, path string, recursive bool) error {
	_, err := fileCall[struct{}](ctx, c, "Delete", sandbox, nil, "path", path, "recursive", trueOrEmpty(recursive))
	return err
}

// Chmod implements hutch.Service.
func (c *Client) Chmod(ctx context.Context, sandbox, path string, mode hutch.FileMode) error {
	_, err := fileCall[struct{}](ctx, c, "Chmod", sandbox, nil, "path", path, "mode", mode.String())
	return err
}

// ReadFile implements hutch.Service.
func (c *Client) ReadFile(ctx context.Context, sandbox string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	to := fileAt(ctx, "ReadFile", sandbox, "path", req.Path, "offset", number(req.Offset), "length", number(req.Length),
		"firstLine", number(req.FirstLine), "lastLine", number(req.LastLine)).check(req.Check())
	resp, err := c.do(ctx, to, nil, "*/*")
	if err != nil {
		return hutch.FileInfo{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return hutch.FileInfo{}, c.refusal(ctx, resp).Err()
	}
	info, err := stream.ParseFile(resp.Header.Get(stream.FileHeader))
	if err != nil {
		return info, hutch.Errorf(hutch.Unavailable, "what answers at %s does not speak as Hutch does: check the URL", c.url).Because(err)
	}
	if req.Opened != nil {
		req.Opened(info)
	}
	return info, c.copyBody(ctx, w, resp)
}

// copyBody copies an answer to w. An answer that breaks off is an error: the server ended it, or the connection was
// lost.
func (c *Client) copyBody(ctx context.Context, w io.Writer, resp *http.Response) error {
	buf := make([]byte, 128<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case err != nil:
			return hutch.Errorf(hutch.Conflict, "what was read broke off: it changed meanwhile, or the connection was lost. Read it again").Because(err)
		}
	}
}

// WriteFile implements hutch.Service.
func (c *Client) WriteFile(ctx context.Context, sandbox string, req hutch.WriteRequest, r io.Reader) (info hutch.FileInfo, err error) {
	to := fileAt(ctx, "WriteFile", sandbox, "path", req.Path, "mode", octal(req.Mode), "append", trueOrEmpty(req.Append),
		"create", trueOrEmpty(req.Create), "parents", trueOrEmpty(req.Parents), "attributes", object(req.Attributes)).check(req.Check())
	return info, c.send(ctx, to, r, &info)
}

// send sends everything that r returns. If r fails, send breaks the connection, so that the failure does not look like
// the end of the file.
func (c *Client) send(ctx context.Context, to endpoint, r io.Reader, answer any) error {
	if to.err != nil {
		return to.err
	}
	body := &body{r: r}
	req, err := http.NewRequestWithContext(ctx, to.method, c.url+to.path, body)
	if err != nil {
		return hutch.Errorf(hutch.Invalid, "the server's URL %q cannot be used: %v", c.url, err)
	}
	req.Header = c.header(ctx)
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.HTTP.Do(req)
	if failed := body.failed(); failed != nil {
		if resp != nil {
			resp.Body.Close()
		}
		return failed
	}
	if err != nil {
		return c.fault(ctx, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 300:
		return c.refusal(ctx, resp).Err()
	case resp.StatusCode == http.StatusNoContent:
		return nil
	}
	return c.read(ctx, resp, answer)
}

// body is a reader that remembers its error. HTTP can read it after the call.
type body struct {
	r io.Reader

	mu  sync.Mutex
	err error
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF {
		b.mu.Lock()
		b.err = err
		b.mu.Unlock()
	}
	return n, err
}

// writeBuffer is how much a connection gathers before it writes: a piece of a file and HTTP's framing.
const writeBuffer = 64 << 10

// WriteTo implements io.WriterTo, to use pieces larger than io.Copy's: waking the connection's reader for each piece
// takes time.
func (b *body) WriteTo(w io.Writer) (n int64, err error) {
	buf := make([]byte, writeBuffer-64)
	for err == nil {
		var m int
		if m, err = b.Read(buf); m > 0 {
			var werr error
			m, werr = w.Write(buf[:m])
			n += int64(m)
			err = cmp.Or(werr, err)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

func (b *body) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// ListFiles implements hutch.Service.
func (c *Client) ListFiles(ctx context.Context, sandbox string, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	to := fileAt(ctx, "ListFiles", sandbox, "path", req.Path, "recursive", trueOrEmpty(req.Recursive), "depth", number(req.Depth),
		"hidden", trueOrEmpty(req.Hidden), "glob", req.Glob, "limit", number(req.Limit), "attributes", trueOrEmpty(req.Attributes))
	return fileList(ctx, c, to.check(req.Check()), out)
}

// SearchFiles implements hutch.Service.
func (c *Client) SearchFiles(ctx context.Context, sandbox string, req hutch.SearchRequest, out func(hutch.Match) error) error {
	to := fileAt(ctx, "SearchFiles", sandbox, "path", req.Path, "pattern", req.Pattern, "hidden", trueOrEmpty(req.Hidden),
		"glob", req.Glob, "limit", number(req.Limit))
	return fileList(ctx, c, to.check(req.Check()), out)
}

// fileList reads a list as it arrives: an object with the items and, if the list ended early, the error.
func fileList[T any](ctx context.Context, c *Client, to endpoint, out func(T) error) error {
	resp, err := c.do(ctx, to, nil, "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return c.refusal(ctx, resp).Err()
	}
	dec := json.NewDecoder(resp.Body)
	var end error
	err = members(dec, func(name string) error {
		if name == "error" {
			var raw json.RawMessage
			if err := dec.Decode(&raw); err != nil {
				return err
			}
			end = problem.Read(http.StatusInternalServerError, raw).Err()
			return nil
		}
		return elements(dec, out)
	})
	if e, ok := errors.AsType[itemError](err); ok {
		return e.error
	}
	if err != nil {
		return c.fault(ctx, err)
	}
	return end
}

// members calls f with the name of each member of an object. f must read the value.
func members(dec *json.Decoder, f func(name string) error) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%v instead of an object: %w", t, err)
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		if err := f(name); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}

// itemError is an error of the caller's function.
type itemError struct{ error }

// elements passes the elements of an array to out.
func elements[T any](dec *json.Decoder, out func(T) error) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("%v instead of a list: %w", t, err)
	}
	for dec.More() {
		var v T
		if err := dec.Decode(&v); err != nil {
			return err
		}
		if err := out(v); err != nil {
			return itemError{err}
		}
	}
	_, err := dec.Token()
	return err
}

// Watch implements hutch.Service.
func (c *Client) Watch(ctx context.Context, sandbox string, req hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	to := fileAt(ctx, "Watch", sandbox, "path", req.Path, "recursive", trueOrEmpty(req.Recursive)).check(req.Check())
	return follow(ctx, c, to, "change", out)
}

// follow passes events of one name to out, until the server says that there are no more.
func follow[E any](ctx context.Context, c *Client, to endpoint, name string, out func(E) error) error {
	return followTo(ctx, c, to, nil, name, out, nil)
}

// followTo sends a request and passes events of one name to out. The last event is decoded into answer, if that is
// not nil.
func followTo[E any](ctx context.Context, c *Client, to endpoint, req any, name string, out func(E) error, answer any) error {
	resp, err := c.do(ctx, to, req, "text/event-stream")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.followAnswer(ctx, resp, name, func(data []byte) error {
		var e E
		if err := json.Unmarshal(data, &e); err != nil {
			return c.fault(ctx, err)
		}
		return out(e)
	}, answer)
}

// followAnswer does the same as followTo, for the answer to a request that was already sent.
func (c *Client) followAnswer(ctx context.Context, resp *http.Response, name string, out func(data []byte) error, answer any) error {
	return c.followEvents(ctx, resp, map[string]func([]byte) error{name: out}, answer)
}

// followEvents does the same as followAnswer, for events of several names.
func (c *Client) followEvents(ctx context.Context, resp *http.Response, out map[string]func(data []byte) error, answer any) error {
	if resp.StatusCode != http.StatusOK {
		return c.refusal(ctx, resp).Err()
	}
	for r := bufio.NewReader(resp.Body); ; {
		event, data, err := next(r)
		if err != nil {
			return c.fault(ctx, err)
		}
		if pass := out[event]; pass != nil {
			if err := pass(data); err != nil {
				return err
			}
		}
		switch event {
		case "end":
			if answer != nil {
				err = json.Unmarshal(data, answer)
			}
			if err != nil {
				return c.fault(ctx, err)
			}
			return nil
		case "error":
			return problem.Read(http.StatusInternalServerError, data).Err()
		}
	}
}

// Pack implements hutch.Service.
func (c *Client) Pack(ctx context.Context, sandbox string, req hutch.PackRequest, w io.Writer) error {
	to := fileAt(ctx, "Pack", sandbox, "path", req.Dir, "format", string(req.Format)).check(req.Check())
	for _, name := range req.Paths {
		to.path += "&name=" + url.QueryEscape(name)
	}
	return c.receive(ctx, to, w)
}

// receive writes the body of an answer to w.
func (c *Client) receive(ctx context.Context, to endpoint, w io.Writer) error {
	resp, err := c.do(ctx, to, nil, "*/*")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.refusal(ctx, resp).Err()
	}
	return c.copyBody(ctx, w, resp)
}

// Unpack implements hutch.Service.
func (c *Client) Unpack(ctx context.Context, sandbox string, req hutch.UnpackRequest, r io.Reader) error {
	to := fileAt(ctx, "Unpack", sandbox, "path", req.Dir, "format", string(req.Format)).check(req.Check())
	return c.send(ctx, to, r, nil)
}
