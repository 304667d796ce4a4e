package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
)

func newGit(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "git", Short: "Clone, inspect and commit repositories in a sandbox of the server",
		Long: `Clone, inspect and commit repositories in a sandbox of the server. A DIR is absolute,
or relative to /workspace, which is the default.
` + remoteHelp,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q of hutch git: use clone, status, diff or commit", args[0])}
			}
			return c.Help()
		},
	}
	c.AddCommand(newGitClone(h, std), newGitStatus(h, std), newGitDiff(h, std), newGitCommit(h, std))
	return c
}

func newGitClone(h *home, std streams) *cobra.Command {
	var req hutch.GitCloneRequest
	var timeout time.Duration
	var passwordStdin, asJSON bool
	var m maker
	c := &cobra.Command{
		Use: "clone [flags] SANDBOX URL [DIR]", Short: "Clone a repository, with its credentials only in memory",
		Long: `Clone a repository into the sandbox, which is made if there is none. The password or
token is read from $HUTCH_GIT_PASSWORD, or from the standard input; inside it is in
no file, argument or environment.`,
		Example: `  hutch git clone --branch main --depth 1 demo https://example.com/repo.git
  gh auth token | hutch git clone --username x --password-stdin demo https://github.com/me/private`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if req.URL = args[1]; len(args) == 3 {
				req.Dir = args[2]
			}
			req.Timeout = hutch.InSeconds(timeout)
			if req.Password, err = password(passwordStdin, std.in); err != nil {
				return err
			}
			if err := req.Check(); err != nil { // before a sandbox is created for the clone
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			if err := m.ensure(c.Context(), svc, hutch.CreateRequest{ID: args[0]}, std); err != nil {
				return err
			}
			repo, err := svc.GitClone(c.Context(), args[0], req)
			if err != nil {
				return err
			}
			return showRepository(std.out, repo, asJSON)
		},
	}
	f := c.Flags()
	f.StringVarP(&req.Branch, "branch", "b", "", "branch or tag to check out (default: the remote's)")
	f.IntVar(&req.Depth, "depth", 0, "number of commits (default: all)")
	f.StringVarP(&req.Username, "username", "u", "", "for https and http")
	f.BoolVar(&passwordStdin, "password-stdin", false, "read the password from the standard input")
	positiveDurationVar(f, &timeout, "timeout", "t", 0, "give up after this time (default 10m)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	m.flags(c)
	return c
}

// password reads the password from the standard input or the environment, because a process list shows arguments.
func password(fromStdin bool, stdin io.Reader) (string, error) {
	if !fromStdin {
		return os.Getenv("HUTCH_GIT_PASSWORD"), nil
	}
	const most = 64 << 10
	b, err := io.ReadAll(io.LimitReader(stdin, most))
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	word := strings.TrimRight(string(b), "\r\n")
	if word == "" {
		return "", usageError{errors.New("--password-stdin: the standard input is empty: pipe the password in")}
	}
	return word, nil
}

func showRepository(w io.Writer, r hutch.GitRepository, asJSON bool) error {
	if asJSON {
		return writeJSON(w, r)
	}
	_, err := fmt.Fprintln(w, plain(r.Dir), plain(describeState(r)))
	return err
}

// describeState describes the state of a repository.
func describeState(r hutch.GitRepository) string {
	branch, commit := r.Branch, "no commit yet"
	if branch == "" {
		branch = "(no branch)"
	}
	if r.Commit != "" {
		commit = r.Commit[:min(12, len(r.Commit))]
	}
	return branch + " " + commit
}

// plain makes text from a sandbox safe for the terminal.
func plain(s string) string {
	quoted := fmt.Sprintf("%q", s)
	if quoted == `"`+s+`"` {
		return s
	}
	return quoted
}

func newGitStatus(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "status SANDBOX [DIR]", Short: "Show the branch and the changed files", Args: cobra.RangeArgs(1, 2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			s, err := svc.GitStatus(ctx, args[0], argument(args, 1))
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, s)
			}
			return writeStatus(std.out, s)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func argument(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

func writeStatus(w io.Writer, s hutch.GitStatus) error {
	fmt.Fprint(w, plain(s.Dir), " ", plain(describeState(s.GitRepository)))
	if s.Upstream != "" {
		fmt.Fprintf(w, ", %d ahead of %s, %d behind", s.Ahead, plain(s.Upstream), s.Behind)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	for _, c := range s.Files {
		name := plain(c.Path)
		if c.From != "" {
			name = plain(c.From) + " -> " + name
		}
		fmt.Fprintf(t, "%s%s\t%s\n", c.Index, c.Tree, name)
	}
	return t.Flush()
}

func newGitDiff(h *home, std streams) *cobra.Command {
	var req hutch.GitDiffRequest
	c := &cobra.Command{
		Use: "diff [flags] SANDBOX [DIR] [-- PATH...]", Short: "Print a difference as git does",
		Example: `  hutch git diff demo repo
  hutch git diff --from main --to HEAD demo repo -- src`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if req.Dir, req.Paths, err = dirAndPaths(c, args); err != nil {
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			diff, err := svc.GitDiff(c.Context(), args[0], req)
			if err != nil {
				return err
			}
			_, err = io.WriteString(std.out, diff)
			return err
		},
	}
	c.Flags().StringVar(&req.From, "from", "", "a commit (default: the index)")
	c.Flags().StringVar(&req.To, "to", "", "a commit (default: the working tree)")
	c.Flags().BoolVar(&req.Staged, "staged", false, "what the next commit would hold")
	return c
}

// dirAndPaths reads SANDBOX [DIR] [-- PATH...].
func dirAndPaths(c *cobra.Command, args []string) (dir string, paths []string, err error) {
	dash := c.ArgsLenAtDash()
	if dash < 0 {
		dash = len(args)
	}
	if dash < 1 || dash > 2 {
		return "", nil, usageError{errors.New("give a sandbox and at most one folder, and paths behind --")}
	}
	return argument(args[:dash], 1), args[dash:], nil
}

func newGitCommit(h *home, std streams) *cobra.Command {
	var req hutch.GitCommitRequest
	var author string
	var asJSON bool
	c := &cobra.Command{
		Use: "commit [flags] SANDBOX [DIR] [-- PATH...]", Short: "Commit files, all changed ones if none are named",
		Example: `  hutch git commit -m 'fix the parser' --author 'Ada <ada@example.com>' demo repo`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if req.Dir, req.Paths, err = dirAndPaths(c, args); err != nil {
				return err
			}
			if req.Name, req.Email, err = splitAuthor(author); err != nil {
				return err
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			repo, err := svc.GitCommit(c.Context(), args[0], req)
			if err != nil {
				return err
			}
			return showRepository(std.out, repo, asJSON)
		},
	}
	c.Flags().StringVarP(&req.Message, "message", "m", "", "what the commit does and why")
	c.Flags().StringVar(&author, "author", "", "'NAME <EMAIL>' (default: git's settings inside)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func splitAuthor(s string) (name, email string, err error) {
	if s == "" {
		return "", "", nil
	}
	name, rest, ok := strings.Cut(s, "<")
	email, end, closed := strings.Cut(rest, ">")
	if !ok || !closed || end != "" || strings.TrimSpace(name) == "" {
		return "", "", usageError{fmt.Errorf("--author is %q: write 'NAME <EMAIL>'", s)}
	}
	return strings.TrimSpace(name), email, nil
}
