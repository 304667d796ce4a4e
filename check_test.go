package hutch_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"hutch"
)

// TestEveryRequestIsChecked: a verb whose argument is a request has a Check for it.
func TestEveryRequestIsChecked(t *testing.T) {
	check := reflect.TypeFor[interface{ Check() error }]()
	unchecked := []string{"RestoreBackupRequest", "HibernateRequest"} // checked elsewhere, or a single choice
	for _, service := range []reflect.Type{
		reflect.TypeFor[hutch.Service](), reflect.TypeFor[hutch.Tokens](), reflect.TypeFor[hutch.Sharing](),
		reflect.TypeFor[hutch.Secrets](), reflect.TypeFor[hutch.Backups](), reflect.TypeFor[hutch.Images](),
	} {
		for m := range service.NumMethod() {
			f := service.Method(m).Type
			for i := range f.NumIn() {
				in := f.In(i)
				request := strings.HasSuffix(in.Name(), "Request") || strings.HasSuffix(in.Name(), "Query") || in.Name() == "Filter"
				if request && !in.Implements(check) && !strings.Contains(strings.Join(unchecked, " "), in.Name()) {
					t.Errorf("%s.%s: %s has no Check", service.Name(), service.Method(m).Name, in.Name())
				}
			}
		}
	}
}

func TestCheck(t *testing.T) {
	many := map[string]string{}
	for i := range 65 {
		many[strings.Repeat("a", i+1)] = ""
	}
	nan := hutch.Seconds(math.NaN())
	long := strings.Repeat("x", hutch.MaxCommand+1)
	for _, c := range []struct {
		request interface{ Check() error }
		want    string // part of the error; empty for none
	}{
		{hutch.CreateRequest{}, ""},
		{hutch.CreateRequest{ID: "A", NormalizeID: true}, ""},
		{hutch.CreateRequest{ID: "A"}, "upper-case"},
		{hutch.CreateRequest{Env: map[string]string{"A=B": ""}}, "cannot be set"},
		{hutch.CreateRequest{Env: map[string]string{"A": long}}, "the environment has"},
		{hutch.CreateRequest{Env: map[string]string{"A": ""}, Secrets: []string{"A=B"}}, "set twice"},
		{hutch.CreateRequest{Secrets: []string{"A=B", "A=C"}}, "set twice"},
		{hutch.CreateRequest{Secrets: make([]string, 65)}, "65 secrets"},
		{hutch.CreateRequest{Labels: many}, "64 labels"},
		{hutch.CreateRequest{NodeSelector: map[string]string{"topology.kubernetes.io/zone": "eu-1", "gpu": ""}, Tolerations: map[string]string{"A.b_c": "1.x"}}, ""},
		{hutch.CreateRequest{NodeSelector: many}, "at most, not"},
		{hutch.CreateRequest{NodeSelector: map[string]string{"": "a"}}, "not a key"},
		{hutch.CreateRequest{NodeSelector: map[string]string{"a=b": "c"}}, "not a key"},
		{hutch.CreateRequest{NodeSelector: map[string]string{"Example.com/a": "c"}}, "not a key"},
		{hutch.CreateRequest{NodeSelector: map[string]string{"example.com/": "c"}}, "not a key"},
		{hutch.CreateRequest{NodeSelector: map[string]string{strings.Repeat("a.", 126) + "aa/x": "c"}}, "not a key"},
		{hutch.CreateRequest{NodeSelector: map[string]string{"zone": "a,b"}}, "not a value"},
		{hutch.CreateRequest{NodeSelector: map[string]string{"zone": strings.Repeat("a", 64)}}, "not a value"},
		{hutch.CreateRequest{Tolerations: map[string]string{"zone\x00": "a"}}, "not a key"},
		{hutch.CreateRequest{Limits: hutch.Limits{Memory: 31}}, "limits.memory"},
		{hutch.CreateRequest{SleepAfter: nan}, "sleepAfter"},
		{hutch.CreateRequest{OnIdle: "nap"}, "onIdle"},
		{hutch.UpdateRequest{Timeout: new(nan)}, "timeout"},
		{hutch.ExecRequest{Command: "true", SessionID: "s", Dir: "/tmp"}, ""},
		{hutch.ExecRequest{Command: " \n"}, "the command is empty"},
		{hutch.ExecRequest{Command: "\x00"}, "NUL"},
		{hutch.ExecRequest{Command: long}, "over the limit"},
		{hutch.ExecRequest{Command: "true", Args: []string{long}}, "arguments"},
		{hutch.ExecRequest{Command: "true", Dir: "tmp"}, "cwd"},
		{hutch.ExecRequest{Command: "true", MaxOutput: -1}, "maxOutput"},
		{hutch.ExecRequest{Command: "true", SessionID: "S"}, "upper-case"},
		{hutch.ExecRequest{Command: "true", SessionID: "s", Args: []string{"a"}}, "takes no args"},
		{hutch.RunRequest{Code: "1", ContextID: "-"}, "hyphen"},
		{hutch.ContextRequest{IdleTimeout: -1}, "idleTimeout"},
		{hutch.ProcessRequest{Command: "true", Name: "\u202e"}, "cannot be printed"},
		{hutch.ProcessRequest{Command: "true", RestartPolicy: "often"}, "restartPolicy"},
		{hutch.ProcessRequest{Command: "true", RestartPolicy: "never", Terminal: &hutch.Size{Columns: 80, Rows: 24}}, ""},
		{hutch.ProcessRequest{Command: "true", RestartPolicy: "always", Terminal: &hutch.Size{Columns: 80, Rows: 24}}, "not restarted"},
		{hutch.WaitRequest{}, ""},
		{hutch.WaitRequest{Port: 1, Text: "x"}, "give one of"},
		{hutch.WaitRequest{Path: "/"}, "needs a port"},
		{hutch.LogsRequest{Cursor: -1}, "cursor"},
		{hutch.SnapshotRequest{TTL: nan}, "ttl"},
		{hutch.SnapshotDiffRequest{To: "web:v1", Path: "/workspace", Text: true}, ""},
		{hutch.SnapshotDiffRequest{SandboxID: "a", Wake: true}, ""},
		{hutch.SnapshotDiffRequest{To: "b", SandboxID: "a"}, "give one of them"},
		{hutch.SnapshotDiffRequest{To: "b", Wake: true}, "leave it out"},
		{hutch.SnapshotDiffRequest{Path: "src"}, "absolute"},
		{hutch.ForkRequest{Count: hutch.MaxForks + 1}, "count"},
		{hutch.BackupRequest{TTL: -1}, "ttl"},
		{hutch.SecretRequest{}, "the value is empty"},
		{hutch.ReadRequest{}, "the path is empty"},
		{hutch.ReadRequest{Path: "a", Offset: 1, FirstLine: 1}, "not both"},
		{hutch.WriteRequest{Path: "a", Mode: 0o1777}, "mode"},
		{hutch.WriteRequest{Path: "a", Append: true, Create: true}, "not both"},
		{hutch.EditRequest{Path: "a", Old: "x", New: "x"}, "the same"},
		{hutch.ListRequest{Path: "a", Depth: -1}, "depth"},
		{hutch.SearchRequest{Path: "a"}, "the pattern has 0 bytes"},
		{hutch.PackRequest{Dir: "a", Paths: []string{"../b"}}, "cannot be packed"},
		{hutch.UnpackRequest{Dir: "a", Format: "rar"}, "archive format"},
		{hutch.GitCloneRequest{URL: "-x"}, "the url is empty"},
		{hutch.GitCloneRequest{URL: "https://example.com/x", Branch: "--upload-pack"}, "branch"},
		{hutch.GitDiffRequest{To: "main"}, "to needs from"},
		{hutch.GitCommitRequest{}, "the message is empty"},
		{hutch.ScreenRequest{Width: 640}, "a screen of 640 × 0 pixels"},
		{hutch.ScreenRequest{Width: 1 << 40, Height: 480}, "a screen of"},
		{hutch.ScreenshotRequest{Region: &hutch.Region{X: -1, Width: 1, Height: 1}}, "the region is"},
		{hutch.ScreenshotRequest{Region: &hutch.Region{Width: 10}}, "the region is"},
		{hutch.ControlRequest{}, "there are 0 actions"},
		{hutch.ControlRequest{Actions: make([]hutch.ScreenAction, hutch.MaxScreenActions+1)}, "there are 101 actions"},
		{hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: "lick"}}}, "there is no action"},
		{hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.MouseMove}}}, "needs coordinate"},
		{hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.LeftClick, Duration: 1}}}, "takes no duration"},
		{hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.LeftClick, Coordinate: []int{1}}}}, "coordinate is [1]: give [x, y]"},
		{hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.MouseMove, Coordinate: []int{9000, 5, 7}}}}, "coordinate is [9000,5,7]: give [x, y]"},
		{hutch.SSHSignRequest{Lifetime: 2592001}, "the lifetime is 2592001 seconds: give at most 2592000"},
		{hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.Scroll, ScrollDirection: "in"}}}, "scroll_direction"},
		{hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.ZoomIn, Region: []int{5, 5, 1, 1}}}}, "the region is"},
		{hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.TypeText, Text: "\xff"}}}, "UTF-8"},
		{hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.WaitAct, Duration: 40}, {Action: hutch.WaitAct, Duration: 40}}}, "take 80 s"},
		{hutch.ControlRequest{Actions: []hutch.ScreenAction{{Action: hutch.LeftClick}, {Action: hutch.PressKey, Text: "ctrl+c"}}}, ""},
		{hutch.ConnectionQuery{Limit: hutch.MaxConnections + 1}, "limit"},
		{hutch.Filter{Status: "tired"}, "there is no status"},
	} {
		err := c.request.Check()
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%T %.200v: %v, not %q", c.request, c.request, err, c.want)
		case err != nil && !errors.Is(err, hutch.Invalid):
			t.Errorf("%T: %v is of kind %s", c.request, err, hutch.KindOf(err))
		}
	}
}
