package sshd

import (
	"bytes"
	"io"
	"net"

	"hutch"
)

// Choice returns the first line of a connection whose user name does not choose the sandbox. OpenSSH cannot make a user
// name from a host name, so the proxy command of `ssh ID.hutch` sends "HUTCH ID", before the client's own first line,
// which begins with SSH-.
func Choice(sandbox string) string { return choicePrefix + sandbox + "\n" }

const choicePrefix = "HUTCH "

// choose reads the line by which a connection chooses a sandbox, if it begins with one.
func choose(conn net.Conn) (net.Conn, string, error) {
	first := make([]byte, len(choicePrefix))
	if _, err := io.ReadFull(conn, first); err != nil {
		return nil, "", err
	}
	if string(first) != choicePrefix {
		return &begun{conn, io.MultiReader(bytes.NewReader(first), conn)}, "", nil
	}
	id, err := readLine(conn)
	if err != nil {
		return nil, "", err
	}
	return conn, id, hutch.CheckID(id)
}

// readLine reads a short line, and no byte after it.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) <= hutch.MaxID; {
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
	return "", hutch.Errorf(hutch.Invalid, "the id of a sandbox has at most %d bytes", hutch.MaxID)
}

// begun is a connection whose first bytes were read.
type begun struct {
	net.Conn
	rest io.Reader
}

func (c *begun) Read(b []byte) (int, error) { return c.rest.Read(b) }
