package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hutch"
	"hutch/client"
	"hutch/internal/stream"
)

func newScreen(h *home, std streams) *cobra.Command {
	c := &cobra.Command{
		Use: "screen", Short: "Use the screen of a sandbox: pictures, mouse, keyboard, clipboard, browser",
		Long: `Use the screen of a sandbox. Its image needs the programs of a screen: Xtigervnc,
a window manager such as openbox, Chromium for pages, and xclip.
` + remoteHelp,
	}
	c.AddCommand(
		newScreenStart(h, std), newScreenshot(h, std), newScreenClick(h, std), newScreenMove(h, std), newScreenDrag(h, std), newScreenScroll(h, std),
		newScreenType(h, std), newScreenKey(h, std), newScreenClipboard(h, std), newScreenOpen(h, std), newScreenView(h, std),
	)
	return c
}

func newScreenStart(h *home, std streams) *cobra.Command {
	var size string
	var asJSON bool
	c := &cobra.Command{
		Use: "start SANDBOX", Short: "Start a screen, or give it another size, and print its size and the pointer's position",
		Example: "  hutch screen start desk --size 1280x800",
		Args:    cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			req, err := screenSize(size)
			if err != nil {
				return err
			}
			now, err := svc.StartScreen(ctx, args[0], req)
			if err != nil {
				return err
			}
			return writeScreen(std.out, asJSON, now)
		}),
	}
	c.Flags().StringVar(&size, "size", "", "width and height in pixels, such as 1280x800 (default: as it is, or 1280x800)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func screenSize(text string) (req hutch.ScreenRequest, err error) {
	if text == "" {
		return req, nil
	}
	width, height, ok := strings.Cut(text, "x")
	var bad error
	req.Width, err = strconv.Atoi(width)
	req.Height, bad = strconv.Atoi(height)
	if !ok || err != nil || bad != nil {
		return req, usageError{fmt.Errorf("the size is %q: give width and height in pixels, such as 1280x800", text)}
	}
	return req, nil
}

func writeScreen(out io.Writer, asJSON bool, now hutch.Screen) error {
	if asJSON {
		return writeJSON(out, now)
	}
	_, err := fmt.Fprintf(out, "%dx%d pixels, pointer at %d,%d\n", now.Width, now.Height, now.Cursor.X, now.Cursor.Y)
	return err
}

func newScreenshot(h *home, std streams) *cobra.Command {
	var region []int
	c := &cobra.Command{
		Use: "shot SANDBOX [FILE]", Short: "Save a picture of the screen, which it starts if there is none",
		Long:    "Save a picture of the screen as PNG, in FILE or on standard output. Without a\nscreen it starts one.\n" + remoteHelp,
		Example: "  hutch screen shot desk desk.png\n  hutch screen shot desk --region 0,0,400,300 > corner.png",
		Args:    cobra.RangeArgs(1, 2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			var req hutch.ScreenshotRequest
			if region != nil {
				if len(region) != 4 {
					return usageError{fmt.Errorf("--region has %d numbers: give X,Y,WIDTH,HEIGHT, such as 0,0,400,300", len(region))}
				}
				req.Region = &hutch.Region{X: region[0], Y: region[1], Width: region[2], Height: region[3]}
			}
			shot, err := svc.Screenshot(ctx, args[0], req)
			if errors.Is(err, hutch.Conflict) {
				if _, err := svc.StartScreen(ctx, args[0], hutch.ScreenRequest{}); err != nil {
					return err
				}
				shot, err = svc.Screenshot(ctx, args[0], req)
			}
			switch {
			case err != nil:
				return err
			case len(args) == 2:
				return os.WriteFile(args[1], shot.PNG, 0o644)
			}
			_, err = std.out.Write(shot.PNG)
			return err
		}),
	}
	c.Flags().IntSliceVar(&region, "region", nil, "X,Y,WIDTH,HEIGHT in pixels (default: all)")
	return c
}

// acts makes a command that does actions, and prints the pointer's position.
func acts(h *home, std streams, c *cobra.Command, actions func(args []string) ([]hutch.ScreenAction, error)) *cobra.Command {
	asJSON := false
	c.Flags().BoolVar(&asJSON, "json", false, "print the size of the screen and the pointer's position as JSON")
	c.RunE = onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
		list, err := actions(args[1:])
		if err != nil {
			return usageError{err}
		}
		res, err := svc.ControlScreen(ctx, args[0], hutch.ControlRequest{Actions: list})
		if err == nil && asJSON {
			err = writeJSON(std.out, res.Screen)
		}
		return err
	})
	return c
}

// pixel reads X,Y.
func pixel(text string) ([]int, error) {
	x, y, ok := strings.Cut(text, ",")
	a, bad := strconv.Atoi(x)
	b, worse := strconv.Atoi(y)
	if !ok || bad != nil || worse != nil {
		return nil, fmt.Errorf("the point is %q: give X,Y in pixels, such as 200,150", text)
	}
	return []int{a, b}, nil
}

func newScreenClick(h *home, std streams) *cobra.Command {
	var button, keys string
	var double bool
	c := &cobra.Command{
		Use: "click SANDBOX [X,Y]", Short: "Click, there or where the pointer is",
		Example: "  hutch screen click desk 200,150\n  hutch screen click desk 200,150 --button right",
		Args:    cobra.RangeArgs(1, 2),
	}
	c.Flags().StringVar(&button, "button", "left", "left, middle or right")
	c.Flags().BoolVar(&double, "double", false, "twice, with the left button")
	c.Flags().StringVar(&keys, "keys", "", "keys to hold meanwhile, such as ctrl+shift")
	return acts(h, std, c, func(args []string) (list []hutch.ScreenAction, err error) {
		a := hutch.ScreenAction{Action: map[string]hutch.ScreenAct{"left": hutch.LeftClick, "middle": hutch.MiddleClick, "right": hutch.RightClick}[button], Text: keys}
		switch {
		case a.Action == "":
			return nil, fmt.Errorf("there is no button %q: use left, middle or right", button)
		case double && button != "left":
			return nil, fmt.Errorf("--double is for the left button: leave out --button %s", button)
		case double:
			a.Action = hutch.DoubleClick
		}
		if len(args) == 1 {
			a.Coordinate, err = pixel(args[0])
		}
		return []hutch.ScreenAction{a}, err
	})
}

func newScreenMove(h *home, std streams) *cobra.Command {
	c := &cobra.Command{Use: "move SANDBOX X,Y", Short: "Move the pointer", Args: cobra.ExactArgs(2)}
	return acts(h, std, c, func(args []string) ([]hutch.ScreenAction, error) {
		at, err := pixel(args[0])
		return []hutch.ScreenAction{{Action: hutch.MouseMove, Coordinate: at}}, err
	})
}

func newScreenDrag(h *home, std streams) *cobra.Command {
	c := &cobra.Command{Use: "drag SANDBOX X,Y X,Y", Short: "Drag with the left button from one point to another", Args: cobra.ExactArgs(3)}
	return acts(h, std, c, func(args []string) ([]hutch.ScreenAction, error) {
		from, err := pixel(args[0])
		to, bad := pixel(args[1])
		return []hutch.ScreenAction{{Action: hutch.LeftClickDrag, StartCoordinate: from, Coordinate: to}}, errors.Join(err, bad)
	})
}

func newScreenScroll(h *home, std streams) *cobra.Command {
	var at string
	c := &cobra.Command{
		Use: "scroll SANDBOX up|down|left|right [CLICKS]", Short: "Turn the wheel by some clicks, 3 if none are given",
		Example: "  hutch screen scroll desk down 5 --at 400,300",
		Args:    cobra.RangeArgs(2, 3),
	}
	c.Flags().StringVar(&at, "at", "", "X,Y in pixels (default: where the pointer is)")
	return acts(h, std, c, func(args []string) (list []hutch.ScreenAction, err error) {
		a := hutch.ScreenAction{Action: hutch.Scroll, ScrollDirection: hutch.Direction(args[0])}
		if len(args) == 2 {
			if a.ScrollAmount, err = strconv.Atoi(args[1]); err != nil || a.ScrollAmount < 1 {
				return nil, fmt.Errorf("CLICKS is %q: give a number from 1", args[1])
			}
		}
		if at != "" {
			a.Coordinate, err = pixel(at)
		}
		return []hutch.ScreenAction{a}, err
	})
}

func newScreenType(h *home, std streams) *cobra.Command {
	c := &cobra.Command{Use: "type SANDBOX TEXT", Short: "Type a text, in any script", Example: "  hutch screen type desk 'Grüße, 世界'", Args: cobra.ExactArgs(2)}
	return acts(h, std, c, func(args []string) ([]hutch.ScreenAction, error) {
		return []hutch.ScreenAction{{Action: hutch.TypeText, Text: args[0]}}, nil
	})
}

func newScreenKey(h *home, std streams) *cobra.Command {
	var hold time.Duration
	c := &cobra.Command{
		Use: "key SANDBOX KEYS...", Short: "Press keys: those joined by + together, the others one after the other",
		Example: "  hutch screen key desk ctrl+s\n  hutch screen key desk Down Down Return",
		Args:    cobra.MinimumNArgs(2),
	}
	positiveDurationVar(c.Flags(), &hold, "hold", "", 0, "hold the keys for this long")
	return acts(h, std, c, func(args []string) ([]hutch.ScreenAction, error) {
		a := hutch.ScreenAction{Action: hutch.PressKey, Text: strings.Join(args, " ")}
		if hold > 0 {
			a.Action, a.Duration = hutch.HoldKey, hutch.InSeconds(hold)
		}
		return []hutch.ScreenAction{a}, nil
	})
}

func newScreenClipboard(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "clipboard SANDBOX [TEXT]", Short: "Print the text that a program copied, or give programs a text to paste",
		Args: cobra.RangeArgs(1, 2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			if len(args) == 2 {
				return svc.WriteClipboard(ctx, args[0], args[1])
			}
			text, err := svc.ReadClipboard(ctx, args[0])
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(std.out, hutch.Clipboard{Text: text})
			}
			_, err = io.WriteString(std.out, text)
			return err
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newScreenOpen(h *home, std streams) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "open SANDBOX URL", Short: "Open a page in a browser on the screen",
		Long:    "Open a page in a browser on the screen: Chromium, whose DevTools then listen on\nport 9222 of the sandbox, or another browser of the image.\n" + remoteHelp,
		Example: "  hutch screen open desk https://example.com",
		Args:    cobra.ExactArgs(2),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			p, err := svc.OpenURL(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, p)
			}
			_, err = fmt.Fprintln(std.out, p.ID)
			return err
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newScreenView(h *home, std streams) *cobra.Command {
	var address string
	var watch bool
	c := &cobra.Command{
		Use: "view SANDBOX", Short: "Let a VNC viewer of this machine show the screen",
		Long: `Listen for a VNC viewer on 127.0.0.1, and connect it with the screen, until
interrupted. It needs no password: every user of this machine can connect.
` + remoteHelp,
		Example: "  hutch screen view desk\n  hutch screen view desk --watch --listen 127.0.0.1:5901",
		Args:    cobra.ExactArgs(1),
		RunE: onServer(h, func(ctx context.Context, svc *client.Client, args []string) error {
			conn, err := svc.ViewScreen(ctx, args[0], !watch) // an error is reported now, not to the viewer
			if err != nil {
				return err
			}
			conn.Close()
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
			if err != nil {
				return err
			}
			defer context.AfterFunc(ctx, func() { l.Close() })()
			fmt.Fprintf(std.err, "connect a VNC viewer to %s\n", l.Addr())
			for {
				viewer, err := l.Accept()
				if err != nil {
					l.Close()
					return context.Cause(ctx)
				}
				go func() {
					defer viewer.Close()
					screen, err := svc.ViewScreen(ctx, args[0], !watch)
					if err != nil {
						fmt.Fprintln(std.err, err)
						return
					}
					defer screen.Close()
					stream.Join(ctx, viewer, screen)
				}()
			}
		}),
	}
	c.Flags().StringVar(&address, "listen", "127.0.0.1:5900", "address for the viewer; port 0 is a free one")
	c.Flags().BoolVar(&watch, "watch", false, "without mouse, keyboard and clipboard")
	return c
}
