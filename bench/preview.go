package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"hutch"
)

// pagePort is the port of the page inside a sandbox.
const pagePort = 8000

// servePage runs this program as the server of the measurement. It serves a small page and a requested number of zeros,
// and prints its address.
func servePage(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	page := bytes.Repeat([]byte("page "), 200)
	piece := make([]byte, 64<<10)
	return http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left, _ := strconv.ParseInt(r.URL.RawQuery, 10, 64)
		if left == 0 {
			w.Write(page)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(left, 10))
		for left > 0 {
			n, err := w.Write(piece[:min(left, int64(len(piece)))])
			if left -= int64(n); err != nil {
				return
			}
		}
	}))
}

// viewer requests pages over one connection. It reads only the length of an answer and skips the rest, because it
// shares the cores with the server that is measured.
type viewer struct {
	addr, host string
	conn       net.Conn
	r          *bufio.Reader
}

func (v *viewer) get(ctx context.Context, size int64) (int64, error) {
	if v.conn == nil {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", v.addr)
		if err != nil {
			return 0, err
		}
		v.conn, v.r = c, bufio.NewReaderSize(c, 64<<10)
	}
	if _, err := fmt.Fprintf(v.conn, "GET /?%d HTTP/1.1\r\nHost: %s\r\n\r\n", size, v.host); err != nil {
		return 0, err
	}
	line, err := v.r.ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "HTTP/1.1 200") {
		err = fmt.Errorf("an answer that begins with %q", line)
	}
	var length int64
	for line != "\r\n" && err == nil {
		if line, err = v.r.ReadString('\n'); strings.HasPrefix(line, "Content-Length: ") {
			length, _ = strconv.ParseInt(strings.TrimSpace(line[16:]), 10, 64)
		}
	}
	if err != nil {
		return 0, err
	}
	return io.CopyN(io.Discard, v.r, length)
}

// pageRoute is one way to the page.
type pageRoute struct {
	of      *figures // nil without Hutch
	name    string
	viewers []*viewer
	times   series
	load    tally
	rates   []float64 // MB/s
}

func (s *pageRoute) subject() subject {
	return subject{s.name, func(ctx context.Context, caller int) error {
		_, err := s.viewers[caller].get(ctx, 0)
		return err
	}}
}

func (l *lab) newPageRoute(of *figures, name, addr, host string) *pageRoute {
	s := &pageRoute{of: of, name: name}
	for range l.most() {
		s.viewers = append(s.viewers, &viewer{addr: addr, host: host})
	}
	return s
}

// previews compares requests to a server in a sandbox with requests to the same server outside.
func (l *lab) previews(ctx context.Context) (table, error) {
	t := newTable("", "p50, ms", "p99", "adds to p50", fmt.Sprintf("pages a second, %d callers", l.callers[2]), "MB/s", "× without")
	bare, stop, err := l.pageOutside()
	if err != nil {
		return t, err
	}
	defer stop()
	all := []*pageRoute{bare}
	for _, f := range l.runtimes {
		s, undo, err := l.pageInside(ctx, f)
		if err != nil {
			return t, err
		}
		defer undo()
		all = append(all, s)
	}
	for range l.rounds {
		for _, s := range all {
			if err := s.round(ctx, l); err != nil {
				return t, fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	for _, s := range all {
		if s.of != nil {
			s.of.page = view{s.times.at(0.5) - bare.times.at(0.5), s.load.rate(), median(s.rates) / median(bare.rates)}
		}
		t.row(s.name, number(s.times.at(0.5)), number(s.times.at(0.99)), number(s.times.at(0.5)-bare.times.at(0.5)),
			number(s.load.rate()), number(median(s.rates)), ratio(median(s.rates), median(bare.rates)))
	}
	t.note("A page of 1 kB; MB/s of one large page. The client and the page's server run on the same cores.")
	return t, nil
}

// view has the measurements of previews: ms that they add, pages a second, and the share of the bytes a second.
type view struct{ adds, rate, share float64 }

func (s *pageRoute) round(ctx context.Context, l *lab) error {
	round, err := interleave(ctx, 1, 5*l.calls, []subject{s.subject()})
	if err != nil {
		return err
	}
	s.times = append(s.times, round[0]...)
	s.load.press(ctx, s.subject(), l.callers[2], l.loadTime)
	if s.load.failure != nil {
		return s.load.failure
	}
	began := time.Now()
	n, err := s.viewers[0].get(ctx, l.bytes)
	s.rates = append(s.rates, megabytes(n, time.Since(began)))
	return err
}

// pageOutside serves the page on this machine.
func (l *lab) pageOutside() (*pageRoute, func(), error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self, "-page", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, err
	}
	stop := func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return nil, nil, err
	}
	return l.newPageRoute(nil, "without Hutch", strings.TrimSpace(addr), "localhost"), stop, nil
}

// pageInside serves the page in a sandbox of the server.
func (l *lab) pageInside(ctx context.Context, f *figures) (*pageRoute, func(), error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	program, err := os.Open(self)
	if err != nil {
		return nil, nil, err
	}
	defer program.Close()
	svc := l.server.rest
	sb, err := svc.Create(ctx, hutch.CreateRequest{Runtime: f.runtime, KeepAlive: true, Limits: hutch.Limits{CPU: 2, Disk: 256}})
	if err != nil {
		return nil, nil, err
	}
	undo := func() { svc.Destroy(context.WithoutCancel(ctx), sb.ID, true) }
	url, err := func() (*url.URL, error) {
		if _, err := svc.WriteFile(ctx, sb.ID, hutch.WriteRequest{Path: "page", Mode: 0o755}, program); err != nil {
			return nil, err
		}
		p, err := svc.StartProcess(ctx, sb.ID, hutch.ProcessRequest{Command: fmt.Sprintf("exec ./page -page 127.0.0.1:%d", pagePort), Name: "page"})
		if err != nil {
			return nil, err
		}
		if w, err := svc.Wait(ctx, sb.ID, p.ID, hutch.WaitRequest{Port: pagePort}); err != nil || !w.Met {
			return nil, fmt.Errorf("the page is not served: %w", err)
		}
		port, err := svc.Expose(ctx, sb.ID, hutch.ExposeRequest{Port: pagePort})
		if err != nil {
			return nil, err
		}
		return url.Parse(port.URL)
	}()
	if err != nil {
		undo()
		return nil, nil, err
	}
	return l.newPageRoute(f, f.runtime, strings.TrimPrefix(l.server.url, "http://"), url.Host), undo, nil
}
