package mcp

import (
	"context"
	"errors"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
)

// Actions of the tool "computer" that call a verb of their own instead of ControlScreen.
const (
	openURL        = "open_url"
	readClipboard  = "read_clipboard"
	writeClipboard = "write_clipboard"
)

// addScreenTool registers the tool "computer". Its actions are those of the computer-use tool that models have been
// trained on, and three more.
func (s *server) addScreenTool() {
	add(s, &sdk.Tool{
		Name: "computer", Title: "Use the screen",
		Description: "Use the screen, mouse and keyboard of a sandbox whose image has Xtigervnc. Take a screenshot to see what an action did. open_url opens text in a browser.",
		Annotations: hints{destructive: true, openWorld: true}.annotations(),
		InputSchema: schema[computerArgs](func(p properties) {
			p["action"].Enum = append(oneOf(hutch.ScreenActs...), openURL, readClipboard, writeClipboard)
			p["scroll_direction"].Enum = oneOf(hutch.ScrollUp, hutch.ScrollDown, hutch.ScrollLeft, hutch.ScrollRight)
		}),
	}, s.computer)
}

type computerArgs struct {
	SandboxID       string        `json:"sandboxId"`
	Action          string        `json:"action"`
	Coordinate      []int         `json:"coordinate,omitempty"`
	StartCoordinate []int         `json:"start_coordinate,omitempty"`
	Text            string        `json:"text,omitempty" jsonschema:"to type, keys such as ctrl+s, or a URL"`
	ScrollDirection string        `json:"scroll_direction,omitempty"`
	ScrollAmount    int           `json:"scroll_amount,omitempty"`
	Duration        hutch.Seconds `json:"duration,omitempty" jsonschema:"seconds"`
	Region          []int         `json:"region,omitempty" jsonschema:"x0, y0, x1, y1"`
}

func (s *server) computer(ctx context.Context, c *call, in computerArgs) (reply, error) {
	c.sandbox = in.SandboxID
	if err := need("sandboxId", in.SandboxID, "the sandbox whose screen it is; exec makes one"); err != nil {
		return reply{}, err
	}
	switch in.Action {
	case openURL:
		p, err := s.svc.OpenURL(ctx, in.SandboxID, in.Text)
		return reply{text: "opened by process " + p.ID}, err
	case readClipboard:
		text, err := s.svc.ReadClipboard(ctx, in.SandboxID)
		if len(text) > maxShown {
			text = string(wholeRunes([]byte(text[:maxShown]))) + fmt.Sprintf("\n[%d bytes in all]", len(text))
		}
		return reply{text: text}, err
	case writeClipboard:
		return reply{text: "written"}, s.svc.WriteClipboard(ctx, in.SandboxID, in.Text)
	}
	req := hutch.ControlRequest{Actions: []hutch.ScreenAction{{
		Action: hutch.ScreenAct(in.Action), Coordinate: in.Coordinate, StartCoordinate: in.StartCoordinate, Text: in.Text,
		ScrollDirection: hutch.Direction(in.ScrollDirection), ScrollAmount: in.ScrollAmount, Duration: in.Duration, Region: in.Region,
	}}}
	if err := req.Check(); err != nil {
		return reply{}, err
	}
	res, err := s.svc.ControlScreen(ctx, in.SandboxID, req)
	if req.Looks() && errors.Is(err, hutch.Conflict) { // the first screenshot starts the screen
		if _, err := s.svc.StartScreen(ctx, in.SandboxID, hutch.ScreenRequest{}); err != nil {
			return reply{}, err
		}
		res, err = s.svc.ControlScreen(ctx, in.SandboxID, req)
	}
	if err != nil {
		return reply{}, err
	}
	text := fmt.Sprintf("screen of %d × %d pixels, pointer at %d,%d", res.Width, res.Height, res.Cursor.X, res.Cursor.Y)
	if len(res.Image) > maxImage {
		return reply{text: text + fmt.Sprintf("; the picture has %d bytes, over the limit of %d: zoom into a region", len(res.Image), maxImage)}, nil
	}
	if res.Image != nil {
		c.images = append(c.images, &sdk.ImageContent{Data: res.Image, MIMEType: "image/png"})
	}
	return reply{text, res.Screen}, nil
}
