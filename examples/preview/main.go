// Command preview starts a web application in a sandbox, gives it a URL, opens that URL in a headless browser, and
// takes a picture of it.
//
//	HUTCH_URL=http://127.0.0.1:7700 HUTCH_TOKEN=... go run ./examples/preview picture.png
//
// It needs Chromium, and the data in examples/weather.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"hutch"
	"hutch/client"
)

//go:embed app.py
var app string

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: preview PICTURE.png")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, picture string) error {
	c := client.New(os.Getenv("HUTCH_URL"), os.Getenv("HUTCH_TOKEN"))
	box, err := c.Open(ctx, hutch.CreateRequest{})
	if err != nil {
		return err
	}
	defer box.Destroy(ctx)

	port, err := box.Expose(ctx, hutch.ExposeRequest{Port: 8000, Name: "rain"})
	if err != nil {
		return err
	}
	if err := start(ctx, box); err != nil {
		return err
	}
	fmt.Println("the application is at", port.URL)
	return screenshot(ctx, port.URL, picture)
}

// start puts the application into the sandbox and waits until it serves.
func start(ctx context.Context, box *client.Sandbox) error {
	data, err := os.Open(filepath.Join("examples", "weather", "seattle.csv"))
	if err != nil {
		return err
	}
	defer data.Close()
	if _, err := box.WriteFile(ctx, "seattle.csv", data); err != nil {
		return err
	}
	if _, err := box.WriteFile(ctx, "app.py", strings.NewReader(app)); err != nil {
		return err
	}
	server, err := box.Start(ctx, hutch.ProcessRequest{Command: "exec python3 app.py", Name: "app"})
	if err != nil {
		return err
	}
	res, err := server.Wait(ctx, hutch.WaitRequest{Port: 8000, Path: "/rain.js"})
	if err == nil && !res.Met {
		err = fmt.Errorf("the application does not serve: %+v", res.Process)
	}
	return err
}

// screenshot opens a URL in a browser with a new profile.
func screenshot(ctx context.Context, url, picture string) error {
	profile, err := os.MkdirTemp("", "preview-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(profile)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// Chromium has no sandbox for root; the page is our own.
	browser := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--user-data-dir="+profile, "--window-size=820,430", "--timeout=5000", "--screenshot="+picture, url)
	if out, err := browser.CombinedOutput(); err != nil {
		return fmt.Errorf("chromium: %w\n%s", err, out)
	}
	fmt.Println("the picture is", picture)
	return nil
}
