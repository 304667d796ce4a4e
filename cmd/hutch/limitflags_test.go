package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestLimitFlags(t *testing.T) {
	var memory, pids int
	var cpu float64
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	mebibytesVar(f, &memory, "memory", "")
	countVar(f, &pids, "pids", "")
	coresVar(f, &cpu, "cpu", "")
	for text, want := range map[string]int{"512": 512, "512m": 512, "512MB": 512, "512MiB": 512, "2g": 2048, "1.5GiB": 1536, "2Gb": 2048, "1t": 1 << 20} {
		if err := f.Set("memory", text); err != nil || memory != want {
			t.Errorf("--memory %s is %d, %v; want %d", text, memory, err, want)
		}
	}
	for flag, words := range map[string]string{
		"memory=0": "not above 0", "memory=0g": "not above 0", "memory=-5": "is not a size", "memory=1k": "is not a size", "memory=5b": "is not a size",
		"memory=": "is not a size", "memory=0.3": "whole number of MiB", "memory=99999999999999999999": "too large", "memory=9999999t": "too large",
		"pids=0": "not above 0", "pids=-1": "not above 0", "pids=x": "is not a whole number",
		"cpu=0": "not above 0", "cpu=-0.5": "not above 0", "cpu=NaN": "is not a number", "cpu=many": "is not a number",
	} {
		name, text, _ := strings.Cut(flag, "=")
		if err := f.Set(name, text); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("--%s: %v; want %q", flag, err, words)
		}
	}
	var rate int64
	bytesVar(f, &rate, "rate", "")
	for text, want := range map[string]int64{"7b": 7, "500k": 500 << 10, "1.5MiB": 3 << 19, "2G": 2 << 30, "1tb": 1 << 40} {
		if err := f.Set("rate", text); err != nil || rate != want || f.Set("rate", f.Lookup("rate").Value.String()) != nil || rate != want {
			t.Errorf("--rate %s is %d, %v; want %d", text, rate, err, want)
		}
	}
	for text, words := range map[string]string{"": "with a unit", "5": "with a unit", "0k": "not above 0", "0.1b": "not above 0", "-1k": "with a unit", "9999999999t": "too large"} {
		if err := f.Set("rate", text); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("--rate %q: %v; want %q", text, err, words)
		}
	}
	if err := f.Set("cpu", "0.5"); err != nil || cpu != 0.5 {
		t.Errorf("--cpu 0.5 is %v, %v", cpu, err)
	}
}
