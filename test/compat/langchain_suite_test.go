//go:build compat

package compat_test

import "testing"

// TestLangChainSuite runs all of LangChain's standard tests of sandboxes.
func TestLangChainSuite(t *testing.T) { compareWith(t, "langchain-expected.json", langchain(t)) }
