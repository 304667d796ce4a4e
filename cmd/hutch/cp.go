package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/internal/files"
	"hutch/internal/pipe"
)

func newCopy(h *home, std streams) *cobra.Command {
	var quiet bool
	c := &cobra.Command{
		Use:   "cp [flags] SOURCE... TARGET",
		Short: "Copy files and folders into a sandbox of the server, or out of it",
		Long: `Copy a file or a folder into a sandbox of the server, or out of it. What is inside is
written SANDBOX:PATH; a relative PATH is below /workspace. A target that is a folder
gets the sources put into it; several sources need one. Files arrive as a whole or
not at all. - is the standard input or output: the bytes of a file, or a folder as
a tar archive on its way out.
` + remoteHelp,
		Example: `  hutch cp data.csv demo:
  hutch cp ./project demo:src
  hutch cp demo:/workspace/out ./results
  hutch cp a.csv b.csv demo:data
  hutch cp demo:report.html - | less`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			sources, target := args[:len(args)-1], args[len(args)-1]
			if err := checkPlaces(sources, target); err != nil {
				return err
			}
			if target == "-" && c.Flags().Changed("json") {
				return usageError{errors.New("--json and the target - both use the standard output: copy to a file")}
			}
			svc, err := h.dial()
			if err != nil {
				return err
			}
			if len(sources) > 1 {
				if err := needFolder(c.Context(), svc, target); err != nil {
					return err
				}
			}
			for _, source := range sources {
				if err := copyOne(c.Context(), svc, source, target, quiet, std); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	takesFileUser(c)
	return withJSON(c, std, func(args []string) done {
		return done{"sources": args[:len(args)-1], "target": args[len(args)-1]}
	})
}

// checkPlaces refuses combinations of sources and target that make no sense.
func checkPlaces(sources []string, target string) error {
	_, _, toIn := cutPlace(target)
	for _, source := range sources {
		if _, _, fromIn := cutPlace(source); fromIn == toIn {
			return usageError{errors.New("either the sources or the target must be SANDBOX:PATH, and the other a path of this machine; within a sandbox, use hutch fs cp")}
		}
		if len(sources) > 1 && (source == "-" || target == "-") {
			return usageError{errors.New("- stands for one file: give one source and one target")}
		}
	}
	return nil
}

// needFolder refuses several sources if the target is not a folder.
func needFolder(ctx context.Context, svc hutch.Service, target string) error {
	id, path, inside := cutPlace(target)
	folder := false
	if inside {
		info, err := svc.Stat(ctx, id, path+"/.")
		if err != nil && !errors.Is(err, hutch.NotFound) && !errors.Is(err, hutch.Conflict) {
			return err
		}
		folder = err == nil && info.Type == hutch.Directory
	} else {
		info, err := os.Stat(path)
		folder = err == nil && info.IsDir()
	}
	if folder {
		return nil
	}
	return hutch.Errorf(hutch.Invalid, "%.200q is not a folder, which the target of several sources must be: make it first", target)
}

func copyOne(ctx context.Context, svc hutch.Service, source, target string, quiet bool, std streams) error {
	fromID, from, _ := cutPlace(source)
	toID, to, toIn := cutPlace(target)
	p := newProgress(std.err, quiet)
	defer p.end()
	switch {
	case toIn && source == "-":
		_, err := svc.WriteFile(ctx, toID, hutch.WriteRequest{Path: to, Parents: true}, p.reader(std.in))
		return err
	case toIn:
		return upload(ctx, svc, from, toID, to, p)
	case target == "-":
		return toOutput(ctx, svc, fromID, from, p.writer(std.out))
	}
	return download(ctx, svc, fromID, from, to, p)
}

// toOutput writes a file, or a folder as an archive, to the standard output.
func toOutput(ctx context.Context, svc hutch.Service, id, from string, w io.Writer) error {
	info, err := svc.Stat(ctx, id, from+"/.")
	if err == nil && info.Type == hutch.Directory {
		return svc.Pack(ctx, id, hutch.PackRequest{Dir: from, Format: hutch.Tar}, w)
	}
	_, err = svc.ReadFile(ctx, id, hutch.ReadRequest{Path: from}, w)
	return err
}

// cutPlace splits SANDBOX:PATH; inside is false for a path of this machine.
func cutPlace(arg string) (id, p string, inside bool) {
	id, p, inside = strings.Cut(arg, ":")
	if !inside || hutch.CheckID(id) != nil {
		return "", arg, false
	}
	if p == "" {
		p = "."
	}
	return id, p, true
}

// here are this machine's files.
var here = &files.FS{Dir: "."}

func upload(ctx context.Context, svc hutch.Service, from, id, to string, p *progress) error {
	info, err := os.Stat(from)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return hutch.Errorf(hutch.NotFound, "%.200q does not exist on this machine: give the path of a file or folder, or SANDBOX:PATH for one in a sandbox", from).Because(err)
	case err != nil:
		return err
	}
	if there, err := svc.Stat(ctx, id, to+"/."); err == nil && there.Type == hutch.Directory {
		abs, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		to = path.Join(to, filepath.Base(abs))
	} else if err != nil && !errors.Is(err, hutch.NotFound) && !errors.Is(err, hutch.Conflict) {
		return err
	}
	if info.IsDir() {
		return pipe.Through(func(w io.Writer) error {
			return here.Pack(ctx, "", hutch.PackRequest{Dir: from, Format: hutch.Tar}, w)
		}, func(r io.Reader) error {
			return svc.Unpack(ctx, id, hutch.UnpackRequest{Dir: to, Format: hutch.Tar}, p.reader(r))
		})
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	p.total = info.Size()
	_, err = svc.WriteFile(ctx, id, hutch.WriteRequest{Path: to, Mode: hutch.FileMode(info.Mode().Perm()), Parents: true}, p.reader(f))
	return err
}

func download(ctx context.Context, svc hutch.Service, id, from, to string, p *progress) error {
	info, err := svc.Stat(ctx, id, from)
	if err == nil && info.Type == hutch.Symlink {
		info, err = svc.Stat(ctx, id, from+"/.")
		if errors.Is(err, hutch.Conflict) { // the path is a link to a file
			info, err = hutch.FileInfo{Name: path.Base(from), Type: hutch.RegularFile}, nil
		}
	}
	if err != nil {
		return err
	}
	if st, err := os.Stat(to); err == nil && st.IsDir() {
		to = filepath.Join(to, filepath.Base(filepath.Clean("/"+info.Name)))
	}
	if info.Type == hutch.Directory {
		return pipe.Through(func(w io.Writer) error {
			return svc.Pack(ctx, id, hutch.PackRequest{Dir: from, Format: hutch.Tar}, p.writer(w))
		}, func(r io.Reader) error {
			return here.Unpack(ctx, "", hutch.UnpackRequest{Dir: to, Format: hutch.Tar}, r)
		})
	}
	p.total = info.Size
	return pipe.Through(func(w io.Writer) error {
		_, err := svc.ReadFile(ctx, id, hutch.ReadRequest{Path: from}, p.writer(w))
		return err
	}, func(r io.Reader) error {
		_, err := here.WriteFile(ctx, "", hutch.WriteRequest{Path: to}, r)
		return err
	})
}

// progress shows a person at a terminal how much is done.
type progress struct {
	w     io.Writer // nil shows nothing
	total int64     // 0 if unknown
	done  atomic.Int64
	last  time.Time
	begun time.Time
}

func newProgress(w io.Writer, quiet bool) *progress {
	p := &progress{begun: time.Now()}
	if f, ok := w.(*os.File); ok && !quiet && isTerminal(f) {
		p.w = w
	}
	return p
}

func (p *progress) add(n int) {
	done := p.done.Add(int64(n))
	if p.w == nil || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last = time.Now()
	p.show(done)
}

func (p *progress) show(done int64) {
	rate := float64(done) / (1 << 20) / max(time.Since(p.begun).Seconds(), 0.001)
	if p.total <= 0 {
		fmt.Fprintf(p.w, "\r\x1b[K%.1f MiB  %.0f MiB/s", float64(done)/(1<<20), rate)
		return
	}
	const width = 30
	share := min(float64(done)/float64(p.total), 1)
	filled := int(share * width)
	fmt.Fprintf(p.w, "\r\x1b[K[%s%s] %3.0f %%  %.1f MiB  %.0f MiB/s", strings.Repeat("#", filled), strings.Repeat("-", width-filled), 100*share, float64(done)/(1<<20), rate)
}

func (p *progress) end() {
	if p.w != nil && p.done.Load() > 0 {
		p.show(p.done.Load())
		fmt.Fprintln(p.w)
	}
}

type countingReader struct {
	io.Reader
	p *progress
}

func (c countingReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.p.add(n)
	return n, err
}

func (p *progress) reader(r io.Reader) io.Reader { return countingReader{r, p} }

type countingWriter struct {
	io.Writer
	p *progress
}

func (c countingWriter) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.p.add(n)
	return n, err
}

func (p *progress) writer(w io.Writer) io.Writer { return countingWriter{w, p} }
