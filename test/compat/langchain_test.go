package compat_test

import (
	"testing"

	"hutch/internal/daemon"
)

// fewLangChain selects the LangChain tests that run every time; make compat runs all of them.
const fewLangChain = "test_download or test_upload or test_edit_single or test_glob_basic or test_grep_basic or test_read_binary_image or test_aexecute or test_write_new"

// TestLangChain runs some of LangChain's standard tests of sandboxes with E2B's package.
func TestLangChain(t *testing.T) {
	t.Parallel()
	got := langchain(t, "-k", fewLangChain)
	if len(got) < 15 {
		t.Errorf("only %d tests ran", len(got))
	}
	for name, e := range got {
		if e.Result != "passed" {
			t.Errorf("%s: %s", name, e.Result)
		}
	}
}

func langchain(t *testing.T, args ...string) map[string]expectation {
	t.Helper()
	python := pythonWith(t, "langchain_e2b, langchain_tests, pytest_asyncio")
	url, token := serveE2B(t)
	return pytest(t, python, "langchain", e2bEnv(url, token), append([]string{"--asyncio-mode=auto"}, args...)...)
}

// TestSmolagents runs an agent of smolagents, whose code runs in E2B's sandboxes.
func TestSmolagents(t *testing.T) {
	t.Parallel()
	python := pythonWith(t, "smolagents")
	url, token := serveE2BWith(t, func(c *daemon.Config) { c.Sandboxes.Image.Path = "/usr/bin:/bin" }) // as in E2B, this Python has numpy
	checkLines(t, runPython(t, python, "smolagents_client.py", e2bEnv(url, token)...), smolagentsChecks)
}

// smolagentsChecks is how many checks smolagents_client.py has.
const smolagentsChecks = 9
