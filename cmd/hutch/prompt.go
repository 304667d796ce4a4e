package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"

	"hutch"
	"hutch/internal/text"
)

// prompt reads code and runs it until the end of the input.
func (r *repl) prompt(ctx context.Context) error {
	fmt.Fprintf(r.std.out, "%s in sandbox %s. An empty line ends a block, Ctrl-C interrupts, Ctrl-D leaves.\n", r.language, r.sandbox)
	keys := &promptKeys{in: r.std.in}
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keys, r.std.out}, "")
	t.AutoCompleteCallback = indent
	for {
		code, err := r.read(t, keys)
		if errors.Is(err, io.EOF) || leaves(code) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(code) == "" {
			continue
		}
		if err := r.interruptible(ctx, code); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			fmt.Fprintf(r.std.err, "hutch: %s\n", text.Inert(hutch.AsError(err).Message))
		}
	}
}

// leaves reports whether a line asks to leave the prompt, with the commands of the interpreters. The interpreters
// themselves could not do that, because the context outlives the prompt.
func leaves(line string) bool {
	switch strings.TrimSuffix(strings.TrimSpace(line), "()") {
	case "exit", "quit", ".exit":
		return true
	}
	return false
}

// indent makes Tab four blanks.
func indent(line string, pos int, key rune) (string, int, bool) {
	if key != '\t' {
		return "", 0, false
	}
	return line[:pos] + "    " + line[pos:], pos + 4, true
}

// promptKeys makes Ctrl-C discard the typed line; the terminal package would take it for the end of the input. It
// replaces Ctrl-C by keys that clear the line and end it.
type promptKeys struct {
	in      io.Reader
	gaveUp  bool
	pending []byte
}

const (
	ctrlC     = 3
	clearLine = "\x05\x15\r" // to the end, delete to the beginning, Enter
)

func (k *promptKeys) Read(b []byte) (int, error) {
	if len(k.pending) == 0 {
		n, err := k.in.Read(b)
		if before, _, found := bytes.Cut(b[:n], []byte{ctrlC}); found { // text that was typed after it is discarded, too
			k.gaveUp = true
			k.pending = append(bytes.Clone(before), clearLine...)
		} else {
			return n, err
		}
	}
	n := copy(b, k.pending)
	k.pending = k.pending[n:]
	return n, nil
}

// read reads one line, or a block up to an empty line.
func (r *repl) read(t *term.Terminal, keys *promptKeys) (string, error) {
	fd := int(r.std.in.Fd())
	state, err := term.MakeRaw(fd)
	if err != nil {
		return "", err
	}
	defer term.Restore(fd, state)
	if width, height, err := term.GetSize(fd); err == nil {
		t.SetSize(width, height)
	}
	t.SetPrompt("> ")
	defer t.SetPrompt("> ")
	var block []string
	for {
		line, err := t.ReadLine()
		if err != nil && !errors.Is(err, term.ErrPasteIndicator) {
			return "", err
		}
		if keys.gaveUp {
			keys.gaveUp = false
			return "", nil
		}
		if len(block) > 0 && strings.TrimSpace(line) == "" {
			break
		}
		block = append(block, line)
		if len(block) == 1 && !opensBlock(line) {
			break
		}
		t.SetPrompt(". ")
	}
	return strings.Join(block, "\n"), nil
}

// opensBlock reports whether a line needs further lines.
func opensBlock(line string) bool {
	line = strings.TrimSpace(line)
	if line == "" {
		return false
	}
	depth := 0
	for _, c := range line {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
	}
	last := line[len(line)-1]
	return depth > 0 || last == ':' || last == '\\' || last == '|' || line[0] == '@' ||
		strings.Count(line, `"""`)%2 == 1 || strings.HasSuffix(line, " do") || strings.HasSuffix(line, " then")
}

// interruptible runs code that Ctrl-C can interrupt.
func (r *repl) interruptible(ctx context.Context, code string) error {
	pressed, release := r.std.interrupts.take()
	defer release()
	ended := make(chan error, 1)
	go func() {
		res, err := r.run(ctx, code)
		if err == nil && res.Ended {
			fmt.Fprintln(r.std.err, "[the interpreter has ended; the next run gets a fresh one]")
		}
		ended <- err
	}()
	id := r.context
	if id == "" {
		id = "default-" + r.language
	}
	for {
		select {
		case err := <-ended:
			return err
		case <-pressed:
			if err := r.svc.Interrupt(ctx, r.sandbox, id); err != nil && !errors.Is(err, hutch.NotFound) {
				fmt.Fprintf(r.std.err, "hutch: not interrupted: %s\n", text.Inert(hutch.AsError(err).Message))
			}
		}
	}
}
