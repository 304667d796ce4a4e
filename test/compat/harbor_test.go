//go:build compat

package compat_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// harborTrials has the expected end of each task in the folder harbor/tasks: a reward, an error, or both.
var harborTrials = map[string]harborTrial{
	"files":    {Reward: 1},
	"image":    {Reward: 1},
	"isolated": {Reward: 1},
	"phases":   {Reward: 1},
	"prebuilt": {Reward: 1},
	"separate": {Reward: 1},
	"server":   {Reward: 1},
	"steps":    {Reward: 1},
	"users":    {Reward: 1},
	"wrong":    {Reward: 0},
	"slow":     {Reward: 1, Error: "AgentTimeoutError"},
	"broken":   {Error: "SandboxBuildFailedError"},
}

type harborTrial struct {
	Reward float64
	Error  string
}

// TestHarbor runs Harbor's tasks with its environment for E2B and the agent that knows the solutions. A second run finds
// the templates of the first, and builds only the one that failed.
func TestHarbor(t *testing.T) {
	harbor, err := filepath.Abs(filepath.Join("harbor", "venv", "bin", "harbor"))
	if err == nil {
		_, err = os.Stat(harbor)
	}
	if err != nil {
		t.Fatal("Harbor is not installed: run `test/compat/harbor/install`, which needs Python 3.12: ", err)
	}
	url, token := serveE2B(t)
	loadImage(t, url, token, "debian-for-harbor:1", fillBase)
	for _, run := range []string{"first", "again"} {
		jobs := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		cmd := exec.CommandContext(ctx, harbor, "run", "-p", filepath.Join("harbor", "tasks"), "-a", "oracle", "-e", "e2b", "-o", jobs, "--job-name", "job", "-n", "2", "-y", "-q")
		cmd.Env = append(os.Environ(), append(e2bEnv(url, token), "HOME="+t.TempDir(), "NO_PROXY=*", "HARBOR_TELEMETRY=0")...)
		out, err := cmd.CombinedOutput()
		cancel()
		t.Logf("%s: %s", run, tail(string(out), 3000))
		if err != nil {
			t.Fatal(err)
		}
		checkTrials(t, filepath.Join(jobs, "job"))
	}
}

// checkTrials compares the results of a job with the expected ones.
func checkTrials(t *testing.T, job string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(job, "*", "result.json"))
	if err != nil || len(files) != len(harborTrials) {
		t.Errorf("%d trials ended, not %d: %v", len(files), len(harborTrials), err)
	}
	passed := 0
	for _, file := range files {
		var result struct {
			Task     string `json:"task_name"`
			Verifier *struct {
				Rewards map[string]float64
			} `json:"verifier_result"`
			Exception *struct {
				Type    string `json:"exception_type"`
				Message string `json:"exception_message"`
			} `json:"exception_info"`
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &result)
		}
		if err != nil {
			t.Fatal(err)
		}
		var got harborTrial
		if result.Verifier != nil {
			got.Reward = result.Verifier.Rewards["reward"]
		}
		if result.Exception != nil {
			got.Error = result.Exception.Type
		}
		want, ok := harborTrials[filepath.Base(result.Task)]
		if !ok || got != want {
			output, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "verifier", "test-stdout.txt"))
			solved, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "agent", "oracle.txt"))
			t.Errorf("%s: %+v, not %+v: %+v\nof the solution: %s\nof the tests: %s", result.Task, got, want, result.Exception, tail(string(solved), 2000), tail(string(output), 2000))
			continue
		}
		passed++
	}
	t.Logf("%d of %d trials ended as expected", passed, len(harborTrials))
}
