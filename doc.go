// Package hutch is the vocabulary of Hutch, a self-hosted sandbox platform for AI agents: the domain types, the errors
// and the interfaces of every surface, above all [Service].
//
// The engine implements Service on this machine, fleet on several machines, policy wraps both, and package hutch/client
// implements it over HTTP; one contract suite (internal/servicetest) tests all of them. This package imports only the
// standard library, so that any package can import it.
//
// Units are the same everywhere: durations in JSON are numbers of seconds ([Seconds]) unless a name says milliseconds,
// memory and disk are MiB, CPU is in cores when it is a limit and in percent of one core when it is a reading.
package hutch
