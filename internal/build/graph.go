package build

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"sync"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerui"
	"github.com/moby/buildkit/solver/pb"
	"github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"

	"hutch"
)

// mostVertices is how many operations a build can have.
const mostVertices = 1000

// vertex is one operation of a graph.
type vertex struct {
	op    *pb.Op
	name  string // for people
	again bool   // the operation must be done again
}

// graph is the parsed Dockerfile.
type graph struct {
	vertices map[string]*vertex // by digest
	last     *pb.Input          // input whose files the image has; nil for an image without files
	config   []byte             // config of the image
}

// baseResolver finds an image that a FROM names: its digest and its configuration.
type baseResolver func(ctx context.Context, ref string) (digest string, config []byte, err error)

// ResolveImageConfig implements BuildKit's interface.
func (r baseResolver) ResolveImageConfig(ctx context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	d, config, err := r(ctx, ref)
	return ref, digest.Digest(d), config, err
}

// bounded counts the variables and triggers of images before the frontend sees them. The frontend requests many images
// at once.
func (r baseResolver) bounded(size *growth) baseResolver {
	var mu sync.Mutex
	return func(ctx context.Context, ref string) (string, []byte, error) {
		mu.Lock()
		defer mu.Unlock()
		digest, config, err := r(ctx, ref)
		if err == nil {
			err = size.base(digest, config)
		}
		return digest, config, err
	}
}

// convert reads a Dockerfile.
func convert(ctx context.Context, q question, resolve baseResolver, warn func(string)) (definition, error) {
	size, err := measure(q.Text, q.Args)
	if err != nil {
		return definition{}, err
	}
	if frontend, _, _, ok := parser.DetectSyntax(q.Text); ok {
		warn("the line # syntax=" + frontend + " is ignored: Hutch has a frontend of its own")
	}
	st, image, _, _, err := dockerfile2llb.Dockerfile2LLB(ctx, q.Text, dockerfile2llb.ConvertOpt{
		Config:         dockerui.Config{BuildArgs: q.Args, Labels: q.Labels, Target: q.Target},
		TargetPlatform: &ocispecs.Platform{OS: "linux", Architecture: runtime.GOARCH},
		MetaResolver:   resolve.bounded(size),
		Warn: func(_, description, _, message string, _ []parser.Range) {
			warn(cmp.Or(message, description))
		},
	})
	if err != nil {
		return definition{}, badDockerfile(err)
	}
	made, err := st.Marshal(ctx, llb.Platform(ocispecs.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return definition{}, badDockerfile(err)
	}
	d := definition{Operations: made.Def, About: map[string]about{}}
	for at, known := range made.Metadata {
		d.About[at.String()] = about{known.Description["llb.customname"], known.IgnoreCache}
	}
	d.Config, err = json.Marshal(image)
	return d, err
}

// badDockerfile returns the error for a Dockerfile that the frontend refuses. Our own errors keep their kind.
func badDockerfile(err error) error {
	if own, ok := errors.AsType[*hutch.Error](err); ok {
		return own
	}
	if disk, ok := errors.AsType[*fs.PathError](err); ok {
		return disk
	}
	text := err.Error()
	if at := lineOf(err); at != "" {
		text = at + ": " + text
	}
	return hutch.Errorf(hutch.Invalid, "the Dockerfile cannot be built: %s", strings.TrimPrefix(text, "dockerfile parse error on "))
}

func lineOf(err error) string {
	var located *parser.LocationError
	if !errors.As(err, &located) || len(located.Locations) == 0 || len(located.Locations[0]) == 0 {
		return ""
	}
	return "line " + itoa(located.Locations[0][0].Start.Line)
}

// newGraph reads a definition, whose last operation names the result.
func newGraph(d definition) (*graph, error) {
	if len(d.Operations) > mostVertices {
		return nil, hutch.Errorf(hutch.Exhausted, "the Dockerfile has more than %d steps: make several images of it", mostVertices).With("limit", "build steps")
	}
	g := &graph{vertices: map[string]*vertex{}, config: d.Config}
	for _, text := range d.Operations {
		op := &pb.Op{}
		if err := op.Unmarshal(text); err != nil {
			return nil, err
		}
		if op.Op == nil {
			if len(op.Inputs) > 0 {
				g.last = op.Inputs[0]
			}
			continue
		}
		at := digest.FromBytes(text).String()
		g.vertices[at] = &vertex{op: op, name: d.About[at].Name, again: d.About[at].Again}
	}
	return g, nil
}
