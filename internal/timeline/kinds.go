package timeline

import (
	"slices"

	"hutch"
)

// Events that are no verbs.
const (
	Allowed     = "Allowed"     // by the network's rules
	Denied      = "Denied"      // by the network's rules
	Skipped     = "Skipped"     // events of the network that came too fast
	MemoryLimit = "MemoryLimit" // programs were ended, because the sandbox had no memory left
	Woken       = "Woken"
	Hibernated  = "Hibernated"
	Stopped     = "Stopped"
	Destroyed   = "Destroyed"
)

// kinds says which verbs are on record, and what they are about. Verbs that only look are not, and neither are those that carry the
// input and output of something that is on record.
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

// unrecorded are verbs that change something in a sandbox and are not on record.
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

// isLife reports whether the engine records a successful call of the verb itself, as what has happened.
func isLife(verb string) bool {
	return slices.Contains([]string{"Destroy", "Pause", "Hibernate", "Resume"}, verb)
}
