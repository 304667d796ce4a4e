package sftpfs

import "github.com/pkg/sftp"

// both reads and writes a file. A read sees all earlier writes.
type both struct {
	*reader
	*writer
}

// OpenFile implements sftp.OpenFileWriter.
func (s *server) OpenFile(r *sftp.Request) (sftp.WriterAtReaderAt, error) {
	w, err := s.openWriter(r)
	if err != nil {
		return nil, err
	}
	rd, err := s.newReader(w.path)
	if err != nil {
		w.Close()
		return nil, err
	}
	return &both{rd, w}, nil
}

// ReadAt implements io.ReaderAt.
func (b *both) ReadAt(to []byte, offset int64) (int, error) {
	b.writer.mu.Lock()
	wrote := b.writer.stream != nil || len(b.writer.early) > 0
	if wrote && b.writer.err == nil {
		b.writer.err = b.writer.flush()
	}
	b.writer.mu.Unlock()
	if wrote {
		b.reader.forget()
	}
	return b.reader.ReadAt(to, offset)
}

// Close implements io.Closer.
func (b *both) Close() error {
	b.reader.Close()
	return b.writer.Close()
}
