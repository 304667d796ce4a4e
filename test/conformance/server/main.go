//go:build conformance

// Command server is Hutch's MCP server for the conformance suite: with the suite's tools in addition to ours, and
// without a token, because the suite sends none. It prints its address, and ends when its standard input does.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"hutch/internal/fakeservice"
	"hutch/internal/guard"
	"hutch/internal/mcp"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewHandler(&fakeservice.Service{}, mcp.Options{}))
	fmt.Printf("http://%s/mcp\n", l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	log.Fatal(http.Serve(l, guard.New(mux, guard.Options{Open: func(*http.Request) bool { return true }})))
}
