package ask

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"hutch"
)

// bounded is a map that drops its least recently used entry when it has too many entries or bytes.
type bounded[K comparable, V any] struct {
	maxEntries, maxBytes int

	mu    sync.Mutex
	bytes int
	byKey map[K]*list.Element
	used  *list.List // of *entry, most recently used first
}

type entry[K comparable, V any] struct {
	key   K
	value V
	size  int
}

func newBounded[K comparable, V any](maxEntries, maxBytes int) *bounded[K, V] {
	return &bounded[K, V]{maxEntries: maxEntries, maxBytes: maxBytes, byKey: map[K]*list.Element{}, used: list.New()}
}

func (b *bounded[K, V]) get(k K) (v V, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.byKey[k]
	if e == nil {
		return v, false
	}
	b.used.MoveToFront(e)
	return e.Value.(*entry[K, V]).value, true
}

// change replaces the value of k with the result of do.
func (b *bounded[K, V]) change(k K, do func(V) (V, int)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var old V
	if e := b.byKey[k]; e != nil {
		old = e.Value.(*entry[K, V]).value
		b.dropLocked(e)
	}
	v, size := do(old)
	if size > b.maxBytes {
		return
	}
	b.byKey[k] = b.used.PushFront(&entry[K, V]{k, v, size})
	b.bytes += size
	for len(b.byKey) > b.maxEntries || b.bytes > b.maxBytes {
		b.dropLocked(b.used.Back())
	}
}

func (b *bounded[K, V]) drop(k K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.byKey[k]; e != nil {
		b.dropLocked(e)
	}
}

func (b *bounded[K, V]) dropLocked(e *list.Element) {
	old := b.used.Remove(e).(*entry[K, V])
	delete(b.byKey, old.key)
	b.bytes -= old.size
}

// key is the hash of everything that a program depends on. Owners share no programs.
type key [sha256.Size]byte

func keyOf(owner string, q hutch.Question, p Prompt) key {
	parts := []any{owner, q.Language, p}
	for _, f := range q.Files {
		parts = append(parts, f.Path, sha256.Sum256(f.Content))
	}
	b, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings, numbers and bytes
	}
	return sha256.Sum256(b)
}

// Limits of the data in memory.
const (
	maxPrograms     = 1000
	maxProgramBytes = 16 << 20
	maxTalks        = 1000
	maxTalkBytes    = 16 << 20
)

// programs are the model's answers to earlier questions.
type programs struct {
	age  time.Duration
	kept *bounded[key, kept]
}

type kept struct {
	answer string
	since  time.Time
}

func newPrograms(age time.Duration) *programs {
	return &programs{age, newBounded[key, kept](maxPrograms, maxProgramBytes)}
}

func (p *programs) get(k key) (answer string, ok bool) {
	v, ok := p.kept.get(k)
	return v.answer, ok && time.Since(v.since) < p.age
}

func (p *programs) put(k key, answer string, cacheable bool) {
	if p.age <= 0 || !cacheable {
		return
	}
	p.kept.change(k, func(old kept) (kept, int) {
		if old.answer == answer && time.Since(old.since) < p.age {
			return old, len(answer) // using an entry does not make it younger
		}
		return kept{answer, time.Now()}, len(answer)
	})
}

func (p *programs) drop(k key) { p.kept.drop(k) }

// turn is one question of a conversation, and its answer.
type turn struct{ question, answer, output string }

func (t turn) size() int { return len(t.question) + len(t.answer) + len(t.output) }

// Limits of one conversation: its newest turns are kept.
const (
	maxTurns      = 10
	maxTurnText   = 16 << 10 // bytes of a question, and of a program
	maxTurnOutput = 2 << 10
)

// dialog identifies a conversation in one sandbox: after the sandbox is destroyed, the next question begins a new
// dialog.
type dialog struct {
	owner, sandbox string
	created        int64 // ns
}

// histories are the newest turns of conversations. They are in memory only; the files of a conversation are in its
// sandbox.
type histories struct{ kept *bounded[dialog, []turn] }

func newHistories() *histories {
	return &histories{newBounded[dialog, []turn](maxTalks, maxTalkBytes)}
}

func (h *histories) get(owner string, sb hutch.Sandbox) []turn {
	list, _ := h.kept.get(talkIn(owner, sb))
	return list
}

func talkIn(owner string, sb hutch.Sandbox) dialog {
	return dialog{owner, sb.ID, sb.CreatedAt.UnixNano()}
}

func (h *histories) add(owner string, sb hutch.Sandbox, t turn) {
	t = turn{tail(t.question, maxTurnText), tail(t.answer, maxTurnText), tail(t.output, maxTurnOutput)}
	h.kept.change(talkIn(owner, sb), func(old []turn) ([]turn, int) {
		list := append(append([]turn(nil), old[max(0, len(old)-maxTurns+1):]...), t) // readers can still have the old list
		size := 0
		for _, t := range list {
			size += t.size()
		}
		return list, size
	})
}
