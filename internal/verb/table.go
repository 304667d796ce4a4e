package verb

import "hutch"

// The scopes of groups of verbs. A caller needs one scope of the list.
var (
	see        = []hutch.Scope{hutch.ScopeRead, hutch.ScopeExec, hutch.ScopeFiles}
	follow     = []hutch.Scope{hutch.ScopeRead, hutch.ScopeExec}
	run        = []hutch.Scope{hutch.ScopeExec}
	read       = []hutch.Scope{hutch.ScopeRead, hutch.ScopeFiles}
	change     = []hutch.Scope{hutch.ScopeFiles}
	ports      = []hutch.Scope{hutch.ScopePorts}
	connect    = []hutch.Scope{hutch.ScopePorts, hutch.ScopeExec}
	seePorts   = []hutch.Scope{hutch.ScopeRead, hutch.ScopeExec, hutch.ScopePorts}
	administer = []hutch.Scope{hutch.ScopeAdmin}
	byKey      = []hutch.Scope{hutch.ScopeExec, hutch.ScopeFiles}
)

// Paths that several verbs share.
const (
	sandboxes = "/v1/sandboxes"
	sandbox   = sandboxes + "/{id}"
	process   = sandbox + "/processes/{process}"
	contexts  = sandbox + "/contexts"
	files     = sandbox + "/files"
	port      = sandbox + "/ports/{port}"
	screen    = sandbox + "/screen"
	images    = "/v1/images"
	builds    = "/v1/builds"
	volumes   = "/v1/volumes"
	ssh       = "/v1/ssh"
	nodes     = "/v1/nodes"
	node      = nodes + "/{node}"
)

// The common kinds of rows. A row that differs sets its fields itself.

// looking returns a verb that reads something of a sandbox.
func looking(name string, scopes []hutch.Scope, routes ...string) Verb {
	return Verb{Name: name, Routes: routes, Scopes: scopes, Access: hutch.ReadAccess, About: Sandbox, Looks: true}
}

// acting returns a verb that runs or changes something in a sandbox.
func acting(name string, scopes []hutch.Scope, routes ...string) Verb {
	return Verb{Name: name, Routes: routes, Scopes: scopes, Access: hutch.WriteAccess, About: Sandbox}
}

// owning returns a verb on a sandbox that only its owner may call.
func owning(name string, scopes []hutch.Scope, routes ...string) Verb {
	return Verb{Name: name, Routes: routes, Scopes: scopes, About: Sandbox}
}

// keeping returns a verb on data of an owner other than sandboxes.
func keeping(name string, scopes []hutch.Scope, routes ...string) Verb {
	return Verb{Name: name, Routes: routes, Scopes: scopes, About: Owner}
}

// serving returns a verb on the server itself.
func serving(name string, scopes []hutch.Scope, routes ...string) Verb {
	return Verb{Name: name, Routes: routes, Scopes: scopes, About: Server}
}

func (v Verb) looks() Verb { v.Looks = true; return v }
func (v Verb) frees() Verb { v.Frees = true; return v }

// table has a row for every verb, in the order of the interfaces.
var table = []Verb{
	// Service
	keeping("Create", run, "POST "+sandboxes),
	looking("Sandbox", see, "GET "+sandbox),
	keeping("Sandboxes", see, "GET "+sandboxes).looks(),
	serving("InstanceTypes", see, "GET /v1/instance-types").looks(),
	owning("Update", run, "PATCH "+sandbox),
	owning("Destroy", run, "DELETE "+sandbox).frees(),
	acting("Exec", run, "POST "+sandbox+"/exec", "GET "+sandbox+"/exec"),
	acting("ResumeExec", run, "GET "+sandbox+"/exec/{exec}"),
	acting("CancelExec", run, "DELETE "+sandbox+"/exec/{exec}"),
	acting("StartProcess", run, "POST "+sandbox+"/processes"),
	looking("Process", follow, "GET "+process),
	looking("Processes", follow, "GET "+sandbox+"/processes"),
	looking("Logs", follow, "GET "+process+"/logs"),
	acting("Signal", run, "POST "+process+"/signal"),

	// ProcessControl
	acting("Input", run, "POST "+process+"/input"),
	acting("Resize", run, "POST "+process+"/resize"),
	looking("Wait", follow, "POST "+process+"/wait"),
	acting("CleanProcesses", run, "DELETE "+sandbox+"/processes"),
	looking("Languages", follow, "GET "+sandbox+"/languages"),

	// Contexts
	acting("CreateContext", run, "POST "+contexts),
	looking("Contexts", follow, "GET "+contexts),
	acting("DeleteContext", run, "DELETE "+contexts+"/{context}"),
	acting("Interrupt", run, "POST "+contexts+"/{context}/interrupt"),
	acting("RunCode", run, "POST "+sandbox+"/run", "GET "+sandbox+"/run", "POST "+contexts+"/{context}/run", "GET "+contexts+"/{context}/run"),

	// Git
	acting("GitClone", run, "POST "+sandbox+"/git/clone"),
	looking("GitStatus", read, "GET "+sandbox+"/git/status"),
	looking("GitDiff", read, "GET "+sandbox+"/git/diff"),
	acting("GitCommit", run, "POST "+sandbox+"/git/commit"),

	// Files
	looking("ReadFile", read, "GET "+files+"/content"),
	acting("WriteFile", change, "PUT "+files+"/content"),
	acting("EditFile", change, "POST "+files+"/edit"),
	looking("Stat", read, "GET "+files+"/stat"),
	looking("ListFiles", read, "GET "+files),
	looking("SearchFiles", read, "GET "+files+"/search"),
	acting("Mkdir", change, "POST "+files+"/mkdir"),
	acting("Move", change, "POST "+files+"/move"),
	acting("Copy", change, "POST "+files+"/copy"),
	acting("Delete", change, "DELETE "+files),
	acting("Chmod", change, "POST "+files+"/chmod"),
	looking("Watch", read, "GET "+files+"/watch"),
	looking("Pack", read, "GET "+files+"/archive"),
	acting("Unpack", change, "PUT "+files+"/archive"),

	// Ports. Only the owner may expose a port, just as only the owner may share a sandbox. A caller with write access
	// to a sandbox may connect to its ports.
	owning("Expose", ports, "POST "+sandbox+"/ports"),
	owning("Unexpose", ports, "DELETE "+port),
	looking("Ports", seePorts, "GET "+sandbox+"/ports"),
	looking("ValidatePortToken", seePorts, "POST "+port+"/validate"),
	owning("LinkPort", ports, "POST "+port+"/link"),
	acting("DialPort", connect, "GET "+port+"/connect"),
	looking("WatchPorts", seePorts),

	// Networks
	looking("Network", see, "GET "+sandbox+"/network"),
	owning("SetNetwork", run, "PUT "+sandbox+"/network"),
	looking("Connections", see, "GET "+sandbox+"/network/connections"),

	// Screens. A viewer that controls a screen needs the scope of Exec.
	acting("StartScreen", run, "POST "+screen),
	looking("Screen", follow, "GET "+screen),
	looking("Screenshot", follow, "GET "+screen+"/screenshot"),
	acting("ControlScreen", run, "POST "+screen+"/actions"),
	looking("ReadClipboard", follow, "GET "+screen+"/clipboard"),
	acting("WriteClipboard", run, "PUT "+screen+"/clipboard"),
	acting("OpenURL", run, "POST "+screen+"/open"),
	looking("ViewScreen", follow, "GET "+screen+"/view"),

	// Snapshots
	owning("Snapshot", run, "POST "+sandbox+"/snapshots"),
	keeping("CreateTemplate", run, "POST /v1/templates"),
	keeping("Snapshots", see, "GET /v1/snapshots").looks(),
	keeping("TagSnapshot", run, "POST /v1/snapshots/{snapshot}/tag"),
	keeping("DeleteSnapshot", run, "DELETE /v1/snapshots/{snapshot}").frees(),
	keeping("DiffSnapshot", read, "GET /v1/snapshots/{snapshot}/diff").looks(),
	owning("Fork", run, "POST "+sandbox+"/fork"),
	acting("Pause", run, "POST "+sandbox+"/pause"),
	acting("Hibernate", run, "POST "+sandbox+"/hibernate"),
	acting("Resume", run, "POST "+sandbox+"/resume"),

	// Backups
	owning("Backup", change, "POST "+sandbox+"/backups"),
	keeping("Backups", read, "GET /v1/backups").looks(),
	owning("RestoreBackup", change, "POST /v1/backups/{backup}/restore"),
	keeping("DeleteBackup", change, "DELETE /v1/backups/{backup}").frees(),

	// Secrets
	keeping("SetSecret", run, "PUT /v1/secrets/{name}"),
	keeping("Secrets", run, "GET /v1/secrets").looks(),
	keeping("DeleteSecret", run, "DELETE /v1/secrets/{name}"),

	// Images. References of images contain slashes, so they are query parameters.
	keeping("PullImage", run, "POST "+images+"/pull"),
	keeping("LoadImages", run, "PUT "+images+"/archive"),
	owning("CommitImage", run, "POST "+sandbox+"/image"),
	keeping("CommitSnapshot", run, "POST /v1/snapshots/{snapshot}/image"),
	keeping("BuildImage", run, "POST "+images+"/build"),
	keeping("Builds", see, "GET "+builds).looks(),
	keeping("BuildLogs", follow, "GET "+builds+"/{build}/logs").looks(),
	keeping("DeleteBuild", run, "DELETE "+builds+"/{build}").frees(),
	keeping("SaveImage", run, "GET "+images+"/archive").looks(),
	keeping("PushImage", run, "POST "+images+"/push"),
	keeping("TagImage", run, "POST "+images+"/tag"),
	keeping("Image", see, "GET "+images+"/inspect").looks(),
	keeping("Images", see, "GET "+images).looks(),
	keeping("DeleteImage", run, "DELETE "+images).frees(),
	keeping("PruneImages", run, "POST "+images+"/prune").frees(),

	// Volumes
	keeping("CreateVolume", change, "POST "+volumes),
	keeping("Volumes", see, "GET "+volumes).looks(),
	keeping("Volume", see, "GET "+volumes+"/{volume}").looks(),
	keeping("DeleteVolume", change, "DELETE "+volumes+"/{volume}").frees(),
	keeping("ReadVolume", read, "GET "+volumes+"/{volume}/archive").looks(),
	keeping("WriteVolume", change, "PUT "+volumes+"/{volume}/archive"),
	owning("SaveVolumes", change, "POST "+sandbox+"/volumes"),
	keeping("SyncVolume", change, "POST "+volumes+"/{volume}/sync"),

	// Sharing
	owning("Share", run, "PUT "+sandbox+"/grants/{token}"),
	owning("Unshare", run, "DELETE "+sandbox+"/grants/{token}"),
	owning("Grants", run, "GET "+sandbox+"/grants").looks(),

	// Tokens
	serving("CreateToken", administer, "POST /v1/tokens"),
	serving("Token", administer, "GET /v1/tokens/{token}").looks(),
	serving("Tokens", administer, "GET /v1/tokens").looks(),
	serving("RotateToken", administer, "POST /v1/tokens/{token}/rotate"),
	serving("RevokeToken", administer, "DELETE /v1/tokens/{token}"),

	// Owners
	serving("Owners", administer, "GET /v1/owners").looks(),
	serving("DeleteOwner", administer, "DELETE /v1/owners/{owner}").frees(),

	// Nodes
	serving("Nodes", administer, "GET "+nodes).looks(),
	serving("Node", administer, "GET "+node).looks(),
	serving("CordonNode", administer, "POST "+node+"/cordon"),
	serving("UncordonNode", administer, "POST "+node+"/uncordon"),
	serving("DrainNode", administer, "POST "+node+"/drain"),
	serving("RemoveNode", administer, "DELETE "+node).frees(),

	// Timelines. Only the owner may see the calls of other callers.
	owning("Timeline", follow, "GET "+sandbox+"/timeline").looks(),

	// Histories
	looking("StatsHistory", see, "GET "+sandbox+"/stats"),

	// SSH. A key has the rights of its owner's token, so these verbs accept any token with a right that SSH can use.
	serving("SSHServer", byKey, "GET "+ssh).looks(),
	keeping("AddSSHKey", byKey, "POST "+ssh+"/keys"),
	keeping("SSHKeys", byKey, "GET "+ssh+"/keys").looks(),
	keeping("DeleteSSHKey", byKey, "DELETE "+ssh+"/keys/{key}").frees(),
	keeping("SignSSHKey", byKey, "POST "+ssh+"/certificates"),

	// Questions
	keeping("Ask", run),

	// Reports of the server about itself.
	serving("Usage", see, "GET /v1/usage").looks(),
	serving("UsageHistory", see, "GET /v1/usage/history").looks(),
	serving("Stats", see, "GET /v1/stats").looks(),
	serving("Audit", administer, "GET /v1/audit").looks(),
	serving("Pool", administer, "GET /v1/pool").looks(),
	serving("CheckpointAll", administer, "POST /v1/checkpoints"),
	serving("Examine", administer, "GET /v1/doctor").looks(),
	serving("VerifyAudit", administer, "GET /v1/audit/verification").looks(),
	serving("Metrics", administer).looks(),
}
