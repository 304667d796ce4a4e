// Gocache is the cache of the go command inside a sandbox, with the protocol of GOCACHEPROG. Packages that the image
// compiled earlier are read from the folder next to this program; everything else is in the go command's usual folder,
// as without this program. Both folders have the layout of a GOCACHE.
//
// The go command of the image compiles it, so it uses only the standard library.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

type request struct {
	ID       int64
	Command  string
	ActionID []byte
	OutputID []byte
	BodySize int64
}

type response struct {
	ID            int64
	Err           string     `json:",omitempty"`
	KnownCommands []string   `json:",omitempty"`
	Miss          bool       `json:",omitempty"`
	OutputID      []byte     `json:",omitempty"`
	Size          int64      `json:",omitempty"`
	Time          *time.Time `json:",omitempty"`
	DiskPath      string     `json:",omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gocache:", err)
		os.Exit(1)
	}
}

func run() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	own := os.Getenv("GOCACHE")
	if own == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		own = filepath.Join(dir, "go-build")
	}
	c := caches{own: own, warm: filepath.Join(filepath.Dir(self), "build")}
	return c.serve(os.Stdin, os.Stdout)
}

// caches are two folders; warm is never written.
type caches struct{ own, warm string }

// serve answers one request after the other, because each takes only a few system calls.
func (c caches) serve(r io.Reader, w io.Writer) error {
	requests, answers := json.NewDecoder(bufio.NewReaderSize(r, 64<<10)), json.NewEncoder(w)
	if err := answers.Encode(response{KnownCommands: []string{"get", "put", "close"}}); err != nil {
		return err
	}
	for {
		var req request
		if err := requests.Decode(&req); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var body []byte // follows as a separate string
		if req.Command == "put" && req.BodySize > 0 {
			if err := requests.Decode(&body); err != nil {
				return err
			}
		}
		res, err := c.answer(req, body)
		if err != nil {
			res = response{Err: err.Error()}
		}
		res.ID = req.ID
		if err := answers.Encode(res); err != nil || req.Command == "close" {
			return err
		}
	}
}

func (c caches) answer(req request, body []byte) (response, error) {
	switch req.Command {
	case "get":
		for _, dir := range []string{c.warm, c.own} {
			if res, ok := get(dir, req.ActionID); ok {
				return res, nil
			}
		}
		return response{Miss: true}, nil
	case "put":
		path, err := put(c.own, req, body)
		return response{DiskPath: path}, err
	case "close":
		return response{}, nil
	}
	return response{}, fmt.Errorf("unknown command %q", req.Command)
}

// entry returns the path of an id in a folder. kind is a for the result of an action, and d for an output.
func entry(dir string, id []byte, kind string) string {
	name := hex.EncodeToString(id)
	if len(name) < 2 {
		name = "00"
	}
	return filepath.Join(dir, name[:2], name+"-"+kind)
}

// get reads "v1 ACTION OUTPUT SIZE TIME", the last in nanoseconds.
func get(dir string, action []byte) (response, bool) {
	text, err := os.ReadFile(entry(dir, action, "a"))
	f := strings.Fields(string(text))
	if err != nil || len(f) != 5 || f[0] != "v1" || f[1] != hex.EncodeToString(action) {
		return response{}, false
	}
	output, err := hex.DecodeString(f[2])
	size, errSize := strconv.ParseInt(f[3], 10, 64)
	when, errTime := strconv.ParseInt(f[4], 10, 64)
	if errors.Join(err, errSize, errTime) != nil {
		return response{}, false
	}
	path := entry(dir, output, "d")
	if info, err := os.Stat(path); err != nil || info.Size() != size {
		return response{}, false
	}
	t := time.Unix(0, when)
	return response{OutputID: output, Size: size, Time: &t, DiskPath: path}, true
}

func put(dir string, req request, body []byte) (path string, err error) {
	path = entry(dir, req.OutputID, "d")
	if info, err := os.Stat(path); err != nil || info.Size() != req.BodySize {
		if err := write(path, body); err != nil {
			return "", err
		}
	}
	text := fmt.Sprintf("v1 %x %x %20d %20d\n", req.ActionID, req.OutputID, req.BodySize, time.Now().UnixNano())
	return path, write(entry(dir, req.ActionID, "a"), []byte(text))
}

// write writes a file completely or not at all.
func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
