package conversation

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"hutch"
	"hutch/internal/httpio"
)

const (
	maxEvents    = 256  // most events of an owner, remembered for clients that reconnect
	maxOwners    = 1000 // most owners whose events are remembered: the owners with the latest events
	maxListeners = 256
	maxOfOwner   = 64               // listeners
	pulse        = 15 * time.Second // between signs of life
	writeTimeout = 30 * time.Second // for a client that does not read
)

// feed reports events to listeners. It remembers a few, so that a client that lost its connection gets the missed ones.
// A client that reads too slowly is disconnected, and can reconnect in the same way.
type feed struct {
	mu     sync.Mutex
	last   int64
	recent map[string][]event // by owner, the newest last
	wake   chan struct{}
	ended  bool
	count  int
	counts map[string]int // by owner
}

type event struct {
	id   int64
	kind string
	data []byte
}

func newFeed() *feed {
	return &feed{wake: make(chan struct{}), recent: map[string][]event{}, counts: map[string]int{}}
}

// started and finished are the data of events.
type started struct {
	ConversationID string    `json:"conversationId"`
	Language       string    `json:"language"`
	Time           time.Time `json:"time"`
}

type finished struct {
	started
	ExitCode      int         `json:"exitCode"`
	ExecutionTime int64       `json:"executionTime"` // ms
	TimedOut      bool        `json:"timedOut"`
	Files         []File      `json:"files"`
	Error         *hutch.Kind `json:"error,omitempty"` // when it could not run to its end
}

// run reports the beginning of a run and, when done is called, its end.
func (f *feed) run(at place, req Request) (done func(Result, error)) {
	language := req.Language[:min(len(req.Language), 40)]
	f.publish(at.owner, "run.started", started{at.conversation, language, time.Now().UTC()})
	return func(res Result, err error) {
		e := finished{
			started: started{at.conversation, language, time.Now().UTC()}, Files: res.Files,
			ExitCode: res.ExitCode, ExecutionTime: res.Duration.Milliseconds(), TimedOut: res.TimedOut,
		}
		if err != nil {
			kind := hutch.KindOf(err)
			e.Error = &kind
		}
		if e.Files == nil {
			e.Files = []File{}
		}
		e.Files = e.Files[:min(len(e.Files), MaxShown)]
		f.publish(at.owner, "run.finished", e)
	}
}

func (f *feed) publish(owner, kind string, data any) {
	text, _ := json.Marshal(data) // strings and numbers can always be encoded
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	list := append(f.recent[owner], event{f.last, kind, text})
	if len(list) > maxEvents {
		list = slices.Clone(list[len(list)-maxEvents:])
	}
	f.recent[owner] = list
	f.forgetLocked()
	close(f.wake)
	f.wake = make(chan struct{})
}

// forgetLocked drops the events of the owner that has been silent longest, if too many owners are remembered.
func (f *feed) forgetLocked() {
	if len(f.recent) <= maxOwners {
		return
	}
	oldest, last := "", f.last
	for owner, list := range f.recent {
		if id := list[len(list)-1].id; id < last {
			oldest, last = owner, id
		}
	}
	delete(f.recent, oldest)
}

// after returns an owner's events after an id, the newest id, and a channel that is closed when there are more.
func (f *feed) after(id int64, owner string) (list []event, last int64, more <-chan struct{}, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.recent[owner] {
		if e.id > id {
			list = append(list, e)
		}
	}
	return list, f.last, f.wake, f.ended
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	close(f.wake)
	f.wake = make(chan struct{})
}

// enter counts a listener of an owner, if one more is allowed.
func (f *feed) enter(owner string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.counts[owner]; n >= maxOfOwner {
		return hutch.Errorf(hutch.Exhausted, "%d clients of this token's owner listen already, which is the limit: close one", n).With("limit", "listeners")
	}
	if f.count >= maxListeners {
		return hutch.Errorf(hutch.Exhausted, "%d clients listen already, which is the server's limit: try again later", maxListeners).With("limit", "listeners")
	}
	f.count++
	f.counts[owner]++
	return nil
}

func (f *feed) exit(owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count--
	if f.counts[owner]--; f.counts[owner] == 0 {
		delete(f.counts, owner)
	}
}

// stream writes events to a client until it disconnects: from the first event after since or, if since is negative,
// from the next event.
func (f *feed) stream(w http.ResponseWriter, r *http.Request, since int64) {
	owner := ownerOf(r.Context())
	if since < 0 {
		_, since, _, _ = f.after(0, owner)
	}
	es := httpio.NewEvents(httpio.NewWriter(w, r, writeTimeout), pulse)
	defer es.Close()
	if es.Comment(" listening") != nil {
		return
	}
	for {
		list, last, more, ended := f.after(since, owner)
		since = last
		for _, e := range list {
			if es.Send(strconv.FormatInt(e.id, 10), e.kind, e.data) != nil {
				return
			}
		}
		switch {
		case len(list) > 0: // more may have arrived meanwhile
			continue
		case ended:
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// lastEvent returns the id of the last event that a client has received, or -1 without a valid one.
func lastEvent(r *http.Request) int64 {
	id, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil || id < 0 {
		return -1
	}
	return id
}
