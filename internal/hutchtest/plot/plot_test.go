package plot

import (
	"encoding/xml"
	"slices"
	"testing"
)

// TestPlot: a plot is valid XML with all measured values.
func TestPlot(t *testing.T) {
	c := Chart{Title: "a < b", Logarithmic: true, X: []int{1, 8, 64}, Lines: []Line{{"one", []float64{0, 40, 90}}, {"two", []float64{3, 2, 1}}}}
	var doc struct {
		Text  []string   `xml:"text"`
		Lines []struct{} `xml:"polyline"`
	}
	if err := xml.Unmarshal([]byte(c.svg()), &doc); err != nil || len(doc.Lines) != 2 || !slices.Contains(doc.Text, "a < b") || !slices.Contains(doc.Text, "64") {
		t.Errorf("%v: %+v", err, doc)
	}
	if c.top(0) != height-foot || c.top(c.most()) != top || c.most() < 90 || c.left(0) != left || c.left(2) != width-right {
		t.Errorf("axes: 0 at %v, %v at %v", c.top(0), c.most(), c.top(c.most()))
	}

	linear := Chart{Title: "seconds", Lines: []Line{{"one", []float64{1, 2}}}}
	for i := range 100 {
		linear.X = append(linear.X, i)
	}
	doc.Text, doc.Lines = nil, nil
	if err := xml.Unmarshal([]byte(linear.svg()), &doc); err != nil || len(doc.Lines) != 1 || len(doc.Text) > 5+labels+2 || !slices.Contains(doc.Text, "96") {
		t.Errorf("%v: %+v", err, doc)
	}
	if linear.left(0) != left || linear.left(99) != width-right {
		t.Errorf("its axis is from %v to %v", linear.left(0), linear.left(99))
	}
}
