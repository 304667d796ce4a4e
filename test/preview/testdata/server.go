// Command server is a server in Go, on all addresses.
package main

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	http.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/elsewhere?a=b")
		w.WriteHeader(302)
	})
	http.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		list := [][2]string{{"Host", r.Host}}
		for name := range r.Header {
			list = append(list, [2]string{name, r.Header.Get(name)})
		}
		json.NewEncoder(w).Encode(list)
	})
	http.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 256)
		for i := range piece {
			piece[i] = byte(i)
		}
		io.WriteString(w, strings.Repeat(string(piece), 32<<12))
	})
	http.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; r.Context().Err() == nil; i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	})
	http.HandleFunc("/", serve)
	panic(http.ListenAndServe(":"+os.Args[1], nil))
}

func serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == "POST":
		sum := sha256.New()
		n, _ := io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%d %x", n, sum.Sum(nil))
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		echo(w, r)
	default:
		fmt.Fprintf(w, "<!doctype html><h1>Hello from %s</h1>", os.Args[2])
	}
}

// echo repeats short messages.
func echo(w http.ResponseWriter, r *http.Request) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	rw.Flush()
	for head := make([]byte, 6); ; {
		if _, err := io.ReadFull(rw, head); err != nil || head[0]&15 == 8 {
			return
		}
		body := make([]byte, head[1]&127)
		io.ReadFull(rw, body)
		for i := range body {
			body[i] ^= head[2+i%4]
		}
		rw.Write([]byte{head[0], byte(len(body) + 5)})
		rw.Write(append([]byte("echo "), body...))
		rw.Flush()
	}
}
