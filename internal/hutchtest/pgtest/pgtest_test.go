package pgtest_test

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hutch/internal/hutchtest/pgtest"
)

func TestDatabasesAreApart(t *testing.T) {
	a, b := pgtest.Connect(t, pgtest.New(t)), pgtest.Connect(t, pgtest.New(t))
	for _, c := range []*pgx.Conn{a, b} {
		if _, err := c.Exec(t.Context(), "create table same (x int)"); err != nil {
			t.Error(err)
		}
	}
}

func TestLink(t *testing.T) {
	l := pgtest.NewLink(t, pgtest.New(t))
	c := pgtest.Connect(t, l.URL)
	one := func(c *pgx.Conn, limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := c.Exec(ctx, "select 1")
		return err
	}
	if err := one(c, time.Minute); err != nil {
		t.Fatal(err)
	}
	l.Hold()
	if err := one(c, 200*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a link that is held says %v", err)
	}
	l.Heal()
	c = pgtest.Connect(t, l.URL)
	l.Cut()
	if err := one(c, time.Minute); err == nil {
		t.Error("a link that is cut answers")
	}
	if _, err := pgx.Connect(t.Context(), l.URL); err == nil {
		t.Error("a link that is cut can be connected to")
	}
	l.Heal()
	if err := one(pgtest.Connect(t, l.URL), time.Minute); err != nil {
		t.Error(err)
	}
}

// A killed process leaves neither a server nor the server's files behind.
func TestKilled(t *testing.T) {
	if os.Getenv("HUTCH_TEST_PG_CHILD") != "" {
		c := pgtest.Connect(t, pgtest.New(t))
		var dir string
		if err := c.QueryRow(t.Context(), "show data_directory").Scan(&dir); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("data in " + dir + "\n")
		select {}
	}
	pgtest.New(t) // skips the test if PostgreSQL is missing
	child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), "HUTCH_TEST_PG_CHILD=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	child.Process.Kill()
	child.Wait()
	dir, ok := strings.CutPrefix(strings.TrimSpace(line), "data in ")
	if !ok {
		t.Fatalf("the child says %q, %v", line, err)
	}
	dir = strings.TrimSuffix(dir, "/data")
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is still there", dir)
		}
	}
}
