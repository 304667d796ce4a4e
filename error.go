package hutch

import (
	"errors"
	"fmt"
	"maps"
)

// Kind says what an error means, not where it arose. Each surface maps kinds to its own codes in one table. Kinds are
// part of the wire protocol.
type Kind string

const (
	Invalid     Kind = "invalid"     // the request is wrong; repeating it fails again
	Denied      Kind = "denied"      // understood, and not allowed
	NotFound    Kind = "not_found"   // the thing does not exist, or is not yours
	Conflict    Kind = "conflict"    // the request conflicts with the present state
	Exhausted   Kind = "exhausted"   // a limit is reached; the message names it
	Unsupported Kind = "unsupported" // this runtime or image cannot do it
	Unavailable Kind = "unavailable" // not possible now; repeating it can succeed
	Timeout     Kind = "timeout"     // the time limit ran out
	Internal    Kind = "internal"    // a fault of the server; the cause is in the log
)

func (k Kind) Error() string { return string(k) }

// Error is an error with a kind and a message written for the person or model
// that reads it: what happened, why, and what to do next.
type Error struct {
	Kind    Kind
	Message string
	// Cause is logged and never shown: it can name paths of the host.
	Cause error
	// Data is shown with the message: small, and safe to show.
	Data map[string]any
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Cause }

// Is makes errors.Is(err, hutch.NotFound) true for an error of that kind.
func (e *Error) Is(target error) bool { return target == error(e.Kind) }

// Errorf makes an error of a kind, with a message to show.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Because returns e with the cause to log.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// With returns e with one more field of Data.
func (e *Error) With(key string, value any) *Error {
	data := maps.Clone(e.Data)
	if data == nil {
		data = map[string]any{}
	}
	data[key] = value
	c := *e
	c.Data = data
	return &c
}

// Subject is the sort of thing that an error is about. Its text is the key under which Data has the name of the thing.
type Subject string

const (
	AboutFile    Subject = "path"
	AboutProcess Subject = "processId"
	AboutPort    Subject = "port"
	AboutField   Subject = "field" // of the request
	AboutSandbox Subject = "sandboxId"
)

// subjects are in the order in which About looks for them: a part comes before the whole.
var subjects = []Subject{AboutFile, AboutProcess, AboutPort, AboutField, AboutSandbox}

// Naming returns e as an error about a thing, whose name is shown with the message.
func (e *Error) Naming(s Subject, name any) *Error { return e.With(string(s), name) }

// About returns the kind of thing that the error is about, and the name of the thing. An error about a process in a
// sandbox is about the process. Both are empty if the error names nothing. Surfaces use it to choose their answer; they
// do not look at Data.
func (e *Error) About() (Subject, string) {
	for _, s := range subjects {
		if name, ok := e.Data[string(s)]; ok && name != nil {
			return s, fmt.Sprint(name)
		}
	}
	return "", ""
}

// Limit names the limit that an Exhausted error is about; empty if it names none.
func (e *Error) Limit() string {
	name, _ := e.Data["limit"].(string)
	return name
}

// RetryAfter returns after how many seconds to try again; ok is false if the error does not say.
func (e *Error) RetryAfter() (seconds int, ok bool) {
	seconds, ok = e.Data["retryAfter"].(int)
	return seconds, ok
}

// KindOf returns the kind of the first [Error] in err's chain, and Internal when there is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// AsError returns the [Error] to show for err. An error without a kind is a bug in Hutch: the result is then an
// Internal error, with err as its hidden cause.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Internal, Message: "internal error; the server's log has the cause", Cause: err}
}
