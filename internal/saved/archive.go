package saved

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"

	"hutch"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// An archive is made by tar inside a sandbox, and unpacked only by tar inside a sandbox. To the daemon it is a stream
// of bytes, which package compare can read. An image from a registry may lack tar; then the agent program does the work
// of tar.

// records makes tar read and write an archive in blocks of 128 KiB. With its default of 10 KiB, packing costs a sandbox
// more time than the content.
const records = "--blocking-factor=256"

// agentProgram is the agent's own program: with the runtime native it has no other path.
const agentProgram = "/proc/self/exe"

// packTime bounds packing and unpacking, in ms.
const packTime = 10 * 60 * 1000

// Most returns how large the archive of a sandbox with these limits can be.
func Most(l hutch.Limits) int64 { return int64(l.Disk)<<20*5/4 + 64<<20 }

// Pack writes the files of a sandbox to w. The agent reads them.
func Pack(ctx context.Context, agent *wire.Client, imageName string, w io.Writer) error {
	return tar(ctx, agent, packer(imageName), nil, func(o hutch.Output) error {
		if o.Stream != hutch.Stdout {
			return nil
		}
		_, err := w.Write(o.Data)
		return err
	})
}

// packer returns the command that packs the files of a sandbox with an image.
func packer(imageName string) []string {
	if imageName != image.HostName {
		return append([]string{agentProgram, "pack"}, image.Writable...)
	}
	argv := []string{"tar", "--create", "--sparse", records, "--file=-", "--directory=/", "--warning=no-all", "--ignore-failed-read"}
	for _, dir := range image.Writable {
		argv = append(argv, dir[1:])
	}
	return argv
}

// unpacker returns the command that reads the output of packer's command.
func unpacker(imageName string) []string {
	if imageName != image.HostName {
		return []string{agentProgram, "unpack"}
	}
	return []string{"tar", "--extract", records, "--file=-", "--directory=/", "--warning=no-all", "--preserve-permissions"}
}

// Unpack puts the files of an archive into a new sandbox.
func Unpack(ctx context.Context, agent *wire.Client, imageName, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("restore files: %w", err)
	}
	defer f.Close()
	z, err := expander(f)
	if err != nil {
		return fmt.Errorf("restore files: %w", err)
	}
	if err := tar(ctx, agent, unpacker(imageName), z, nil); err != nil {
		return fmt.Errorf("restore files: %w", err)
	}
	return nil
}

// ReadArchive calls read with the content of an archive that WriteArchive wrote, from the beginning.
func ReadArchive(f *os.File, read func(io.Reader) error) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read files: %w", err)
	}
	z, err := expander(f)
	if err != nil {
		return fmt.Errorf("read files: %w", err)
	}
	return read(z)
}

// UnpackStream puts the files of an archive into a sandbox with an image.
func UnpackStream(ctx context.Context, agent *wire.Client, r io.Reader) error {
	start := wire.Start{ID: hutch.NewID("tar"), Argv: []string{agentProgram, "unpack"}, Stdin: true, TimeoutMS: packTime, Whole: true}
	var said []byte
	exit, err := agent.Run(ctx, start, r, func(o hutch.Output) error {
		said = append(said, o.Data[:min(len(o.Data), 1000-min(len(said), 1000))]...)
		return nil
	})
	if err == nil && exit.Code != 0 {
		err = hutch.Errorf(hutch.Invalid, "the files cannot be put into the sandbox: its user may not write there, or its disk is full: %s", strings.TrimSpace(strings.TrimPrefix(string(said), "hutch-agent: ")))
	}
	return err
}

// List writes the names of all files in a sandbox with an image.
func List(ctx context.Context, agent *wire.Client, w io.Writer) error {
	return tar(ctx, agent, []string{agentProgram, "list"}, nil, func(o hutch.Output) error {
		if o.Stream != hutch.Stdout {
			return nil
		}
		_, err := w.Write(o.Data)
		return err
	})
}

func tar(ctx context.Context, agent *wire.Client, argv []string, stdin io.Reader, out func(hutch.Output) error) error {
	start := wire.Start{ID: hutch.NewID("tar"), Argv: argv, Stdin: stdin != nil, TimeoutMS: packTime, Whole: true, ReadAll: stdin == nil}
	var said []byte
	exit, err := agent.Run(ctx, start, stdin, func(o hutch.Output) error {
		if o.Stream == hutch.Stderr {
			said = append(said, o.Data[:min(len(o.Data), 1000-min(len(said), 1000))]...)
		}
		if out == nil {
			return nil
		}
		return out(o)
	})
	if err != nil {
		return err
	}
	most := 0
	if argv[0] != agentProgram {
		most = 1 // GNU tar: a file changed or vanished during the packing
	}
	if exit.Code > most || exit.TimedOut {
		return hutch.Errorf(hutch.Unavailable, "%s of the sandbox ended with exit code %d: %q", argv[0], exit.Code, said)
	}
	return nil
}

// WriteArchive writes the output of fill, at most most bytes, to a file under a temporary name, and renames the file
// when it is complete. With keep, the archive is compressed, because memory with the same files can be next to it on
// the disk. size is the uncompressed size.
func WriteArchive(path string, most int64, keep bool, fill func(io.Writer) error) (size int64, err error) {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("keep files: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	defer f.Close()
	out := io.WriteCloser(f)
	if keep {
		if out, err = compressor(f); err != nil {
			return 0, fmt.Errorf("keep files: %w", err)
		}
	}
	bounded := Bounded(out, most)
	if err = errors.Join(fill(bounded), out.Close()); err != nil {
		return 0, fmt.Errorf("keep files: %w", err)
	}
	return bounded.size, os.Rename(f.Name(), path)
}

// Bounded returns a writer that passes on at most most bytes to w, and refuses more.
func Bounded(w io.Writer, most int64) *BoundedWriter { return &BoundedWriter{Writer: w, most: most} }

// BoundedWriter passes on at most as many bytes as an archive of a sandbox can have, and refuses more.
type BoundedWriter struct {
	io.Writer
	size, most int64
}

func (w *BoundedWriter) Write(b []byte) (int, error) {
	if w.size += int64(len(b)); w.size > w.most {
		return 0, hutch.Errorf(hutch.Exhausted, "the files of the sandbox are larger than its disk limit, as holes in files count too: remove large files with holes").With("limit", "disk")
	}
	return w.Writer.Write(b)
}

// compressor returns a compressor that is as fast as disks, and uses few MB of memory.
func compressor(w io.Writer) (*zstd.Encoder, error) {
	return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
}

const window = 1 << 20

// expander returns a reader for the output of a compressor, or for an archive from before archives were compressed. It
// is never closed, and holds only memory, because its reader can continue after the instance has ended.
func expander(f io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(f, 64<<10)
	if head, _ := in.Peek(4); string(head) != "\x28\xb5\x2f\xfd" { // RFC 8878
		return in, nil
	}
	return zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderLowmem(true))
}
