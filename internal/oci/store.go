package oci

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"hutch"
	"hutch/internal/ctxlock"
	"hutch/internal/durable"
	"hutch/internal/fairqueue"
	"hutch/internal/oci/registry"
)

// Options are what a store is opened with. The zero value has the default limits, reaches every public registry, and
// no private address.
type Options struct {
	Limits Limits
	// Registries are settings by the name of a registry, such as docker.io or registry.example:5000.
	Registries map[string]Registry
	// Proxy makes the connections to registries that have public addresses; nil for none.
	Proxy *url.URL
	// Allowed are the registries that images can be pulled from and pushed to; empty allows all.
	Allowed []string
	// IdleTimeout is how long a registry can send nothing before the store gives up; 0 is 30 seconds.
	IdleTimeout time.Duration
	Log         *slog.Logger // nil discards
}

// Registry is how one registry is reached.
type Registry = registry.Settings

// Limits bound the resources that an image can make the server use. A zero field means its default.
type Limits struct {
	Bytes    int64 // unpacked files of one image; 32 GiB
	Entries  int   // files, folders and links of one image, about 2 KB of memory each while its root is made; 300,000
	Layers   int   // layers of one image; 256
	Blob     int64 // one layer as it is received; 16 GiB
	Ratio    int64 // unpacked bytes for each received byte of a layer, beyond the first 64 MiB; 200
	Document int64 // bytes of a manifest or a configuration; 4 MiB
	Depth    int   // indexes within indexes; 3
	Path     int   // bytes of a path in an image; 4,095
	Config   int   // bytes of an image's configuration, which is kept in memory; 512 KiB
	Images   int   // images of one owner; 1,000
	Room     int64 // bytes of disk of one owner's images; 20 GiB
}

func (l Limits) withDefaults() Limits {
	l.Bytes = cmp.Or(l.Bytes, 32<<30)
	l.Entries = cmp.Or(l.Entries, 300_000)
	l.Layers = cmp.Or(l.Layers, 256)
	l.Blob = cmp.Or(l.Blob, 16<<30)
	l.Ratio = cmp.Or(l.Ratio, 200)
	l.Document = cmp.Or(l.Document, 4<<20)
	l.Depth = cmp.Or(l.Depth, 3)
	l.Path = cmp.Or(l.Path, 4095)
	l.Config = cmp.Or(l.Config, 512<<10)
	l.Images = cmp.Or(l.Images, 1000)
	l.Room = cmp.Or(l.Room, 20<<30)
	return l
}

// If making a root takes longer than slowRoot, a root of another owner can be made at the same time.
const slowRoot = 30 * time.Second

// Store is the images of a server. All methods can be called at once. Errors are [hutch.Error]s: NotFound for an image
// that the owner cannot see, Exhausted for a limit or a full disk, Denied for a registry that is not allowed,
// Unavailable for a registry that does not answer.
type Store struct {
	dir string
	o   Options
	log *slog.Logger

	ctx    context.Context // of transfers; ends with Close
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	receiving ctxlock.Locks    // by name of a file in partial
	building  ctxlock.Locks    // by name of a root
	loading   ctxlock.Locks    // by owner, because it is not known in advance how much arrives
	builder   *fairqueue.Queue // limits how many roots are made at once: their names are in memory

	mu       sync.Mutex
	records  map[key]*record
	uses     map[key]int
	reserved map[string]int64 // bytes of running pulls, by owner
	pinned   map[string]int   // files below blobs and roots that are needed although no record names them yet
	flights  map[flightKey]*flight
}

// Open opens the store in a folder, which is created if it is missing. Only one process at a time can have it open; the
// caller must ensure that. Temporary files of an earlier process are removed.
func Open(dir string, o Options) (*Store, error) {
	o.Limits = o.Limits.withDefaults()
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 30*time.Second)
	s := &Store{dir: dir, o: o, log: o.Log, builder: fairqueue.New(1, 2, slowRoot),
		records: map[key]*record{}, uses: map[key]int{}, reserved: map[string]int64{}, pinned: map[string]int{}, flights: map[flightKey]*flight{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.sweep(); err != nil {
		return nil, s.explained(err)
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s, nil
}

// Close ends all pulls and waits for them.
func (s *Store) Close() error {
	s.cancel(hutch.Errorf(hutch.Unavailable, "the server stops: pull the image again when it runs"))
	s.work.Wait()
	return nil
}

// explained does the same as Explained.
func (s *Store) explained(err error) error { return durable.Explained(err, s.dir) }
