package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// chart is lines over a logarithmic axis.
type chart struct {
	name, title string
	x           []int
	lines       []line
}

type line struct {
	name string
	y    []float64
}

// colours can be distinguished by people with colour blindness, on white and on black.
var colours = []string{"#888888", "#0072b2", "#d55e00", "#009e73", "#cc79a7"}

// The picture, in pixels.
const (
	width, height          = 720, 360
	left, right, top, foot = 60, 180, 40, 40
)

// save writes the chart as SVG into a folder.
func (c chart) save(dir string) error {
	return os.WriteFile(filepath.Join(dir, c.name+".svg"), []byte(c.svg()), 0o644)
}

func (c chart) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" fill="#777">`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="15">%s</text>`+"\n", left, html.EscapeString(c.title))
	most := c.most()
	for i := range 5 {
		v := most * float64(i) / 4
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#777" stroke-opacity=".3"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n", left, c.top(v), width-right, left-8, c.top(v)+4, v)
	}
	for i, x := range c.x {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", c.left(i), height-foot+20, x)
	}
	for i, l := range c.lines {
		var points []string
		for k, y := range l.y {
			points = append(points, fmt.Sprintf("%.1f,%.1f", c.left(k), c.top(y)))
		}
		colour := colours[i%len(colours)]
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), colour)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", width-right+12, top+12+20*i, colour, html.EscapeString(l.name))
	}
	return b.String() + "</svg>\n"
}

// most returns the end of the vertical axis: round, and above all lines.
func (c chart) most() float64 {
	top := 1.0
	for _, l := range c.lines {
		top = max(top, slices.Max(l.y))
	}
	step := math.Pow(10, math.Floor(math.Log10(top)))
	return math.Ceil(top/step*2) / 2 * step
}

func (c chart) top(y float64) float64 {
	return height - foot - y/c.most()*(height-top-foot)
}

func (c chart) left(i int) float64 {
	span := math.Log(float64(c.x[len(c.x)-1])) - math.Log(float64(c.x[0]))
	return left + (math.Log(float64(c.x[i]))-math.Log(float64(c.x[0])))/max(span, 1)*(width-left-right)
}
