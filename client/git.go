package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"hutch"
)

// GitClone implements hutch.Service.
func (c *Client) GitClone(ctx context.Context, sandbox string, req hutch.GitCloneRequest) (hutch.GitRepository, error) {
	return gitCall[hutch.GitRepository](ctx, c, at("GitClone", sandbox).check(req.Check()), req, req.URL, req.Branch, req.Dir, req.Username, req.Password)
}

// GitCommit implements hutch.Service.
func (c *Client) GitCommit(ctx context.Context, sandbox string, req hutch.GitCommitRequest) (hutch.GitRepository, error) {
	texts := append([]string{req.Dir, req.Message, req.Name, req.Email}, req.Paths...)
	return gitCall[hutch.GitRepository](ctx, c, at("GitCommit", sandbox).check(req.Check()), req, texts...)
}

// gitCall makes a call. It refuses texts that are not UTF-8.
func gitCall[T any](ctx context.Context, c *Client, to endpoint, req any, texts ...string) (T, error) {
	for _, text := range texts {
		to = to.check(checkText(text, "", nil))
	}
	return call[T](ctx, c, to, req)
}

// GitStatus implements hutch.Service.
func (c *Client) GitStatus(ctx context.Context, sandbox, dir string) (hutch.GitStatus, error) {
	return call[hutch.GitStatus](ctx, c, at("GitStatus", sandbox).with(url.Values{"dir": {dir}}), nil)
}

// GitDiff implements hutch.Service.
func (c *Client) GitDiff(ctx context.Context, sandbox string, req hutch.GitDiffRequest) (string, error) {
	q := url.Values{"dir": {req.Dir}, "from": {req.From}, "to": {req.To}, "staged": {strconv.FormatBool(req.Staged)}, "path": req.Paths}
	resp, err := c.do(ctx, at("GitDiff", sandbox).check(req.Check()).with(q), nil, "text/x-diff")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", c.refusal(ctx, resp).Err()
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", c.fault(ctx, err)
	}
	return string(b), nil
}

// GitClone clones a repository into the sandbox.
func (s *Sandbox) GitClone(ctx context.Context, req hutch.GitCloneRequest) (hutch.GitRepository, error) {
	return s.client.GitClone(ctx, s.ID, req)
}

// GitStatus describes the state of the working tree in a folder.
func (s *Sandbox) GitStatus(ctx context.Context, dir string) (hutch.GitStatus, error) {
	return s.client.GitStatus(ctx, s.ID, dir)
}

// GitDiff returns a difference as git prints it.
func (s *Sandbox) GitDiff(ctx context.Context, req hutch.GitDiffRequest) (string, error) {
	return s.client.GitDiff(ctx, s.ID, req)
}

// GitCommit commits files.
func (s *Sandbox) GitCommit(ctx context.Context, req hutch.GitCommitRequest) (hutch.GitRepository, error) {
	return s.client.GitCommit(ctx, s.ID, req)
}
