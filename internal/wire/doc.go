// Package wire is the protocol between the daemon and the agent inside a
// sandbox. This comment is its specification.
//
// # The idea
//
// A connection carries one request at a time: the daemon sends a request, the
// agent answers with a stream of frames whose last one ends the request,
// and the connection is free for the next one. There is no multiplexing:
// requests in parallel are connections in parallel, so the kernel's own flow
// control holds a slow reader back without holding anyone else, and to cancel
// is to close. What must outlive a connection (processes and their output)
// lives in the agent under an id, and is read again from a cursor.
//
// The daemon trusts nothing that comes from the agent: frames are bounded,
// replies have a deadline, every field is checked where it is decoded, and a
// violation closes the connection. It never sends back what it was sent. A
// hello that is not answered in time is said again on another connection; a
// request never is.
//
// # Proof
//
// Both sides know the token, and neither ever sends it. Each sends a random number, and then the HMAC-SHA256 by the
// token of its own side's name and both numbers. The agent proves itself first: to a program that has replaced it, the
// daemon says nothing but its own random number. No request is read before the daemon's proof. What comes after that is
// neither encrypted nor signed: a program that passes on all bytes between the two can read them, so no program inside
// must be able to do that.
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
//	E  end of stdin, empty       of what an input request sends, likewise
//	S  signal, JSON [Signal]     for the attached process and all it started
//
// From the agent, at most [MaxReply] bytes:
//
//	h  welcome, JSON [Welcome]   answers hello, with the agent's proof
//	e  error, JSON [Failure]     ends the request; in answer to hello or proof, the connection
//	r  reply, JSON               ends a request that has one answer
//	s  started, JSON [Process]   first frame of start, attach, input and wait,
//	                             with a [ContextInfo] of run
//	1  stdout                    8 bytes cursor after the data, then the data
//	2  stderr                    likewise
//	g  gap, 8 bytes              this many bytes of output are no longer kept
//	t  time, 8 bytes             Unix time in ms at which the output that follows
//	                             had been read; in an attach with Times only
//	w  window, 8 bytes           so many bytes of stdin, in all, have been
//	                             written to the program
//	d  data                      a piece of a file or an archive
//	i  items, JSON               an array of [hutch.FileInfo], [hutch.Match]
//	                             or [hutch.FileEvent]
//	x  exit, JSON [Exit]         ends start and attach; of a run, JSON [RunEnd]
//	b  begun, JSON [Begun]       the turn of a run has come
//	m  a piece of a message of a run's interpreter, after a byte: + when
//	                             more pieces of it follow, else .
//
// The daemon has at most [StdinWindow] bytes of stdin, or [FileWindow] of an
// archive, under way that no window frame has confirmed. The agent keeps that many
// in memory, so it never stops reading the connection, and sees S frames and
// the end of the connection while a program leaves its stdin unread.
//
// Between requests the agent ignores I, E and S: they were sent before the
// daemon had read the exit of the process they were for.
//
// # Requests
//
//	start    runs a process. Attached (the default): its output follows, then
//	         its exit; when the connection closes before that, the whole tree is
//	         killed; output that is not read stops the program as a full pipe
//	         does. Detached: r with its [Process] at once; it stays when the
//	         connection goes, and its log keeps the newest [LogSize] bytes,
//	         and up to [MaxLog] where there is room on disk.
//	attach   output of a process from a cursor on: s, output, and with Follow
//	         everything until x; without it, x after what there was at its
//	         start (State tells whether the process has ended). Closing an
//	         attach kills nothing. With SinceMS it begins at the first output
//	         of that time or later, and with Times it says when output came.
//	         Both are younger than version 2 of the protocol: an agent without
//	         them sends everything, and no times.
//	list     r with a []Process: the detached, live and ended, oldest first.
//	signal   signals a detached process and all it started; r with {}.
//	ping     r with a [Stats].
//	input    writes to the input of a detached process: s, then the daemon sends
//	         I frames and one E; r with {} when all is written. It may take as
//	         long as the program likes; to give up is to close. Requests in
//	         parallel mix their frames, each of them whole.
//	resize   changes the size of a terminal; r with {}.
//	wait     waits for a detached process to end or, with Port, for a server: s,
//	         and when one of them has come r with a [Waited]. The agent connects
//	         to the port, and asks by HTTP when there is a Path, again and again
//	         at intervals from 2 to 50 ms (HTTP: 250 ms).
//	adopt    gives an instance that was made ahead, or from the memory of another,
//	         its [Identity]; r with {}. With another token it closes all
//	         connections.
//	park     closes all connections until the instance has been saved; r with {}.
//	port     connects with a server inside: r with {}, and from then on the
//	         connection carries the bytes of that one, both ways, and their
//	         ends. Where nothing listens, e of kind not_found.
//	listening  r with an array of the ports that a program listens on.
//	clean    forgets the detached processes that have ended; r with a [Cleaned].
//
// # Files
//
// The requests about files have a [File], and everything in them happens with
// the rights of the user that processes run as. stat and edit are answered by r
// with a hutch.FileInfo or hutch.Edit, mkdir and chmod by r with {}. The others
// may take long: first s, then what follows, at last r, or e at any point;
// closing the connection ends them.
//
//	read     s is the hutch.FileInfo, then d. A file that has a size gives
//	         exactly the range of it that is asked for, or e.
//	write    I and E frames from the daemon, as fast as the connection takes them,
//	         which a w of [Unbounded] says at once; r is the hutch.FileInfo. A
//	         connection that closes before E leaves the file as it was.
//	files    i with hutch.FileInfo
//	search   i with hutch.Match
//	watch    i with hutch.FileEvent, until the folder is gone
//	pack     d
//	unpack   I and E frames from the daemon, within the window that w confirms
//	move, copy, delete
//
// # Code contexts
//
//	context  makes a code context, a queue of runs before an interpreter that
//	         keeps its state; r with its [ContextInfo]. One of the same id is
//	         returned as it is; without Argv none is made.
//	spare    starts an interpreter for a future context; r with {} when it is
//	         prepared. The first context that can takes it.
//	contexts r with a []ContextInfo, oldest first.
//	uncontext  ends a context and all it started; r with {}.
//	interrupt  ends the run under way in a context, as Ctrl-C would; r with {}.
//	run      runs code in a context, in the order in which they come: s with the
//	         [ContextInfo], b when its turn has come, output and messages in
//	         their order, x. The time limit counts from b. At its end, or when
//	         the connection closes, the run is interrupted; what it started is
//	         killed, and at last the interpreter. The next run then gets a new
//	         one, which its b says.
//
// Cursors count bytes of stdout and stderr together, in the order in which the
// agent read them, from 0.
//
// # Time limits and trees
//
// A process may have a time limit; the agent enforces it, and the daemon
// enforces it again from outside with some grace. A kill takes the whole
// tree: the root of a process is a child subreaper, so whatever it started
// stays below it, however often it forked. A filter of system calls lets
// nothing give that up, or make a child of its parent (CLONE_PARENT). Every
// process bears [ProcessEnv] in its environment, too. When the root ends by itself, what it left
// behind stays, as with any shell; its output is still read and kept.
package wire
