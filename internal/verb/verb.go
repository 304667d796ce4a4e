// Package verb describes all operations of Hutch in one table. Each method of [hutch.Service] and of its companion
// interfaces has a row.
//
// The table is the only definition of a verb's properties. Package policy reads from it who may call the verb, package
// quota how the verb counts, and package audit whether the verb changes anything. REST and the Go client read the
// verb's paths. A method without a row is refused to every caller, and a test fails.
package verb

import "hutch"

// Verb is one row of the table.
type Verb struct {
	Name string // the method, such as "Exec"

	// Routes are the REST routes of the verb, each "METHOD /path/{parameter}". The Go client calls the first. A verb
	// without routes has no REST call of its own.
	Routes []string

	// Scopes are the scopes of the verb; a caller needs one of them.
	Scopes []hutch.Scope

	// Access is what a grant on another owner's sandbox must allow. It is empty for verbs that only the owner can
	// call.
	Access hutch.Access

	About Subject

	// Looks is true for a verb that changes nothing and runs nothing. Calls of other verbs are recorded before they
	// begin.
	Looks bool

	// Frees is true for a verb that gives back memory or disk space. It is counted, but neither an exhausted quota
	// nor a full disk refuses it.
	Frees bool
}

// Subject is the object that a verb acts on.
type Subject int

const (
	// Server verbs are about the server. They do not count as sandbox operations.
	Server Subject = iota
	// Owner verbs are about data of the caller other than an existing sandbox. They count as sandbox operations.
	Owner
	// Sandbox verbs are about an existing sandbox, and count as operations on it.
	Sandbox
)

// Find returns the row of a method.
func Find(name string) (Verb, bool) {
	v, ok := rows[name]
	return v, ok
}

// All lists the rows in the order of the table.
func All() []Verb { return table }

var rows = index()

func index() map[string]Verb {
	m := make(map[string]Verb, len(table))
	for _, v := range table {
		m[v.Name] = v
	}
	return m
}

// Call is one call of a verb, as policy, audit and redaction see it.
type Call struct {
	Verb    string
	Sandbox string // empty if the verb concerns no sandbox
	Target  string // the object of the call in the sandbox, for the record: a path, a process, a command
	Request any    // the request, if the verb has one

	// Runs is true when the call runs something although its verb only looks. The call then needs the scope of Exec.
	Runs bool
	// Secrets is true when the call asks for secrets of the sandbox's owner.
	Secrets bool
}
