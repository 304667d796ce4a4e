package sdk

import (
	"bytes"
	"context"
	"errors"

	"hutch"
)

type call = func(calls, context.Context, arguments) (any, error)

// nothing makes a call whose answer is empty.
func nothing(f func(calls, context.Context, arguments) error) call {
	return func(c calls, ctx context.Context, a arguments) (any, error) { return nil, f(c, ctx, a) }
}

// on makes a call whose answer is one value.
func on[T any](f func(calls, context.Context, arguments) (T, error)) call {
	return func(c calls, ctx context.Context, a arguments) (any, error) { return f(c, ctx, a) }
}

// table has every call of the cases.
var table = map[string]call{
	"createSandbox": on(func(c calls, ctx context.Context, a arguments) (hutch.Sandbox, error) {
		return c.Create(ctx, request[hutch.CreateRequest](a))
	}),
	"getSandbox":    on(func(c calls, ctx context.Context, a arguments) (hutch.Sandbox, error) { return c.Sandbox(ctx, a.id()) }),
	"listSandboxes": calls.sandboxes,
	"updateSandbox": on(func(c calls, ctx context.Context, a arguments) (hutch.Sandbox, error) {
		return c.Update(ctx, a.id(), request[hutch.UpdateRequest](a))
	}),
	"destroySandbox": on(func(c calls, ctx context.Context, a arguments) (hutch.Destruction, error) {
		return c.Destroy(ctx, a.id(), a.is("force"))
	}),
	"listLanguages": on(func(c calls, ctx context.Context, a arguments) ([]hutch.Language, error) {
		return c.Languages(ctx, a.id())
	}),
	"listInstanceTypes": on(func(c calls, ctx context.Context, _ arguments) ([]hutch.InstanceType, error) {
		return c.InstanceTypes(ctx)
	}),
	"readVersion": on(func(c calls, ctx context.Context, _ arguments) (hutch.Version, error) { return c.Version(ctx) }),

	"exec":       calls.exec,
	"execStream": calls.execStream,
	"resumeExec": calls.resumeExec,
	"cancelExec": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.CancelExec(ctx, a.id(), a.text("exec"))
	}),

	"ask":       calls.ask,
	"askStream": calls.askStream,

	"runAgent":          whole(calls.runAgent),
	"runAgentStream":    steps(calls.runAgent),
	"promptAgent":       whole(calls.promptAgent),
	"promptAgentStream": steps(calls.promptAgent),
	"followAgent":       whole(calls.followAgent),
	"followAgentStream": steps(calls.followAgent),
	"tryAgent":          wholeTries(calls.tryAgent),
	"tryAgentStream":    triesSteps(calls.tryAgent),
	"followTries":       wholeTries(calls.followTries),
	"followTriesStream": triesSteps(calls.followTries),
	"stopAgent":         nothing(func(c calls, ctx context.Context, a arguments) error { return c.StopAgent(ctx, a.text("session")) }),

	"run":       calls.run,
	"runStream": calls.runStream,
	"createContext": on(func(c calls, ctx context.Context, a arguments) (hutch.CodeContext, error) {
		return c.CreateContext(ctx, a.id(), request[hutch.ContextRequest](a))
	}),
	"listContexts": on(func(c calls, ctx context.Context, a arguments) ([]hutch.CodeContext, error) {
		return c.Contexts(ctx, a.id())
	}),
	"deleteContext": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.DeleteContext(ctx, a.id(), a.text("context"))
	}),
	"interruptContext": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.Interrupt(ctx, a.id(), a.text("context"))
	}),

	"startProcess": on(func(c calls, ctx context.Context, a arguments) (hutch.Process, error) {
		return c.StartProcess(ctx, a.id(), request[hutch.ProcessRequest](a))
	}),
	"getProcess": on(func(c calls, ctx context.Context, a arguments) (hutch.Process, error) {
		return c.Process(ctx, a.id(), a.text("process"))
	}),
	"listProcesses": on(func(c calls, ctx context.Context, a arguments) ([]hutch.Process, error) {
		return c.Processes(ctx, a.id())
	}),
	"cleanProcesses": on(func(c calls, ctx context.Context, a arguments) (map[string]int, error) {
		n, err := c.CleanProcesses(ctx, a.id())
		return map[string]int{"removed": n}, err
	}),
	"signalProcess": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.Signal(ctx, a.id(), a.text("process"), int(a.number("signal")))
	}),
	"waitProcess": on(func(c calls, ctx context.Context, a arguments) (hutch.WaitResult, error) {
		return c.Wait(ctx, a.id(), a.text("process"), request[hutch.WaitRequest](a))
	}),
	"readLogs":   func(c calls, ctx context.Context, a arguments) (any, error) { return c.logs(ctx, a, false) },
	"followLogs": func(c calls, ctx context.Context, a arguments) (any, error) { return c.logs(ctx, a, true) },
	"writeInput": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.Input(ctx, a.id(), a.text("process"), bytes.NewReader(a.bytes("content")), a.is("end"))
	}),
	"terminal": calls.terminal,

	"readFile":  calls.readFile,
	"writeFile": calls.writeFile,
	"editFile": on(func(c calls, ctx context.Context, a arguments) (hutch.Edit, error) {
		return c.EditFile(ctx, a.id(), request[hutch.EditRequest](a))
	}),
	"statFile": on(func(c calls, ctx context.Context, a arguments) (hutch.FileInfo, error) {
		return c.Stat(ctx, a.id(), a.text("path"))
	}),
	"fileExists":  calls.fileExists,
	"listFiles":   calls.listFiles,
	"searchFiles": calls.searchFiles,
	"makeFolder": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.Mkdir(ctx, a.id(), a.text("path"), a.is("parents"))
	}),
	"moveFile": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.Move(ctx, a.id(), a.text("from"), a.text("to"), a.is("replace"))
	}),
	"copyFile": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.Copy(ctx, a.id(), a.text("from"), a.text("to"), a.is("replace"))
	}),
	"deleteFile": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.Delete(ctx, a.id(), a.text("path"), a.is("recursive"))
	}),
	"chmodFile": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.Chmod(ctx, a.id(), a.text("path"), a.mode())
	}),
	"watchFiles": calls.watch,
	"packFiles":  calls.pack,
	"unpackFiles": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.Unpack(ctx, a.id(), hutch.UnpackRequest{Dir: a.text("path"), Format: hutch.ArchiveFormat(a.text("format"))}, bytes.NewReader(a.bytes("content")))
	}),

	"gitClone": on(func(c calls, ctx context.Context, a arguments) (hutch.GitRepository, error) {
		return c.GitClone(ctx, a.id(), request[hutch.GitCloneRequest](a))
	}),
	"gitStatus": on(func(c calls, ctx context.Context, a arguments) (hutch.GitStatus, error) {
		return c.GitStatus(ctx, a.id(), a.text("dir"))
	}),
	"gitDiff": on(func(c calls, ctx context.Context, a arguments) (string, error) {
		return c.GitDiff(ctx, a.id(), hutch.GitDiffRequest{Dir: a.text("dir")})
	}),
	"gitCommit": on(func(c calls, ctx context.Context, a arguments) (hutch.GitRepository, error) {
		return c.GitCommit(ctx, a.id(), request[hutch.GitCommitRequest](a))
	}),

	"shareTerminal": on(func(c calls, ctx context.Context, a arguments) (hutch.SharedTerminal, error) {
		return c.ShareTerminal(ctx, a.id(), a.text("process"), hutch.Seconds(a.number("lifetime")))
	}),
	"listTerminalLinks": on(func(c calls, ctx context.Context, a arguments) ([]hutch.TerminalLink, error) {
		return c.TerminalLinks(ctx, a.id(), a.text("process"))
	}),
	"unshareTerminal": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.UnshareTerminal(ctx, a.id(), a.text("process"), a.text("link"))
	}),

	"exposePort": on(func(c calls, ctx context.Context, a arguments) (hutch.Port, error) {
		return c.Expose(ctx, a.id(), request[hutch.ExposeRequest](a))
	}),
	"unexposePort": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.Unexpose(ctx, a.id(), int(a.number("port")))
	}),
	"listPorts": on(func(c calls, ctx context.Context, a arguments) ([]hutch.Port, error) { return c.Ports(ctx, a.id()) }),
	"validatePortToken": on(func(c calls, ctx context.Context, a arguments) (map[string]bool, error) {
		valid, err := c.ValidatePortToken(ctx, a.id(), int(a.number("port")), a.text("token"))
		return map[string]bool{"valid": valid}, err
	}),
	"linkPort": on(func(c calls, ctx context.Context, a arguments) (hutch.PortLink, error) {
		return c.LinkPort(ctx, a.id(), int(a.number("port")), hutch.Seconds(a.number("lifetime")))
	}),

	"startScreen": on(func(c calls, ctx context.Context, a arguments) (hutch.Screen, error) {
		return c.StartScreen(ctx, a.id(), request[hutch.ScreenRequest](a))
	}),
	"getScreen":      on(func(c calls, ctx context.Context, a arguments) (hutch.Screen, error) { return c.Screen(ctx, a.id()) }),
	"takeScreenshot": calls.takeScreenshot,
	"controlScreen":  calls.controlScreen,
	"readClipboard": on(func(c calls, ctx context.Context, a arguments) (hutch.Clipboard, error) {
		text, err := c.ReadClipboard(ctx, a.id())
		return hutch.Clipboard{Text: text}, err
	}),
	"writeClipboard": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.WriteClipboard(ctx, a.id(), a.text("text"))
	}),
	"openUrl": on(func(c calls, ctx context.Context, a arguments) (hutch.Process, error) {
		return c.OpenURL(ctx, a.id(), a.text("url"))
	}),
	"viewScreen": calls.viewScreen,

	"getNetwork": on(func(c calls, ctx context.Context, a arguments) (hutch.NetworkState, error) {
		return c.Network(ctx, a.id())
	}),
	"setNetwork": on(func(c calls, ctx context.Context, a arguments) (hutch.NetworkState, error) {
		return c.SetNetwork(ctx, a.id(), request[hutch.Network](a))
	}),
	"listConnections": calls.connections,
	"readTimeline":    calls.timeline,

	"createSnapshot": on(func(c calls, ctx context.Context, a arguments) (hutch.Snapshot, error) {
		return c.Snapshot(ctx, a.id(), request[hutch.SnapshotRequest](a))
	}),
	"forkSandbox": on(func(c calls, ctx context.Context, a arguments) ([]hutch.Sandbox, error) {
		return c.Fork(ctx, a.id(), request[hutch.ForkRequest](a))
	}),
	"pauseSandbox": on(func(c calls, ctx context.Context, a arguments) (hutch.Sandbox, error) { return c.Pause(ctx, a.id()) }),
	"readStats": on(func(c calls, ctx context.Context, _ arguments) (hutch.StatsReport, error) {
		return c.stats(ctx, hutch.StatsRequest{})
	}),
	"readStatsHistory": on(func(c calls, ctx context.Context, a arguments) (hutch.StatsHistory, error) {
		return c.StatsHistory(ctx, a.id(), hutch.StatsQuery{Step: request[hutch.StatsQuery](a).Step})
	}),
	"watchStats": on(func(c calls, ctx context.Context, a arguments) (hutch.StatsReport, error) {
		return c.stats(ctx, hutch.StatsRequest{Follow: true, Interval: request[hutch.StatsRequest](a).Interval})
	}),
	"hibernateSandbox": on(func(c calls, ctx context.Context, a arguments) (hutch.Sandbox, error) {
		return c.Hibernate(ctx, a.id(), request[hutch.HibernateRequest](a))
	}),
	"resumeSandbox": on(func(c calls, ctx context.Context, a arguments) (hutch.Sandbox, error) { return c.Resume(ctx, a.id()) }),
	"listSnapshots": on(func(c calls, ctx context.Context, _ arguments) ([]hutch.Snapshot, error) { return c.Snapshots(ctx) }),
	"tagSnapshot": on(func(c calls, ctx context.Context, a arguments) (hutch.Snapshot, error) {
		return c.TagSnapshot(ctx, a.text("snapshot"), request[hutch.SnapshotTag](a))
	}),
	"diffSnapshot": on(func(c calls, ctx context.Context, a arguments) (hutch.SnapshotDiff, error) {
		return c.DiffSnapshot(ctx, a.text("snapshot"), request[hutch.SnapshotDiffRequest](a))
	}),
	"deleteSnapshot": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.DeleteSnapshot(ctx, a.text("snapshot"))
	}),
	"createTemplate": on(func(c calls, ctx context.Context, a arguments) (hutch.Snapshot, error) {
		return c.CreateTemplate(ctx, request[hutch.TemplateRequest](a))
	}),

	"createBackup": on(func(c calls, ctx context.Context, a arguments) (hutch.Backup, error) {
		return c.Backup(ctx, a.id(), request[hutch.BackupRequest](a))
	}),
	"restoreBackup": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.RestoreBackup(ctx, a.text("backup"), request[hutch.RestoreBackupRequest](a))
	}),
	"listBackups":  on(func(c calls, ctx context.Context, _ arguments) ([]hutch.Backup, error) { return c.Backups(ctx) }),
	"deleteBackup": nothing(func(c calls, ctx context.Context, a arguments) error { return c.DeleteBackup(ctx, a.text("backup")) }),

	"createVolume": on(func(c calls, ctx context.Context, a arguments) (hutch.Volume, error) {
		return c.CreateVolume(ctx, request[hutch.VolumeRequest](a))
	}),
	"listVolumes": on(func(c calls, ctx context.Context, _ arguments) ([]hutch.Volume, error) { return c.Volumes(ctx) }),
	"readVolumeRecord": on(func(c calls, ctx context.Context, a arguments) (hutch.Volume, error) {
		return c.Volume(ctx, a.text("volume"))
	}),
	"deleteVolume": nothing(func(c calls, ctx context.Context, a arguments) error {
		return c.DeleteVolume(ctx, a.text("volume"), a.is("force"))
	}),
	"saveVolumes": on(func(c calls, ctx context.Context, a arguments) ([]hutch.Volume, error) {
		return c.SaveVolumes(ctx, a.id())
	}),
	"readVolume": calls.readVolume,
	"writeVolume": on(func(c calls, ctx context.Context, a arguments) (hutch.Volume, error) {
		return c.WriteVolume(ctx, a.text("volume"), a.text("path"), bytes.NewReader(a.bytes("content")))
	}),

	"setSecret": on(func(c calls, ctx context.Context, a arguments) (hutch.Secret, error) {
		return c.SetSecret(ctx, a.text("name"), request[hutch.SecretRequest](a))
	}),
	"listSecrets":  on(func(c calls, ctx context.Context, _ arguments) ([]hutch.Secret, error) { return c.Secrets(ctx) }),
	"deleteSecret": nothing(func(c calls, ctx context.Context, a arguments) error { return c.DeleteSecret(ctx, a.text("name")) }),
}

// stats returns the first report.
func (c calls) stats(ctx context.Context, req hutch.StatsRequest) (first hutch.StatsReport, err error) {
	enough := errors.New("enough")
	err = c.Stats(ctx, req, func(r hutch.StatsReport) error { first = r; return enough })
	if err == enough {
		err = nil
	}
	return first, err
}
