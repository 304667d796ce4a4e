package rest

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"hutch"
	"hutch/api"
	"hutch/internal/verb"
)

// Route is a method and a path of the API.
type Route struct{ Method, Path string }

// Routes lists the API's routes, for the document that describes the API.
func (h *Handler) Routes() []Route { return slices.Clone(h.table) }

// verbs maps verbs to their handlers. The table of verbs has their routes.
func (h *Handler) verbs() map[string]http.HandlerFunc {
	f, g, s := fileRoutes{h}, gitRoutes{h}, screenRoutes{h}
	return map[string]http.HandlerFunc{
		"Create": h.create, "Sandbox": h.sandbox, "Sandboxes": h.sandboxes, "InstanceTypes": h.instanceTypes, "Update": posts(h, h.update), "Destroy": h.destroy,

		"Exec":       h.firstUse(byMethod(h.exec, h.socket)),
		"ResumeExec": h.resumeExec, "CancelExec": h.cancelExec,
		"StartProcess": h.firstUse(posts(h, h.startProcess)),
		"Process":      h.process, "Processes": h.processes, "CleanProcesses": h.cleanProcesses, "Logs": h.logs,
		"Signal": h.signal, "Input": h.input, "Resize": h.resize, "Wait": posts(h, h.wait), "Languages": h.languages,

		"CreateContext": h.firstUse(posts(h, h.createContext)), "Contexts": h.contexts, "DeleteContext": h.deleteContext,
		"Interrupt": h.interrupt, "RunCode": h.firstUse(byMethod(h.runCode, h.runSocket)),

		"GitClone": h.firstUse(posts(h, g.clone)), "GitCommit": posts(h, g.commit), "GitStatus": g.status, "GitDiff": g.diff,

		"ReadFile": f.ofUser(f.readFile), "WriteFile": h.firstUse(f.ofUser(f.writeFile)), "EditFile": f.ofUser(f.editFile), "Stat": f.ofUser(f.stat),
		"ListFiles": f.ofUser(f.listFiles), "SearchFiles": f.ofUser(f.searchFiles), "Watch": f.ofUser(f.watch),
		"Mkdir": h.firstUse(f.ofUser(f.mkdir)), "Move": f.ofUser(f.transfers(h.svc.Move)), "Copy": f.ofUser(f.transfers(h.svc.Copy)), "Delete": f.ofUser(f.deleteFile), "Chmod": f.ofUser(f.chmod),
		"Pack": f.ofUser(f.pack), "Unpack": h.firstUse(f.ofUser(f.unpack)),

		"Expose": h.firstUse(posts(h, h.expose)), "Unexpose": h.unexpose, "Ports": h.ports, "ValidatePortToken": posts(h, h.validatePort),
		"LinkPort": posts(h, h.linkPort), "DialPort": h.connect,

		"StartScreen": h.firstUse(posts(h, s.start)), "Screen": s.inspect, "Screenshot": s.shot, "ControlScreen": posts(h, s.control),
		"ReadClipboard": s.readClipboard, "WriteClipboard": s.writeClipboard, "OpenURL": posts(h, s.open), "ViewScreen": s.view,

		"Network": h.network, "SetNetwork": posts(h, h.setNetwork), "Connections": h.netConnections,

		"Snapshot": posts(h, h.snapshot), "CreateTemplate": posts(h, h.createTemplate), "Snapshots": h.snapshots, "TagSnapshot": posts(h, h.tagSnapshot), "DeleteSnapshot": h.deleteSnapshot, "DiffSnapshot": h.diffSnapshot,
		"Fork": posts(h, h.fork), "Pause": h.pause, "Hibernate": posts(h, h.hibernate), "Resume": h.resume,
	}
}

// optional maps verbs to their handlers, for the verbs that a server can lack.
func (h *Handler) optional() map[string]http.HandlerFunc {
	all := map[string]http.HandlerFunc{}
	add := func(has bool, list map[string]http.HandlerFunc) {
		for name, f := range list {
			all[name] = f
			if !has {
				all[name] = h.lacks
			}
		}
	}
	add(h.vault != nil, map[string]http.HandlerFunc{"SetSecret": posts(h, h.setSecret), "Secrets": h.secrets, "DeleteSecret": h.deleteSecret})
	add(h.backups != nil, map[string]http.HandlerFunc{
		"Backup": posts(h, h.backUp), "Backups": h.listBackups, "DeleteBackup": h.deleteBackup, "RestoreBackup": h.restoreBackup,
	})
	i := imageRoutes{h}
	add(h.images != nil, map[string]http.HandlerFunc{
		"PullImage": transfers(i, i.pull), "PushImage": transfers(i, i.push), "LoadImages": i.load, "CommitImage": posts(h, i.commit), "CommitSnapshot": posts(h, i.commitSnapshot), "BuildImage": i.build, "Builds": i.listBuilds, "BuildLogs": i.buildLogs, "DeleteBuild": i.deleteBuild, "SaveImage": i.save, "TagImage": posts(h, i.tag),
		"Image": i.inspect, "Images": i.list, "DeleteImage": i.delete, "PruneImages": posts(h, i.prune),
	})
	v := volumeRoutes{h}
	add(h.volumes != nil, map[string]http.HandlerFunc{
		"CreateVolume": posts(h, v.create), "Volumes": v.list, "Volume": v.inspect, "DeleteVolume": v.delete,
		"ReadVolume": v.read, "WriteVolume": v.write, "SaveVolumes": v.save, "SyncVolume": v.sync,
	})
	t := tokenRoutes{h}
	add(h.tokens != nil, map[string]http.HandlerFunc{
		"CreateToken": posts(h, t.create), "Token": t.inspect, "Tokens": t.list, "RotateToken": t.rotate, "RevokeToken": t.revoke,
	})
	add(h.sharing != nil, map[string]http.HandlerFunc{"Share": posts(h, t.share), "Unshare": t.unshare, "Grants": t.grants})
	add(h.audit != nil, map[string]http.HandlerFunc{"Audit": h.auditLog})
	add(h.timeline != nil, map[string]http.HandlerFunc{"Timeline": h.readTimeline})
	add(h.histories != nil, map[string]http.HandlerFunc{"StatsHistory": h.statsHistory})
	add(h.owners != nil, map[string]http.HandlerFunc{"Owners": h.listOwners, "DeleteOwner": h.deleteOwner})
	n := nodeRoutes{h}
	add(h.nodes != nil, map[string]http.HandlerFunc{
		"Nodes": n.list, "Node": n.show, "RemoveNode": n.remove,
		"CordonNode": n.change(hutch.Nodes.CordonNode), "UncordonNode": n.change(hutch.Nodes.UncordonNode), "DrainNode": n.change(hutch.Nodes.DrainNode),
	})
	s := sshRoutes{h}
	add(h.ssh != nil, map[string]http.HandlerFunc{
		"SSHServer": s.server, "SSHKeys": s.list, "AddSSHKey": posts(h, s.add), "DeleteSSHKey": s.delete, "SignSSHKey": posts(h, s.sign),
	})
	add(h.pools != nil, map[string]http.HandlerFunc{"Pool": h.pool})
	add(h.checkpoints != nil, map[string]http.HandlerFunc{"CheckpointAll": h.checkpointAll})
	add(h.examiner != nil, map[string]http.HandlerFunc{"Examine": h.examine, "VerifyAudit": h.verifyAudit})
	add(h.accounts != nil, map[string]http.HandlerFunc{"Usage": h.usage, "UsageHistory": h.usageHistory, "Stats": h.stats})
	return all
}

func (h *Handler) lacks(w http.ResponseWriter, r *http.Request) {
	h.fail(w, r, hutch.Errorf(hutch.Unsupported, "this server does not have this part of the API: use a server that `hutch serve` runs"))
}

// others returns the routes that belong to no verb or to several. The documents need no token, because a browser sends
// none, and because they contain nothing about this server.
func (h *Handler) others() map[string]http.HandlerFunc {
	t := watchRoutes{h}
	all := map[string]http.HandlerFunc{
		"POST /v1/sandboxes/{id}/processes/{process}/links":          posts(h, t.create),
		"GET /v1/sandboxes/{id}/processes/{process}/links":           t.list,
		"DELETE /v1/sandboxes/{id}/processes/{process}/links/{link}": t.revoke,
		"GET " + WatchPath: t.watch,
	}
	for route := range all {
		if h.links == nil {
			all[route] = h.lacks
		}
	}
	maps.Copy(all, map[string]http.HandlerFunc{
		"GET /v1/sandboxes/{id}/processes/{process}/terminal":  h.terminal,
		"GET /v1/sandboxes/{id}/processes/{process}/recording": h.recording,
		"GET /v1/openapi.yaml":                                 document("application/yaml", func() []byte { return api.YAML }),
		"GET /v1/openapi.json":                                 document("application/json", api.JSON),
		"GET /v1/version":                                      func(w http.ResponseWriter, r *http.Request) { reply(h, w, r)(h.version, nil) },
		"GET /v1/docs":                                         document("text/html; charset=utf-8", api.Page),
	})
	return all
}

// plain are the verbs that read and take no parameter.
var plain = []string{
	"Sandbox", "InstanceTypes", "Process", "Processes", "Languages", "Contexts", "Ports", "Network", "Screen", "ReadClipboard", "Snapshots",
	"Backups", "Secrets", "Images", "Volumes", "Volume", "Grants", "Token", "Tokens", "Owners", "Nodes", "Node", "SSHServer", "SSHKeys", "Usage",
	"Pool", "Examine",
}

// withoutParameters refuses parameters: if a filter were ignored, all items would look as if they matched.
func (h *Handler) withoutParameters(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := query(r); err != nil {
			h.fail(w, r, err)
			return
		}
		f(w, r)
	}
}

// route registers all handlers, and for each path a refusal of other methods.
func (h *Handler) route() {
	served := h.others()
	verbs, optional := h.verbs(), h.optional()
	for _, v := range verb.All() {
		f, ok := verbs[v.Name]
		if !ok {
			f, ok = optional[v.Name]
		}
		if !ok && len(v.Routes) > 0 {
			panic("the verb " + v.Name + " has routes and no handler")
		}
		if slices.Contains(plain, v.Name) {
			f = h.withoutParameters(f)
		}
		for _, route := range v.Routes {
			served[route] = f
		}
	}
	methods := map[string][]string{}
	for route, f := range served {
		method, path, _ := strings.Cut(route, " ")
		methods[path] = append(methods[path], method)
		h.table = append(h.table, Route{method, path})
		h.mux.HandleFunc(route, f)
	}
	for path, allow := range methods {
		h.mux.HandleFunc(path, h.onlyMethods(allow))
	}
}

func (h *Handler) onlyMethods(allow []string) http.HandlerFunc {
	slices.Sort(allow)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", strings.Join(allow, ", "))
		err := hutch.Errorf(hutch.Invalid, "there is no %.20s of %.200q: it has %s", r.Method, r.URL.Path, strings.Join(allow, " and "))
		withStatus(err, http.StatusMethodNotAllowed).Write(w)
	}
}

// byMethod serves a verb by POST, and by GET over a WebSocket.
func byMethod(post, socket http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			post(w, r)
			return
		}
		socket(w, r)
	}
}
