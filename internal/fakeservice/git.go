package fakeservice

import (
	"context"
	"path"
	"strings"

	"hutch"
)

const commit = "3133bc12740fb112c1a1ca72680c07816057b4c1"

// repository returns the repository that every folder has.
func repository(dir, branch string) hutch.GitRepository {
	if branch == "" {
		branch = "main"
	}
	return hutch.GitRepository{Dir: path.Join("/workspace", dir), Branch: branch, Commit: commit}
}

// GitClone clones nothing: every folder is a repository.
func (s *Service) GitClone(ctx context.Context, sandbox string, req hutch.GitCloneRequest) (hutch.GitRepository, error) {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return hutch.GitRepository{}, err
	}
	if req.URL == "" {
		return hutch.GitRepository{}, hutch.Errorf(hutch.Invalid, "the url is empty")
	}
	if req.Dir == "" {
		req.Dir = strings.TrimSuffix(path.Base(req.URL), ".git")
	}
	return repository(req.Dir, req.Branch), nil
}

func (s *Service) GitStatus(ctx context.Context, sandbox, dir string) (hutch.GitStatus, error) {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return hutch.GitStatus{}, err
	}
	files := []hutch.GitChange{{Path: "main.go", Index: ".", Tree: "M"}}
	return hutch.GitStatus{GitRepository: repository(dir, ""), Upstream: "origin/main", Ahead: 1, Files: files}, nil
}

func (s *Service) GitDiff(ctx context.Context, sandbox string, req hutch.GitDiffRequest) (string, error) {
	_, err := s.Sandbox(ctx, sandbox)
	return "diff --git a/main.go b/main.go\n", err
}

func (s *Service) GitCommit(ctx context.Context, sandbox string, req hutch.GitCommitRequest) (hutch.GitRepository, error) {
	if _, err := s.Sandbox(ctx, sandbox); err != nil {
		return hutch.GitRepository{}, err
	}
	if req.Message == "" {
		return hutch.GitRepository{}, hutch.Errorf(hutch.Invalid, "the message is empty")
	}
	return repository(req.Dir, ""), nil
}
