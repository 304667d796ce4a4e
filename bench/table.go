package main

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// table is rows of cells; the first cell is a name.
type table struct {
	rows  [][]string
	notes []string
}

func newTable(head ...string) table { return table{rows: [][]string{head}} }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) note(text string) { t.notes = append(t.notes, text) }

// quantiles adds a row with the quantiles of s, and the ratio of its median to that of base.
func (t *table) quantiles(name string, s, base series) {
	t.row(name, number(s.at(0.5)), number(s.at(0.95)), number(s.at(0.99)), ratio(s.at(0.5), base.at(0.5)))
}

// String returns the table in Markdown, with aligned columns.
func (t table) String() string {
	width := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	for k, row := range t.rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString("| " + cell + pad + " |")
			} else {
				b.WriteString(" " + pad + cell + " |")
			}
		}
		b.WriteByte('\n')
		if k == 0 {
			b.WriteString(rule(width))
		}
	}
	for _, n := range t.notes {
		b.WriteString("\n" + n + "\n")
	}
	return b.String()
}

func rule(width []int) string {
	line := "|" + strings.Repeat("-", width[0]+2) + "|"
	for _, w := range width[1:] {
		line += strings.Repeat("-", w+1) + ":|"
	}
	return line + "\n"
}

// number returns v with three significant digits, or nothing for a value that was not measured.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func ratio(v, base float64) string {
	if math.IsNaN(v / base) {
		return ""
	}
	return number(v/base) + " ×"
}
