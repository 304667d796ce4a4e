package swerex

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"hutch"
	"hutch/internal/compat"
)

const (
	settle   = 500 * time.Millisecond // for the prompt after the end of a command
	quitTime = 5 * time.Second        // for the shell to turn the echo off again

	unknown = -1 // cursor of a shell whose end of output is not known

	ctrlC, ctrlZ = "\x03", "\x1a"
)

// shell is one session of a sandbox. Only the action that filled busy uses the shell. The fields users and used are for
// [shells].
type shell struct {
	busy   chan struct{} // full while an action runs
	cursor int64         // end of the output that was returned
	svc    hutch.Service
	address

	users int // actions that run or wait
	used  time.Time
}

// run runs a command in the shell, and waits for its end or for one of the patterns.
func (s *shell) run(ctx context.Context, a action, patterns []*regexp.Regexp, limit time.Duration) (observation, error) {
	id := strings.TrimPrefix(hutch.NewID("x"), "x-")
	file := "/tmp/.swerex-" + id
	if _, err := s.svc.WriteFile(ctx, s.sandbox, hutch.WriteRequest{Path: file, Mode: 0o600}, strings.NewReader(a.Command+"\n")); err != nil {
		return observation{}, err
	}
	if err := s.seek(ctx); err != nil {
		s.discard(ctx, file)
		return observation{}, err
	}
	deadline := time.Now().Add(limit)
	err := s.enter(ctx, fmt.Sprintf(" . %s; printf '%s' %s $?; rm -f %[1]s\n", file, markFormat, id), limit)
	var got match
	if err == nil {
		got, err = s.expect(ctx, append(patterns[:len(patterns):len(patterns)], markOf(id)), time.Until(deadline))
	}
	if err != nil {
		// A busy shell has not read the file yet. Without the file, it cannot run the command later.
		s.discard(ctx, file)
		return observation{}, a.late(err, limit)
	}
	return s.observe(ctx, a, got, got.pattern < len(patterns))
}

// The end of a command is a control sequence that terminals do not show. Its id is random, so that no output contains
// it by chance.
const markFormat = `\033]7770;%s;%s\007`

var marks = regexp.MustCompile(`\x1b\]7770;[a-z2-7]+;[0-9]{1,3}\x07`)

// markOf returns the pattern of a command's end; its group is the exit code.
func markOf(id string) *regexp.Regexp {
	return regexp.MustCompile(`\x1b\]7770;` + id + `;([0-9]{1,3})\x07`)
}

// observe returns the output of a command before its end or a pattern.
func (s *shell) observe(ctx context.Context, a action, got match, early bool) (observation, error) {
	o := observation{Output: clean(got.before), Expect: got.text, Type: "bash"}
	if early {
		return o, nil
	}
	o.Expect = prompt
	if rest, err := s.expect(ctx, []*regexp.Regexp{promptPattern}, settle); err == nil {
		o.Output += clean(rest.before) // bash's reports about jobs
	}
	if a.Check == "ignore" {
		return o, nil
	}
	code, err := strconv.Atoi(got.group)
	if err != nil {
		return o, hutch.Errorf(hutch.Internal, "the shell reported an exit code that is not a number").Because(err)
	}
	o.Code = &code
	if a.Check == "raise" && code != 0 {
		return o, a.failure(code, o.Output)
	}
	return o, nil
}

// converse sends input to a program, and waits for one of the patterns or for the prompt.
func (s *shell) converse(ctx context.Context, a action, patterns []*regexp.Regexp, limit time.Duration) (any, error) {
	deadline := time.Now().Add(limit)
	err := s.seek(ctx)
	if err == nil {
		err = s.enter(ctx, a.Command+"\n", limit)
	}
	var got match
	if err == nil {
		got, err = s.expect(ctx, withPrompt(patterns), time.Until(deadline))
	}
	if err != nil {
		return nil, a.late(err, limit)
	}
	o := observation{Output: clean(got.before), Code: new(int), Expect: got.text, Type: "bash"}
	if !a.Quit {
		// A program can have turned the echo on.
		o.Output = strings.TrimSpace(strings.TrimPrefix(strings.TrimLeft(o.Output, " \t\r\n"), a.Command))
		return o, nil
	}
	_, err = s.run(ctx, action{Command: "stty -echo", Check: "silent"}, nil, quitTime)
	return o, err
}

// interrupt presses Ctrl-C until the prompt comes. A program that ignores it is stopped and killed.
func (s *shell) interrupt(ctx context.Context, a action, patterns []*regexp.Regexp, limit time.Duration) (any, error) {
	if err := s.seek(ctx); err != nil {
		return nil, err
	}
	patterns = withPrompt(patterns)
	retries := 3
	if a.Retries != nil {
		retries = *a.Retries
	}
	for range retries {
		got, err := s.press(ctx, ctrlC, patterns, limit)
		if err == nil {
			return s.interrupted(ctx, clean(got.before), got.text), nil
		}
		if !errors.Is(err, errLate) {
			return nil, err
		}
	}
	stopped, err := s.press(ctx, ctrlZ, patterns, limit)
	if err == nil {
		var killed match
		if killed, err = s.press(ctx, "kill -9 %1\n", patterns, max(limit, settle)); err == nil {
			return s.interrupted(ctx, clean(stopped.before)+clean(killed.before), killed.text), nil
		}
	}
	if errors.Is(err, errLate) {
		err = throw("pexpect.exceptions.TIMEOUT", "Failed to interrupt session")
	}
	return nil, err
}

// press types keys, and waits for a pattern.
func (s *shell) press(ctx context.Context, keys string, patterns []*regexp.Regexp, limit time.Duration) (match, error) {
	if err := s.enter(ctx, keys, limit); err != nil {
		return match{}, err
	}
	return s.expect(ctx, patterns, limit)
}

// interrupted returns the observation of an interrupt that has ended, with the output that came right after it.
func (s *shell) interrupted(ctx context.Context, output, expected string) observation {
	rest, _ := s.expect(ctx, nil, settle) // always late
	return observation{Output: strings.TrimSpace(output + clean(rest.before)), Code: new(int), Expect: expected, Type: "bash"}
}

// enter types into the terminal. A program that does not read can fill it: then the error is errLate.
func (s *shell) enter(ctx context.Context, keys string, limit time.Duration) error {
	timed, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()
	err := s.svc.Input(timed, s.sandbox, s.process, strings.NewReader(keys), false)
	if err != nil && ctx.Err() == nil && timed.Err() != nil {
		return errLate
	}
	return err
}

// seek finds the end of the output, if the end of the last answer is unknown.
func (s *shell) seek(ctx context.Context) (err error) {
	if s.cursor == unknown {
		s.cursor, err = s.svc.Logs(ctx, hutch.LogsRequest{SandboxID: s.sandbox, ProcessID: s.process}, func(hutch.Output) error { return nil })
	}
	if err != nil {
		s.cursor = unknown
	}
	return err
}

// discard removes the file of a command, even if the client has disconnected.
func (s *shell) discard(ctx context.Context, file string) {
	ctx, cancel := compat.Cleanup(ctx)
	defer cancel()
	s.svc.Delete(ctx, s.sandbox, file, false) // usually the shell has removed it already
}
