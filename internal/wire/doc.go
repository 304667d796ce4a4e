// Package wire is the protocol between the daemon and the agent inside a
// sandbox. This comment is its specification.
//
// # The idea
//
// A connection carries one request at a time: the daemon sends a request, the
// agent answers with a stream of frames whose last one ends the request,
// and the connection is free for the next one. There is no multiplexing:
// requests in parallel use connections in parallel. So the kernel's own flow
// control makes a slow reader wait without delaying any other, and closing a
// connection cancels its request. What must outlive a connection (processes and
// their output) is in the agent under an id, and is read again from a cursor.
//
// The daemon trusts nothing that comes from the agent: frames are bounded,
// replies have a deadline, every field is checked where it is decoded, and a
// violation closes the connection. If a hello is not answered in time, the
// daemon sends another hello on another connection; it never repeats a request.
//
// # Proof
//
// Both sides know the token, and neither ever sends it. Each side sends a random number, and then an HMAC-SHA256, whose
// key is the token, of its side's name and both numbers. The agent sends its proof first, so a program that has replaced
// the agent receives only the daemon's random number. The agent reads no request before the daemon's proof. Later frames
// are neither encrypted nor signed: a program between the two that forwards all bytes can read them, so no program inside
// must be able to be there.
//
// # Frames
//
//	byte 0      type
//	bytes 1-4   length of the payload, big endian
//	then        payload
//
// From the daemon, at most [MaxRequest] bytes:
//
//	H  hello, JSON [Hello]       first frame of every connection
//	P  proof                     second frame: the daemon's, see [Nonces]
//	R  request, JSON [Request]   starts a request
//	I  stdin bytes               for the process of start or input; see window
//	E  end of stdin, empty       also the end of the data of an input request
//	S  signal, JSON [Signal]     for the attached process and all that it started
//
// From the agent, at most [MaxReply] bytes:
//
//	h  welcome, JSON [Welcome]   answers hello, with the agent's proof
//	e  error, JSON [Failure]     ends the request; as the answer to hello or proof, ends the connection
//	r  reply, JSON               ends a request that has one answer
//	s  started, JSON [Process]   first frame of start, attach, input and wait,
//	                             and of run, with a [ContextInfo]
//	1  stdout                    8 bytes cursor after the data, then the data
//	2  stderr                    likewise
//	g  gap, 8 bytes              this many bytes of output are no longer kept
//	t  time, 8 bytes             Unix time in ms at which the agent read the next
//	                             output; only in an attach with Times
//	w  window, 8 bytes           how many bytes of stdin, in total, have been
//	                             written to the program
//	d  data                      a piece of a file or an archive
//	i  items, JSON               an array of [hutch.FileInfo], [hutch.Match]
//	                             or [hutch.FileEvent]
//	x  exit, JSON [Exit]         ends start and attach, and, as JSON [RunEnd], run
//	b  begun, JSON [Begun]       a run has begun
//	m  message of a run          one byte and a piece of a message of the run's
//	                             interpreter; the byte is + if more pieces of
//	                             the message follow, and . otherwise
//
// The daemon sends at most [StdinWindow] bytes of stdin, or [FileWindow] bytes of
// an archive, before a window frame has confirmed them. The agent can keep that many
// in memory. So it never stops reading the connection, and sees S frames and the end
// of the connection even if a program does not read its stdin.
//
// Between requests the agent ignores I, E and S: the daemon sent them to a
// process before it had read that process's exit.
//
// # Requests
//
//	start    runs a process. Attached (the default): its output follows, then
//	         its exit; if the connection closes before that, the whole tree is
//	         killed; output that is not read blocks the program, as a full pipe
//	         does. Detached: r with its [Process] at once; the process continues
//	         when the connection closes, and its log keeps the newest [LogSize]
//	         bytes, and up to [MaxLog] bytes if there is space on disk.
//	attach   returns output of a process from a cursor on: s, output, x. With
//	         Follow, x comes when the process has ended. Without Follow, x comes
//	         after the output that exists when the request begins, and its State
//	         shows whether the process has ended. Closing an attach kills
//	         nothing. SinceMS skips output from before that time, and Times adds
//	         the times of output. Both are newer than version 2 of the protocol:
//	         an agent that does not know them sends all output, and no times.
//	list     r with a []Process: all detached ones, alive and ended, oldest first.
//	signal   signals a detached process and all that it started; r with {}.
//	ping     r with a [Stats].
//	input    writes to the input of a detached process: s, then the daemon sends
//	         I frames and one E; r with {} when all is written. There is no time
//	         limit; the daemon gives up by closing the connection. The frames of
//	         parallel requests are mixed, but no frame is split.
//	resize   changes the size of a terminal; r with {}.
//	wait     waits for a detached process to end or, with Port, for its server: s,
//	         and r with a [Waited] when that has happened. The agent tries to
//	         connect to the port, or to make an HTTP request if there is a Path,
//	         at intervals that grow from 2 to 50 ms (HTTP: 250 ms).
//	adopt    gives its [Identity] to an instance that was made in advance, or from
//	         the memory of another instance; r with {}. If the token changes, all
//	         connections close.
//	park     closes all connections until the instance has been saved; r with {}.
//	port     connects to a server inside: r with {}, and from then on the
//	         connection carries the bytes to and from the server, and the end of
//	         each direction. If nothing listens, e of kind not_found.
//	listening  r with an array of the ports that a program listens on.
//	clean    forgets the detached processes that have ended; r with a [Cleaned].
//
// # Files
//
// The requests about files have a [File], and everything in them happens with
// the rights of the user that processes run as. stat and edit are answered by r
// with a hutch.FileInfo or hutch.Edit, mkdir and chmod by r with {}. The others
// can take long: first s, then the frames of this list, then r; e can come at
// any point. Closing the connection ends them.
//
//	read     s is the hutch.FileInfo, then d. If the file has a size, the answer
//	         is exactly the requested range, or e.
//	write    w of [Unbounded] at once, so that the daemon sends I frames and E as
//	         fast as the connection allows; r is the hutch.FileInfo. If the
//	         connection closes before E, the file does not change.
//	files    i with hutch.FileInfo
//	search   i with hutch.Match
//	watch    i with hutch.FileEvent, until the folder is gone
//	pack     d
//	unpack   I and E frames from the daemon, within the window that w confirms
//	move, copy, delete
//
// # Code contexts
//
//	context  creates a code context, which is an interpreter that keeps its state
//	         and a queue of runs; r with its [ContextInfo]. If a context with that
//	         id exists, it is returned unchanged; without Argv none is created.
//	spare    starts an interpreter for a future context; r with {} when it is
//	         prepared. The first context that can use it takes it.
//	contexts r with a []ContextInfo, oldest first.
//	uncontext  ends a context and all that it started; r with {}.
//	interrupt  ends the current run of a context, like Ctrl-C; r with {}.
//	run      runs code in a context: s with the [ContextInfo], b when the earlier
//	         runs have ended, output and messages in their order, x. The time limit
//	         counts from b. After the time limit, or when the connection closes,
//	         the run is interrupted. If that has no effect, the processes that it
//	         started are killed, and then the interpreter. In that case the next
//	         run has a new interpreter, and its b says so.
//
// Cursors count bytes of stdout and stderr together, in the order in which the
// agent read them, from 0.
//
// # Time limits and trees
//
// A process can have a time limit. The agent enforces it, and the daemon
// enforces it again from outside, a little later. A kill ends the whole tree:
// the root of a process is a child subreaper, so all processes that it started
// stay below it, however often they forked. A filter of system calls prevents
// that a program stops being a subreaper, or makes a child of its own parent
// (CLONE_PARENT). Every process also has [ProcessEnv] in its environment. When
// the root ends by itself, the processes that it left behind continue, as with
// any shell, and their output is still read and kept.
package wire
