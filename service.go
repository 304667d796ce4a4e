package hutch

import "context"

// Service is everything Hutch does, as one interface. MCP, REST and the other
// surfaces call it; the engine implements it, and package client implements
// it over HTTP.
//
// Every method is safe for concurrent use, honours its context, and returns
// errors of type [*Error]. A sandbox of another owner is NotFound. Methods
// that use a sandbox wake it and count as its use; those that only read
// records (Sandbox, Sandboxes, Process, Processes) do neither.
type Service interface {
	Files

	// Create returns the sandbox of the given id, making it when there is
	// none; callers that race for one id get the same sandbox. All or
	// nothing: a failed create leaves nothing behind.
	Create(ctx context.Context, req CreateRequest) (Sandbox, error)

	// Sandbox returns the record of one sandbox.
	Sandbox(ctx context.Context, id string) (Sandbox, error)

	// Sandboxes lists the caller's sandboxes, oldest first.
	Sandboxes(ctx context.Context, f Filter) ([]Sandbox, error)

	// Update changes how long a sandbox stays, and its labels. It does not wake
	// a sandbox; its idle time begins again.
	Update(ctx context.Context, id string, req UpdateRequest) (Sandbox, error)

	// Destroy ends a sandbox and frees all it holds. It is idempotent: one
	// that is gone, or never was, gives a receipt too. Without force, one
	// with live background processes is refused with Conflict.
	Destroy(ctx context.Context, id string, force bool) (Destruction, error)

	// Exec runs a command and waits. Output goes to out as it is read, if
	// out is not nil: a slow out slows the program down, an error from it
	// cancels. When ctx is done or out fails, the whole process tree is
	// killed, and the result holds what was printed until then beside the
	// error. The time limit is not an error: the result says TimedOut.
	//
	// A resumable command runs on when ctx is done or out fails: for ExecGrace,
	// after which it is killed unless ResumeExec has been called. Only a ctx
	// whose cause is an [*Error] of kind Conflict (the caller cancelled) or
	// Denied (its token ended) kills it at once.
	Exec(ctx context.Context, sandbox string, req ExecRequest, out func(Output) error) (ExecResult, error)

	// ResumeExec hands the output of a resumable command to out from a cursor
	// on, without a gap and without repetition, and returns what its Exec
	// would have returned. A call that is under way for the same command ends
	// with Conflict. The newest output is kept, at least 64 KiB and up to
	// 512 KiB behind what was handed out last; Output.Lost counts what the
	// cursor came too late for. When ctx is done or out fails, the command
	// runs on as with Exec. One that is not there, or no longer, is NotFound.
	ResumeExec(ctx context.Context, sandbox, exec string, cursor int64, out func(Output) error) (ExecResult, error)

	// CancelExec kills a resumable command with everything it started, and
	// waits until it has ended. What it printed can be read for ExecGrace. One
	// that has ended already stays as it is.
	CancelExec(ctx context.Context, sandbox, exec string) error

	// StartProcess starts a background process.
	StartProcess(ctx context.Context, sandbox string, req ProcessRequest) (Process, error)

	// Process returns the record of one background process.
	Process(ctx context.Context, sandbox, process string) (Process, error)

	// Processes lists background processes, oldest first. Those that ended
	// are kept for a while, at most 64.
	Processes(ctx context.Context, sandbox string) ([]Process, error)

	// Logs hands the output of a background process to out, from a cursor,
	// and returns the cursor to go on from.
	Logs(ctx context.Context, req LogsRequest, out func(Output) error) (int64, error)

	// Signal sends a signal (1 to 64) to a background process and everything
	// it started. A killed process is not restarted.
	Signal(ctx context.Context, sandbox, process string, signal int) error

	Git

	ProcessControl
	Contexts
	Snapshots
	Ports
	Networks
}
