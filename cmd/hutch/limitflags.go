package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// The flags of limits. In requests 0 stands for a limit that is left out, so `--memory 0` would mean the default.

// mebibytesVar defines a flag for a size in MiB, such as 512, 512m or 2g.
func mebibytesVar(f *pflag.FlagSet, n *int, name, usage string) {
	f.Var((*mebibytes)(n), name, usage)
}

// mebibytes is the value of a flag: MiB without a unit, as in requests, or with one, as Docker and others write sizes.
type mebibytes int

var sizes = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(m|g|t)?(i?b)?$`)

func (m *mebibytes) Set(text string) error {
	part := sizes.FindStringSubmatch(strings.ToLower(text))
	if part == nil || part[2] == "" && part[3] != "" {
		return fmt.Errorf("%q is not a size: give MiB, such as 512, or a size with a unit, such as 512m or 2g", text)
	}
	n, err := strconv.ParseFloat(part[1], 64)
	n *= map[string]float64{"": 1, "m": 1, "g": 1 << 10, "t": 1 << 20}[part[2]]
	switch {
	case err != nil || n > math.MaxInt32:
		return fmt.Errorf("%q is too large a size: give a smaller one", text)
	case n == 0:
		return fmt.Errorf("%q is not above 0: leave the flag out for the default", text)
	case n != math.Trunc(n):
		return fmt.Errorf("%q is not a whole number of MiB: give one, such as 512 or 2g", text)
	}
	*m = mebibytes(n)
	return nil
}

func (m *mebibytes) Type() string { return "size" }

func (m *mebibytes) String() string {
	if *m == 0 {
		return "" // in help: no default
	}
	return strconv.Itoa(int(*m))
}

// bytesVar defines a flag for a number of bytes, with a unit, such as 500k, 10m or 2g.
func bytesVar(f *pflag.FlagSet, n *int64, name, usage string) {
	f.Var((*byteSize)(n), name, usage)
}

// byteSize is the value of a flag: a number of bytes. A unit is required, because other sizes without one are MiB.
type byteSize int64

var byteSizes = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(b|[kmgt](?:i?b)?)$`)

func (b *byteSize) Set(text string) error {
	part := byteSizes.FindStringSubmatch(strings.ToLower(text))
	if part == nil {
		return fmt.Errorf("%q is not a size with a unit: give one, such as 500k, 10m or 2g", text)
	}
	n, err := strconv.ParseFloat(part[1], 64)
	n = math.Trunc(n * float64(int64(1)<<map[byte]int{'b': 0, 'k': 10, 'm': 20, 'g': 30, 't': 40}[part[2][0]]))
	switch {
	case err != nil || n >= math.MaxInt64:
		return fmt.Errorf("%q is too large a size: give a smaller one", text)
	case n == 0:
		return fmt.Errorf("%q is not above 0: leave the flag out for the default", text)
	}
	*b = byteSize(n)
	return nil
}

func (b *byteSize) Type() string { return "size" }

func (b *byteSize) String() string {
	if *b == 0 {
		return "" // in help: no default
	}
	return strconv.FormatInt(int64(*b), 10) + "b"
}

// countVar defines a flag for a number of things.
func countVar(f *pflag.FlagSet, n *int, name, usage string) {
	f.Var(limitValue[int]{n, "number", "a whole number", strconv.Atoi}, name, usage)
}

// coresVar defines a flag for a number of cores, such as 2 or 0.5.
func coresVar(f *pflag.FlagSet, n *float64, name, usage string) {
	f.Var(limitValue[float64]{n, "cores", "a number", func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }}, name, usage)
}

// limitValue is the value of a flag that cannot be 0 or less.
type limitValue[T int | float64] struct {
	n          *T
	kind, fits string
	parse      func(string) (T, error)
}

func (l limitValue[T]) Set(text string) error {
	v, err := l.parse(text)
	switch {
	case err != nil || v != v: // not a number
		return fmt.Errorf("%q is not %s: give one above 0", text, l.fits)
	case v <= 0:
		return fmt.Errorf("%q is not above 0: leave the flag out for the default", text)
	}
	*l.n = v
	return nil
}

func (l limitValue[T]) Type() string { return l.kind }

func (l limitValue[T]) String() string {
	if l.n == nil || *l.n == 0 {
		return "" // in help: no default
	}
	return fmt.Sprint(*l.n)
}
