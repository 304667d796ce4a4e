package hutch

import "context"

// Service is what callers do with sandboxes. MCP, REST and the other surfaces call it. The engine implements it on this
// machine, fleet on several machines, and package client over HTTP. Things outside of sandboxes have their own
// interfaces, such as [Images], [Volumes] and [Tokens].
//
// Every method is safe for concurrent use, honours its context, and returns errors of type [*Error]. A sandbox of
// another owner is NotFound. Methods that use a sandbox wake it and count as its use; those that only read records
// (Sandbox, Sandboxes, Process, Processes) do neither.
type Service interface {
	Files

	// Create returns the sandbox with the given id, and creates it if it does not exist; concurrent callers for one id
	// get the same sandbox. A create that fails leaves nothing behind.
	Create(ctx context.Context, req CreateRequest) (Sandbox, error)

	// Sandbox returns the record of one sandbox.
	Sandbox(ctx context.Context, id string) (Sandbox, error)

	// Sandboxes lists the caller's sandboxes, oldest first.
	Sandboxes(ctx context.Context, f Filter) ([]Sandbox, error)

	// InstanceTypes lists the sizes that [CreateRequest.InstanceType] can name.
	InstanceTypes(ctx context.Context) ([]InstanceType, error)

	// Update changes how long a sandbox is kept, and its labels. It does not wake the sandbox; the idle time starts
	// again.
	Update(ctx context.Context, id string, req UpdateRequest) (Sandbox, error)

	// Destroy ends a sandbox and frees all its resources. It is idempotent: a missing sandbox gives a receipt too.
	// Without force, a sandbox with live background processes is refused with Conflict.
	Destroy(ctx context.Context, id string, force bool) (Destruction, error)

	// Exec runs a command and waits. If out is not nil, it gets the output as it is read: a slow out slows the program
	// down, and an error from it cancels. When ctx is done or out fails, the whole process tree is killed, and the
	// result that comes with the error has the output until then. The time limit is not an error: the result says
	// TimedOut.
	//
	// A resumable command continues when ctx is done or out fails. It is killed after ExecGrace unless ResumeExec was
	// called. It is killed at once only if the cause of ctx is an [*Error] of kind Conflict (the caller cancelled) or
	// Denied (the caller's token ended).
	Exec(ctx context.Context, sandbox string, req ExecRequest, out func(Output) error) (ExecResult, error)

	// ResumeExec passes the output of a resumable command to out, from a cursor on, without gap or repetition, and
	// returns the same result as the command's Exec. An earlier call for the same command ends with Conflict. The
	// newest 64 KiB of output are always kept, and at most 2 MiB before and 512 KiB after the last byte that was passed
	// on. Output.Lost counts dropped bytes after the cursor. When ctx is done or out fails, the command continues as
	// with Exec. A missing or forgotten command is NotFound.
	ResumeExec(ctx context.Context, sandbox, exec string, cursor int64, out func(Output) error) (ExecResult, error)

	// CancelExec kills a resumable command with everything it started, and waits until it has ended. Its output can be
	// read for ExecGrace. It has no effect on a command that has ended.
	CancelExec(ctx context.Context, sandbox, exec string) error

	// StartProcess starts a background process.
	StartProcess(ctx context.Context, sandbox string, req ProcessRequest) (Process, error)

	// Process returns the record of one background process.
	Process(ctx context.Context, sandbox, process string) (Process, error)

	// Processes lists background processes, oldest first. Ended ones are kept for a while, at most 64.
	Processes(ctx context.Context, sandbox string) ([]Process, error)

	// Logs passes the output of a background process to out, from a cursor on, and returns the cursor to continue
	// from.
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
	Screens
}
