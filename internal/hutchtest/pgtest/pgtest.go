// Package pgtest gives tests a PostgreSQL server, from the Debian package postgresql.
//
// The tests of one process share a server, and each has a fresh database. A shell runs the server and waits for the end
// of its standard input. This process never closes the other end, so that end closes only when the process ends, in
// whatever way. The shell then stops the server and removes its files.
package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hutch/internal/hutchtest"
)

// hold runs a server in the folder $1 on port $2 until standard input ends. Its programs are in $3.
const hold = `
exec 3<&0
trap 'kill $watcher 2>/dev/null; cat "$1/log" >&2; rm -rf "$1"' EXIT
"$3/initdb" --no-sync -A trust -E UTF8 --locale=C -U hutch -D "$1/data" >"$1/log" 2>&1 3<&- || exit
"$3/postgres" -D "$1/data" -p "$2" -c listen_addresses=127.0.0.1 -k '' -c fsync=off -c full_page_writes=off \
	-c max_connections=700 -c shared_buffers=16MB -c log_min_messages=warning >>"$1/log" 2>&1 3<&- &
server=$!
{ read -r _ <&3; kill -QUIT $server; } >/dev/null 2>&1 &
watcher=$!
wait $server
`

// limit is how long the server can take to start on a busy machine.
const limit = 2 * time.Minute

var server struct {
	once sync.Once
	url  url.URL // URL of the server's database "postgres"
	dir  string
	err  error
	life *os.File // the other end of the shell's standard input: it stays open for as long as this process lives

	databases atomic.Int64
}

// Connect connects to a database until the end of the test, as an administrator would do with psql.
func Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// Exec executes a statement in a database.
func Exec(t testing.TB, url, statement string, args ...any) {
	t.Helper()
	if _, err := Connect(t, url).Exec(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// New returns the URL of a fresh database, which is removed after the test. If PostgreSQL is missing, the test is
// skipped, or fails in CI.
func New(t testing.TB) string {
	t.Helper()
	programs, err := find()
	if err != nil {
		hutchtest.Skip(t, "%v", err)
	}
	server.once.Do(func() { server.err = start(programs) })
	if server.err != nil {
		t.Fatalf("PostgreSQL does not start: %v", server.err)
	}
	name := fmt.Sprintf("hutch_%d", server.databases.Add(1))
	administer(t, "create database "+name)
	t.Cleanup(func() { administer(t, "drop database "+name+" with (force)") })
	u := server.url
	u.Path = "/" + name
	return u.String()
}

func administer(t testing.TB, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	db, err := pgx.Connect(ctx, server.url.String())
	if err == nil {
		defer db.Close(ctx)
		_, err = db.Exec(ctx, statement)
	}
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(server.dir, "log"))
		t.Fatalf("%s: %v\n%s", statement, err, log)
	}
}

// find returns the folder of the server's programs. Debian installs them outside of PATH.
func find() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", fmt.Errorf("PostgreSQL is missing (apt-get install postgresql)")
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// start starts the server. It tries several times, because another process can take the chosen port before the server
// does.
func start(programs string) (err error) {
	for range 5 {
		if err = startOn(programs, freePort()); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
	return err
}

func freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func startOn(programs, port string) error {
	dir, err := os.MkdirTemp("", "hutch-pg-")
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", hold, "sh", dir, port, programs)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "HOME=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // so that it does not get signals from the terminal
	if os.Geteuid() == 0 {                               // PostgreSQL refuses to run as root
		uid, gid, err := ordinary()
		if err != nil {
			return err
		}
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			return err
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
	stdin, life, err := os.Pipe()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stderr = "/", stdin, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	stdin.Close()
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()

	server.url = url.URL{Scheme: "postgres", User: url.User("hutch"), Host: net.JoinHostPort("127.0.0.1", port), Path: "/postgres", RawQuery: "sslmode=disable"}
	server.dir, server.life = dir, life
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-ended:
			return fmt.Errorf("it ended: %s", said.Bytes())
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		db, err := pgx.Connect(ctx, server.url.String())
		if err == nil {
			db.Close(ctx)
			cancel()
			return nil
		}
		cancel()
		if time.Now().After(end) {
			life.Close()
			<-ended
			return fmt.Errorf("%w\n%s", err, said.Bytes())
		}
	}
}

// ordinary returns a user that is not root and has a name, because initdb needs such a user.
func ordinary() (uid, gid uint32, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		id, _ := strconv.ParseUint(u.Uid, 10, 32)
		group, _ := strconv.ParseUint(u.Gid, 10, 32)
		return uint32(id), uint32(group), nil
	}
	return 0, 0, fmt.Errorf("there is neither a user postgres nor nobody")
}
