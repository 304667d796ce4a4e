package installation

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"hutch"
	"hutch/internal/secret"
	"hutch/internal/store"
)

// In the archive, a database is between the manifest and the data folder. First are the rows of each table, as pieces of
// a limited size, because the size of a table is not known before it was read. Then comes the content, which has the
// numbers of rows. The manifest has the content without these numbers.
const (
	databaseFolder = "database/"
	databaseEntry  = "database.json"
	pieceSize      = 1 << 20
	mostContent    = 1 << 20 // bytes of the content
)

func pieceName(table string, number int) string {
	return fmt.Sprintf("%s%s/%d", databaseFolder, table, number)
}

// putDatabase writes a database to the archive, and completes its content. Then it releases the database, which the rest of the backup does
// not need.
func putDatabase(ctx context.Context, out *tar.Writer, from *store.Backup, content *store.Content) error {
	err := from.Copy(ctx, content, func(table string) io.WriteCloser {
		return &pieceWriter{out: out, table: table, piece: make([]byte, 0, pieceSize)}
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return errors.Join(put(out, databaseEntry, text), from.Release(ctx))
}

// pieceWriter writes the rows of a table as pieces.
type pieceWriter struct {
	out    *tar.Writer
	table  string
	number int
	piece  []byte
}

func (w *pieceWriter) Write(rows []byte) (n int, err error) {
	for len(rows) > 0 {
		part := min(len(rows), pieceSize-len(w.piece))
		w.piece = append(w.piece, rows[:part]...)
		rows, n = rows[part:], n+part
		if len(w.piece) == pieceSize {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (w *pieceWriter) flush() error {
	err := put(w.out, pieceName(w.table, w.number), w.piece)
	w.number++
	w.piece = w.piece[:0]
	return err
}

// Close writes the last piece.
func (w *pieceWriter) Close() error {
	if len(w.piece) == 0 {
		return nil
	}
	return w.flush()
}

// databaseRestore reads the database in a backup, and restores it if there is a database to restore it to.
type databaseRestore struct {
	key *secret.Key
	opt RestoreOptions
	to  *store.Restore // nil if no database is restored
}

func (d *databaseRestore) close() {
	if d.to != nil {
		d.to.Close()
	}
}

func (d *databaseRestore) commit(ctx context.Context) error {
	if d.to == nil {
		return nil
	}
	return d.to.Commit(ctx)
}

var errNoTarget = hutch.Errorf(hutch.Invalid, "the backup has a PostgreSQL database: give the URL of an empty one with --store or in HUTCH_STORE, or leave it out with --no-database")

var errHasNoDatabase = hutch.Errorf(hutch.Invalid, "the database of the server is not in this backup: restore the database from the backup that has it, or from a dump, and restore this one with --no-database")

// backupID returns an id for the backup with a manifest.
func backupID(manifest []byte) string {
	sum := sha256.Sum256(manifest)
	return hex.EncodeToString(sum[:16])
}

// filler receives the content of a database, table by table.
type filler interface {
	Prepare(context.Context, store.Content) error
	// Table reads the rows of a table, and returns their number.
	Table(ctx context.Context, name string, rows io.Reader) (int64, error)
	Complete(context.Context) error
}

// discard is a filler that keeps nothing: the content is only checked.
type discard struct{}

func (discard) Prepare(context.Context, store.Content) error { return nil }
func (discard) Complete(context.Context) error               { return nil }
func (discard) Table(_ context.Context, _ string, rows io.Reader) (int64, error) {
	counted := &store.RowCounter{}
	_, err := io.Copy(counted, rows)
	return counted.Rows, err
}

// open opens the database to restore to. If an interrupted restore has already filled that database, open returns a
// filler that keeps nothing.
func (d *databaseRestore) open(ctx context.Context, manifest []byte) (_ filler, err error) {
	if d.opt.WithoutDatabase {
		return discard{}, nil
	}
	if d.opt.Database == nil {
		return nil, errNoTarget
	}
	if d.to, err = d.opt.Database(ctx, d.key, backupID(manifest)); err != nil {
		return nil, err
	}
	if d.to.Done {
		return discard{}, nil
	}
	return d.to, nil
}

// read reads the database, which the manifest announces, and completes its content.
func (d *databaseRestore) read(ctx context.Context, in *tar.Reader, manifest []byte, content *store.Content) error {
	to, err := d.open(ctx, manifest)
	if err != nil {
		return err
	}
	if err := to.Prepare(ctx, *content); err != nil {
		return err
	}
	pieces := &pieceReader{in: in, ctx: ctx}
	if err := pieces.next(); err != nil {
		return err
	}
	read := *content
	read.Tables = slices.Clone(content.Tables)
	for i := range read.Tables {
		t := &read.Tables[i]
		counted := &store.RowCounter{}
		rows := &failingReader{in: io.TeeReader(pieces.table(t.Name), counted)}
		n, err := to.Table(ctx, t.Name, rows)
		if rows.err != nil { // why the database got no more rows
			err = rows.err
		}
		if err != nil {
			return err
		}
		if n != counted.Rows {
			return ErrDamaged
		}
		t.Rows, t.Bytes = counted.Rows, counted.Bytes
	}
	want, err := pieces.content()
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(want, read) {
		return ErrDamaged
	}
	*content = read
	return to.Complete(ctx)
}

// pieceReader reads the pieces of tables.
type pieceReader struct {
	ctx    context.Context
	in     *tar.Reader
	header *tar.Header // header of the entry that is read now
	name   string      // of the table
	number int
}

func (p *pieceReader) next() (err error) {
	if p.header, err = p.in.Next(); errors.Is(err, io.EOF) {
		err = ErrDamaged
	}
	return err
}

// table returns a reader of the rows of a table.
func (p *pieceReader) table(name string) io.Reader {
	p.name, p.number = name, 0
	return p
}

// Read implements io.Reader for the rows of one table.
func (p *pieceReader) Read(b []byte) (n int, err error) {
	for {
		if p.ctx.Err() != nil {
			return 0, context.Cause(p.ctx)
		}
		if p.header.Name != pieceName(p.name, p.number) {
			return 0, io.EOF
		}
		if p.header.Typeflag != tar.TypeReg || p.header.Size > pieceSize || p.header.Size == 0 {
			return 0, ErrDamaged
		}
		if n, err = p.in.Read(b); n > 0 || err != nil && !errors.Is(err, io.EOF) {
			return n, ignoreEOF(err)
		}
		if err == nil {
			continue
		}
		if err := p.next(); err != nil {
			return 0, err
		}
		p.number++
	}
}

// failingReader keeps the error of a reader, because the database reports only the text of that error.
type failingReader struct {
	in  io.Reader
	err error // nil at the end
}

func (r *failingReader) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil // of the piece
	}
	return err
}

// content reads the content after the last table.
func (p *pieceReader) content() (c store.Content, err error) {
	if p.header.Name != databaseEntry || p.header.Typeflag != tar.TypeReg || p.header.Size > mostContent {
		return c, ErrDamaged
	}
	text, err := io.ReadAll(p.in)
	if err != nil {
		return c, err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if in.Decode(&c) != nil {
		return c, ErrDamaged
	}
	return c, nil
}
