package installation

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"hutch"
	"hutch/internal/secret"
	"hutch/internal/store"
	"hutch/internal/travel"
)

const (
	magic      = "hutch installation backup "
	purpose    = "installation backup" // of the derived key
	mostHeader = 4 << 10               // bytes

	manifestEntry = "manifest.json"
	dataFolder    = "data/" // in the archive
)

// The formats of a backup: without a database, which older versions can restore, and with one.
const (
	formatFolder   = 1
	formatDatabase = 2
)

// header is the part of a backup that can be read without the key.
type header struct {
	Created time.Time `json:"created"`
	// Key identifies the secret key, and reveals nothing about it.
	Key string `json:"key"`
	// Secret is the secret key, if the backup was made with it.
	Secret string `json:"secret,omitempty"`
}

// Manifest says what is in a backup.
type Manifest struct {
	Created time.Time `json:"created"`
	Version string    `json:"version"` // of Hutch
	Data    string    `json:"data"`    // the data folder that was backed up
	// Node is the name of the server in its PostgreSQL database; "" for a server with a store of its own.
	Node string `json:"node,omitempty"`
	// Database lists the content of that database in the backup; nil if the backup is without it.
	Database *store.Content `json:"database,omitempty"`
	// Asleep counts the sandboxes in the backup that slept. Copied counts the sandboxes that were awake and were
	// copied. Awake are the ids of awake sandboxes of which the backup has only the record.
	Asleep int      `json:"asleep"`
	Copied int      `json:"copied"`
	Awake  []string `json:"awake"`
	// Changing names what was left out because it changed whenever it was read: sandboxes, of which the backup has only the
	// record, and paths in the data folder.
	Changing []string `json:"changing,omitempty"`
	Files    int      `json:"files"`
	Bytes    int64    `json:"bytes"` // of the files
	// Skipped are files that are neither folders nor regular files.
	Skipped []string `json:"skipped,omitempty"`
	// WithKey is true if the backup contains its own key.
	WithKey bool `json:"withKey"`
}

// nameOf returns a name for a key, which reveals nothing about the key.
func nameOf(key *secret.Key) string {
	sum := sha256.Sum256(key.Derive(purpose + " name"))
	return hex.EncodeToString(sum[:8])
}

// seal writes a backup. fill writes its archive.
func seal(w io.Writer, format int, h header, key *secret.Key, fill func(io.Writer) error) error {
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err := fmt.Fprintf(w, "%s%d\n%s", magic, format, line); err != nil {
		return err
	}
	return travel.Seal(w, key.Derive(purpose), string(line), fill)
}

// ErrDamaged is the error for a backup that was cut off or changed.
var ErrDamaged = hutch.Errorf(hutch.Invalid, "the backup is damaged: it was cut off or changed, so nothing of it was restored; use another copy of it")

var errForeign = hutch.Errorf(hutch.Invalid, "the file is not a backup of an installation: give one that `hutch installation backup` has written")

var errNoKey = hutch.Errorf(hutch.Invalid, "the backup does not have its key: give the installation's secret key with --secret-key FILE or in HUTCH_SECRET_KEY; it is server/secrets.key in the data folder that the backup was made of")

// errNoKeyToVerify replaces errNoKey in Verify, which also tries the key of a data folder.
var errNoKeyToVerify = hutch.Errorf(hutch.Invalid, "the backup does not have its key: give the installation's secret key with --secret-key FILE or in HUTCH_SECRET_KEY, or the data folder that the backup was made of with --data FOLDER")

// sealedBackup is a backup whose header was read. It is encrypted with key.
type sealedBackup struct {
	in   *bufio.Reader
	line string // the text of the header
	key  *secret.Key
}

// open reads the header of a backup. key is nil for the key in the backup.
func open(r io.Reader, key *secret.Key) (*sealedBackup, error) {
	in := bufio.NewReader(r)
	h, line, err := readHeader(in)
	if err != nil {
		return nil, err
	}
	if key == nil && h.Secret == "" {
		return nil, errNoKey
	}
	if key == nil {
		if key, err = secret.ParseKey(h.Secret); err != nil {
			return nil, ErrDamaged
		}
	}
	if nameOf(key) != h.Key {
		return nil, hutch.Errorf(hutch.Denied, "the backup belongs to another key: give the secret key of the installation that it was made of, with --secret-key FILE or in HUTCH_SECRET_KEY")
	}
	return &sealedBackup{in, line, key}, nil
}

func readHeader(in *bufio.Reader) (h header, line string, err error) {
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(in, start); err != nil || string(start) != magic {
		return h, "", errForeign
	}
	number, err := in.ReadSlice('\n')
	format, wrong := strconv.ParseUint(strings.TrimSuffix(string(number), "\n"), 10, 16)
	if err != nil || wrong != nil || format < formatFolder {
		return h, "", errForeign
	}
	if format > formatDatabase {
		return h, "", hutch.Errorf(hutch.Unsupported, "the backup was written by a newer hutch (format %d, this one knows %d): use that version or a newer one", format, formatDatabase)
	}
	text, err := in.ReadSlice('\n')
	if err != nil || len(text) > mostHeader || json.Unmarshal(text, &h) != nil {
		return h, "", ErrDamaged
	}
	return h, string(text), nil
}

// read passes the archive of the backup to do.
func (b *sealedBackup) read(do func(io.Reader) error) error {
	err := travel.Unseal(b.in, b.key.Derive(purpose), b.line, do)
	if errors.Is(err, travel.ErrForged) {
		return ErrDamaged
	}
	return err
}
