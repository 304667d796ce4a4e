package timeline

import (
	"slices"

	"hutch"
)

// Events other than verbs.
const (
	Allowed     = "Allowed"     // by the network's rules
	Denied      = "Denied"      // by the network's rules
	Skipped     = "Skipped"     // events of the network over the rate limit
	MemoryLimit = "MemoryLimit" // programs were ended, because the sandbox had no memory left
	Woken       = "Woken"
	Hibernated  = "Hibernated"
	Stopped     = "Stopped"
	Destroyed   = "Destroyed"

	// ProcessEnded is the end of a background process. Its time is that of the end, and its duration how long the process ran.
	ProcessEnded = "ProcessEnded"
)

// kinds lists the recorded verbs, and their subjects. Verbs that only read are not recorded, and neither are those that
// transfer the input and output of a recorded call.
var kinds = kindsOf(map[hutch.TimelineKind][]string{
	hutch.TimelineLife:     {"Update", "Destroy", "Pause", "Hibernate", "Resume"},
	hutch.TimelineCommand:  {"Exec", "CancelExec", "StartProcess", "Signal", "CleanProcesses", "StartScreen", "ControlScreen", "WriteClipboard", "OpenURL"},
	hutch.TimelineCode:     {"CreateContext", "DeleteContext", "Interrupt", "RunCode"},
	hutch.TimelineFile:     {"WriteFile", "EditFile", "Mkdir", "Move", "Copy", "Delete", "Chmod", "Unpack", "SaveVolumes", "RestoreBackup"},
	hutch.TimelineGit:      {"GitClone", "GitCommit"},
	hutch.TimelineNetwork:  {"SetNetwork"},
	hutch.TimelinePort:     {"Expose", "Unexpose", "LinkPort", "DialPort"},
	hutch.TimelineSnapshot: {"Snapshot", "Fork", "Backup", "CommitImage"},
	hutch.TimelineShare:    {"Share", "Unshare"},
	hutch.TimelineQuestion: {"Ask"},
})

// unrecorded are verbs that change something in a sandbox and are not recorded.
var unrecorded = []string{"Input", "Resize", "ResumeExec"}

func kindsOf(lists map[hutch.TimelineKind][]string) map[string]hutch.TimelineKind {
	all := map[string]hutch.TimelineKind{}
	for kind, verbs := range lists {
		for _, v := range verbs {
			all[v] = kind
		}
	}
	return all
}

// isLife reports whether the engine itself records a successful call of the verb, as an event.
func isLife(verb string) bool {
	return slices.Contains([]string{"Destroy", "Pause", "Hibernate", "Resume"}, verb)
}
