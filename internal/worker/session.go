package worker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/tools/agenttoolset"

	"hutch"
	"hutch/internal/files"
)

const (
	// workDir is the folder that relative paths of an agent are in.
	workDir = "/workspace"
	// OutputsDir is where agents leave files for people.
	OutputsDir = "/mnt/session/outputs"

	// sessionLabel and environmentLabel are labels of the sandboxes of sessions.
	sessionLabel     = "claude.session"
	environmentLabel = "claude.environment"

	shell = "claude" // the code context of the tool bash
)

// sleepAfter is how long the sandbox of a session waits for the next call before it hibernates, in seconds. It wakes
// in a fraction of a second.
const sleepAfter = 30

// session is a session while this worker has its lease.
type session struct {
	*worker
	id        string // the API's id
	sandbox   string
	downloads string // a folder of this machine for the SDK's downloads: the skills of the agent

	mu      sync.Mutex
	ready   bool   // the sandbox exists, and has the skills
	outputs string // the outputs folder in the sandbox

	// withheld says that the newest call was not run to its end, so its result must not be posted. Calls run one after
	// the other, and each posts its result before the next one begins.
	withheld atomic.Bool
}

func (w *worker) newSession(id string) (*session, error) {
	downloads, err := os.MkdirTemp("", "hutch-worker-")
	if err != nil {
		return nil, err
	}
	return &session{worker: w, id: id, sandbox: SandboxID(w.Environment, id), downloads: downloads}, nil
}

func (s *session) end() { os.RemoveAll(s.downloads) }

// SandboxID returns the id of the sandbox of a session. The id is a hash, because ids of sessions can differ only in
// upper and lower case, and ids of sandboxes cannot.
func SandboxID(environment, session string) string {
	sum := sha256.Sum256([]byte(environment + "\x00" + session))
	return "claude-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15]))
}

// prepare creates the sandbox of the session when it is missing. It is called with every call of a tool, so a session
// whose agent uses no tool has no sandbox, and a failure is reported to the agent, which can try again.
func (s *session) prepare(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready {
		return nil
	}
	req := s.Sandbox
	req.ID = s.sandbox
	req.Labels = maps.Clone(req.Labels)
	if req.Labels == nil {
		req.Labels = map[string]string{}
	}
	req.Labels[sessionLabel], req.Labels[environmentLabel] = s.id, s.Environment
	if req.SleepAfter == 0 {
		req.SleepAfter = sleepAfter
	}
	if _, err := s.svc.Create(ctx, req); err != nil {
		return err
	}
	if err := s.makeOutputs(ctx); err != nil {
		return err
	}
	if err := s.copySkills(ctx); err != nil {
		return err
	}
	s.ready = true
	return nil
}

var outputsDirs = []string{OutputsDir, workDir + "/outputs"}

// makeOutputs makes the outputs folder. The user of the image "host" cannot write to /mnt: there it is below the working
// folder.
func (s *session) makeOutputs(ctx context.Context) (err error) {
	for _, dir := range outputsDirs {
		if err = s.svc.Mkdir(ctx, s.sandbox, dir, true); hutch.KindOf(err) != hutch.Denied || err == nil {
			s.outputs = dir
			return err
		}
	}
	return err
}

// forget makes the next call prepare the sandbox again: it can have been destroyed meanwhile.
func (s *session) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = false
}

// copySkills copies the SDK's downloads into the working folder.
func (s *session) copySkills(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(s.downloads, "skills")); err != nil {
		return nil
	}
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		archive := tar.NewWriter(w)
		w.CloseWithError(errors.Join(archive.AddFS(os.DirFS(s.downloads)), archive.Close()))
	}()
	return s.svc.Unpack(ctx, s.sandbox, hutch.UnpackRequest{Dir: workDir, Format: hutch.Tar}, r)
}

// findOutputs finds the outputs folder of a sandbox that an earlier worker made. It returns "" if there is none.
func (s *session) findOutputs(ctx context.Context) (string, error) {
	for _, dir := range outputsDirs {
		if _, err := s.svc.Stat(ctx, s.sandbox, dir); hutch.KindOf(err) != hutch.NotFound || err == nil {
			return dir, err
		}
	}
	return "", nil
}

// maxOutputs is the most bytes that a session can put on this machine's disk. A sparse file can be much longer than its
// size on the sandbox's disk.
var maxOutputs int64 = 4 << 30

// collect copies the files of the outputs folder to a folder of the session below dir. It needs to be done if this worker
// has used the sandbox, or if the session is over.
func (s *session) collect(ctx context.Context, dir string, over bool) (err error) {
	s.mu.Lock()
	ready, outputs := s.ready, s.outputs
	s.mu.Unlock()
	if dir == "" || !ready && !over {
		return nil
	}
	if !ready {
		if outputs, err = s.findOutputs(ctx); err != nil || outputs == "" {
			return err
		}
	}
	target, err := filepath.Abs(filepath.Join(dir, s.sandbox))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		w.CloseWithError(s.svc.Pack(ctx, s.sandbox, hutch.PackRequest{Dir: outputs, Format: hutch.Tar}, w))
	}()
	// The archive comes from a sandbox: package files refuses entries outside of the folder, and leaves out links that
	// point outside.
	return (&files.FS{Dir: target, Most: maxOutputs}).Unpack(ctx, "", hutch.UnpackRequest{Dir: target, Format: hutch.Tar}, r)
}

// hibernate puts the sandbox to sleep until the next turn. A worker that returned the session leaves that to the next
// worker.
func (s *session) hibernate(ctx context.Context, log *slog.Logger) {
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	if !ready || s.withheld.Load() {
		return
	}
	if _, err := s.svc.Hibernate(ctx, s.sandbox, hutch.HibernateRequest{}); err != nil {
		log.Debug("the sandbox does not sleep yet", "sandbox", s.sandbox, "err", err) // it will sleep after SleepAfter
	}
}

// tools returns the tools of a session: those of agent_toolset_20260401.
func (s *session) tools(*agenttoolset.AgentToolContext) []anthropic.BetaTool {
	return []anthropic.BetaTool{
		newTool(s, "bash", "Run a command in a shell that keeps its state.", runBash),
		newTool(s, "read", "Read a text file.", runRead),
		newTool(s, "write", "Write a text file.", runWrite),
		newTool(s, "edit", "Replace text in a file.", runEdit),
		newTool(s, "glob", "Find files by a pattern.", runGlob),
		newTool(s, "grep", "Find lines by a regular expression.", runGrep),
	}
}

// withhold answers the request that posts a result, instead of the API, when the call was not run to its end: the API
// keeps the call open then, and gives it to the next worker. The SDK treats the answer as final.
func (s *session) withhold(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/events") || !s.withheld.Load() {
		return next(req)
	}
	return refusal(req, http.StatusConflict, "conflict_error", "the session was handed back"), nil
}

// refusal returns an error response of the API, which this worker makes itself. The SDK does not repeat the request.
func refusal(req *http.Request, status int, kind, message string) *http.Response {
	body := fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q}}`, kind, message)
	return &http.Response{
		Status: fmt.Sprint(status, " ", http.StatusText(status)), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}, "X-Should-Retry": {"false"}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}
