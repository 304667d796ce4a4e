package main

import (
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"hutch"
	"hutch/internal/trace"
)

// isJSON reads the format of the log.
func isJSON(format string) (bool, error) {
	switch format {
	case "", "text":
		return false, nil
	case "json":
		return true, nil
	}
	return false, usageError{fmt.Errorf("--log-format: there is no log format %q: use text or json", format)}
}

func parsePrices(text map[string]string) (p hutch.Prices, err error) {
	names := map[string]*float64{"cpu": &p.CPUSecond, "memory": &p.MemoryGBSecond, "execution": &p.Execution, "wall": &p.WallSecond, "network": &p.NetworkGB}
	for name, value := range text {
		at := names[name]
		if at == nil {
			return p, usageError{fmt.Errorf("--prices: there is no price of %q: use cpu, memory, execution, network or wall", name)}
		}
		if *at, err = strconv.ParseFloat(value, 64); err != nil || !(*at >= 0 && *at < 1e9) {
			return p, usageError{fmt.Errorf("--prices: the price of %s is %q: give a number", name, value)}
		}
	}
	return p, nil
}

// traceEnv reads the variables of OpenTelemetry's exporter.
func traceEnv() trace.Options {
	opt := trace.Options{
		Endpoint: strings.TrimRight(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/"), Service: os.Getenv("OTEL_SERVICE_NAME"),
		Version: version, Headers: map[string]string{},
	}
	for pair := range strings.SplitSeq(os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			if plain, err := url.QueryUnescape(value); err == nil {
				value = plain
			}
			opt.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return opt
}
