// Package conversation runs code for chats: each conversation has its own files, which every run in it finds under
// /data and which people download by signed links.
//
// A conversation is a folder on the host; its sandbox is only where runs happen. A new sandbox gets the files, and
// before a run is answered, its changed files are copied to the folder. So a sandbox can be destroyed at any time
// (after five idle minutes, or when others need the space), a download wakes nothing, and a backup needs only the
// folder.
//
// The output of a sandbox is hostile: names, links and sizes. All files are read and written through an [os.Root] of
// their own conversation.
package conversation

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/ctxlock"
)

// The limits of a run, as existing deployments expect them.
const (
	runTime   = 30 * time.Second
	idleTime  = 5 * time.Minute
	keepTime  = time.Minute // for copying a run's files
	maxOutput = 64 << 10    // bytes of each of stdout and stderr
)

var limits = hutch.Limits{CPU: 0.5, Memory: 256}

// Options configure a server. Folder and Secret are required.
type Options struct {
	// Folder has a folder for each conversation, whose files are in its folder
	// "files": FOLDER/CONVERSATION/files.
	Folder string
	// Own says that only Hutch can have created Folder.
	Own bool
	// Secret signs links.
	Secret []byte
	// BaseURL is where people reach the server, such as
	// "https://code.example.com".
	BaseURL string
	// LinkLife is how long a link is valid; 0 is for ever.
	LinkLife time.Duration
	// Most is the highest number of an owner's conversations, and Room how many bytes they can keep together; 0 means
	// no limit.
	Most int
	Room int64
	// API is the path of the page about the server's API, to which the page at /
	// links; empty when the server has none.
	API string
	// Images has the images of runners; nil means none.
	Images Store
	Log    *slog.Logger
}

// Store lists the images of the owner in the context, and the shared ones.
type Store interface {
	Images(context.Context) ([]hutch.Image, error)
}

// Server keeps conversations. Its zero value is not usable: call [New].
type Server struct {
	svc    hutch.Service
	log    *slog.Logger
	root   *os.Root
	links  links
	api    string // the path of the page about it
	events *feed
	most   int
	room   int64

	accounts accounts

	turns     ctxlock.Locks // by sandbox
	began     time.Time     // a sandbox that is older was made by another process
	store     Store
	languages languages
}

// New returns a server of the conversations in a folder, which it creates if missing. Close ends it.
func New(svc hutch.Service, opt Options) (*Server, error) {
	if len(opt.Secret) == 0 {
		return nil, hutch.Errorf(hutch.Invalid, "there is no secret to sign links with: give one")
	}
	if err := os.MkdirAll(opt.Folder, 0o700); err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the folder of conversations cannot be made: %v; correct its permissions, or choose another data folder", err)
	}
	if err := upgrade(opt.Folder, opt.Own); err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the folder of conversations cannot be brought to today's layout, in which the files of each are in CONVERSATION/files: %v", err)
	}
	root, err := os.OpenRoot(opt.Folder)
	if err != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "the folder of conversations cannot be opened: %v; correct its permissions, or choose another data folder", err)
	}
	s := &Server{
		svc: svc, log: opt.Log, root: root, events: newFeed(), began: time.Now(),
		most: opt.Most, room: opt.Room, store: opt.Images,
		api:   opt.API,
		links: links{secret: opt.Secret, base: strings.TrimSuffix(opt.BaseURL, "/"), life: opt.LinkLife},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// Close ends the event streams. It does not end runs; their callers do.
func (s *Server) Close() error {
	s.events.close()
	return s.root.Close()
}

// Request asks for a run.
type Request struct {
	ConversationID string
	Language       string
	Code           string
}

// Result is how a run ended, and the files that it made or changed.
type Result struct {
	hutch.ExecResult
	Files []File
}

// File is a file of a conversation that can be downloaded.
type File struct {
	Name string `json:"name" jsonschema:"below /data"`
	Size int64  `json:"size"`
	URL  string `json:"url" jsonschema:"where to download it"`
}

// Run runs code in a conversation, which it creates if missing. Runs of one conversation wait for each other. Output
// goes to out as it is printed. Files are kept even if the run fails, reaches its time limit or is cancelled; the
// result that comes with the error then has the known part.
func (s *Server) Run(ctx context.Context, req Request, out func(hutch.Output) error) (res Result, err error) {
	at, err := locate(ctx, req.ConversationID)
	if err != nil {
		return Result{}, err
	}
	if err := s.turns.Take(ctx, at.sandbox()); err != nil {
		return Result{}, err
	}
	defer s.turns.Put(at.sandbox())
	if err := s.admit(at); err != nil {
		return Result{}, err
	}
	done := s.events.run(at, req)
	defer func() { done(res, err) }()
	with, err := s.runnerFor(ctx, req.Language)
	if err != nil {
		return Result{}, err
	}
	box, err := s.enter(ctx, at, with)
	if err != nil {
		return Result{}, err
	}
	res.ExecResult, err = s.svc.Exec(ctx, box, with.exec(req), out)
	keep, cancel := context.WithTimeout(caller.Unmetered(context.WithoutCancel(ctx)), keepTime)
	defer cancel()
	var kept error
	res.Files, kept = s.keep(keep, at, box)
	if err == nil && res.Limit != "memory" { // otherwise the reason why files were not kept is known already
		err = kept
	}
	return res, err
}

// place identifies a conversation.
type place struct {
	conversation, owner string
}

// names matches the names that conversations can have: no path separator, no leading dot, and no tilde, which
// separates owners.
var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@+=-]{0,127}$`)

func locate(ctx context.Context, conversation string) (place, error) {
	if !names.MatchString(conversation) {
		return place{}, hutch.Errorf(hutch.Invalid,
			"the conversation %.150q cannot be: use 1 to 128 of letters, digits and . _ : @ + = -, a letter or digit first", conversation).Naming(hutch.AboutField, "conversationId")
	}
	return place{conversation, ownerOf(ctx)}, nil
}

// ownerOf returns the owner of a call's conversations: the owner of its principal, as in the wrapped service.
func ownerOf(ctx context.Context) string {
	if who := caller.From(ctx).Principal; who != nil {
		return who.Owner
	}
	owner, _ := caller.OwnerOf(ctx)
	return owner.ID
}

// folder returns the name of the conversation's folder, also in links.
func (p place) folder() string {
	if p.owner == "" {
		return p.conversation
	}
	return p.conversation + "~" + p.mark()
}

// mark represents the owner in names of folders; empty for the server itself.
func (p place) mark() string {
	if p.owner == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(p.owner))
	return hex.EncodeToString(sum[:8])
}

// sandbox returns the id of the conversation's sandbox.
func (p place) sandbox() string {
	sum := sha256.Sum256([]byte(p.folder()))
	return "conversation-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:15]))
}

const (
	labelConversation = "conversation"
	labelMaker        = "conversation-run"   // the run that the sandbox was made for
	labelImage        = "conversation-image" // the runner's image; empty for the host's programs
)

// enter returns a sandbox that has the files of a conversation and the programs of a runner. A conversation has one
// sandbox: a run with another runner destroys it. The caller holds the conversation's lock.
func (s *Server) enter(ctx context.Context, at place, with runner) (string, error) {
	maker := hutch.NewID("run")
	req := hutch.CreateRequest{
		ID: at.sandbox(), Limits: limits, SleepAfter: hutch.InSeconds(idleTime), OnIdle: hutch.IdleDestroy,
		Labels: map[string]string{labelConversation: at.folder(), labelMaker: maker, labelImage: with.ID}, Image: with.ID,
	}
	if with.ID != "" {
		req.User = "+1000" // even if the image says root, or has a user with the name 1000
	}
	for {
		sb, err := s.svc.Create(ctx, req)
		switch {
		case errors.Is(err, hutch.Exhausted) && s.makeRoom(ctx):
			continue
		case err != nil:
			return "", err
		case sb.Labels[labelMaker] == maker:
			return sb.ID, s.copyFilesIn(ctx, at, sb.ID)
		case (sb.Status == hutch.Running || sb.Status == hutch.Paused) && sb.CreatedAt.After(s.began) && sb.Labels[labelImage] == with.ID:
			return sb.ID, nil
		}
		// The sandbox's creation failed, or another process created it and its content is unknown, or it has other
		// programs.
		if _, err := s.svc.Destroy(ctx, sb.ID, true); err != nil {
			return "", err
		}
	}
}

// copyFilesIn copies the files into a new sandbox, and destroys the sandbox if that fails.
func (s *Server) copyFilesIn(ctx context.Context, at place, box string) error {
	err := s.bring(ctx, at, box)
	if err != nil {
		s.discard(ctx, box)
	}
	return err
}

func (s *Server) discard(ctx context.Context, box string) {
	ctx, cancel := context.WithTimeout(caller.Unmetered(context.WithoutCancel(ctx)), keepTime)
	defer cancel()
	if _, err := s.svc.Destroy(ctx, box, true); err != nil {
		s.log.Warn("destroy the sandbox of a conversation", "sandbox", box, "err", err)
	}
}

// makeRoom destroys the sandbox of the conversation that has been idle longest, and reports whether there was one.
func (s *Server) makeRoom(ctx context.Context) bool {
	all, err := s.svc.Sandboxes(ctx, hutch.Filter{})
	if err != nil {
		return false
	}
	slices.SortFunc(all, func(a, b hutch.Sandbox) int { return a.LastUsedAt.Compare(b.LastUsedAt) })
	for _, sb := range all {
		if sb.Labels[labelConversation] == "" || !s.turns.Try(sb.ID) {
			continue
		}
		_, err := s.svc.Destroy(ctx, sb.ID, true)
		s.turns.Put(sb.ID)
		if err == nil {
			return true
		}
	}
	return false
}
