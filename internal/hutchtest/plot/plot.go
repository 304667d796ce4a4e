// Package plot draws the figures of benches and tests as SVG.
package plot

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Chart is a chart of lines with a common X axis.
type Chart struct {
	Name, Title string // Name is the name of the file
	Logarithmic bool   // whether the X axis is logarithmic
	X           []int
	Lines       []Line
}

// Line has a value for each X, or only for the first ones.
type Line struct {
	Name string
	Y    []float64
}

// labels is the highest number of values written at a linear axis.
const labels = 9

// colours can be distinguished by people with colour blindness, on white and on black.
var colours = []string{"#888888", "#0072b2", "#d55e00", "#009e73", "#cc79a7"}

// The sizes of the picture, in pixels.
const (
	width, height          = 720, 360
	left, right, top, foot = 60, 180, 40, 40
)

// Save writes the chart as SVG into a folder.
func (c Chart) Save(dir string) error {
	return os.WriteFile(filepath.Join(dir, c.Name+".svg"), []byte(c.svg()), 0o644)
}

func (c Chart) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" fill="#777">`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="15">%s</text>`+"\n", left, html.EscapeString(c.Title))
	most := c.most()
	for i := range 5 {
		v := most * float64(i) / 4
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#777" stroke-opacity=".3"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n", left, c.top(v), width-right, left-8, c.top(v)+4, v)
	}
	every := 1
	if !c.Logarithmic {
		every = (len(c.X) + labels - 1) / labels
	}
	for i, x := range c.X {
		if i%every != 0 {
			continue
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", c.left(i), height-foot+20, x)
	}
	for i, l := range c.Lines {
		var points []string
		for k, y := range l.Y {
			points = append(points, fmt.Sprintf("%.1f,%.1f", c.left(k), c.top(y)))
		}
		colour := colours[i%len(colours)]
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), colour)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", width-right+12, top+12+20*i, colour, html.EscapeString(l.Name))
	}
	return b.String() + "</svg>\n"
}

// most returns the end of the vertical axis: a round number above all lines.
func (c Chart) most() float64 {
	top := 1.0
	for _, l := range c.Lines {
		top = max(top, slices.Max(l.Y))
	}
	step := math.Pow(10, math.Floor(math.Log10(top)))
	return math.Ceil(top/step*2) / 2 * step
}

func (c Chart) top(y float64) float64 {
	return height - foot - y/c.most()*(height-top-foot)
}

func (c Chart) left(i int) float64 {
	scale := func(i int) float64 {
		if c.Logarithmic {
			return math.Log(float64(c.X[i]))
		}
		return float64(c.X[i])
	}
	span := scale(len(c.X)-1) - scale(0)
	return left + (scale(i)-scale(0))/max(span, 1)*(width-left-right)
}
