package fleet

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"

	"hutch"
	"hutch/internal/travel"
)

// A saved memory image can be restored only by the version of the programs that saved it, which is called its build.
// For each build that an image needs, the bucket has an object with its programs. So a sandbox that slept before an
// upgrade wakes on an upgraded node.

func (c *carrier) buildKey(build string) string { return c.folder + "build-" + build }

// sealedBuild returns the name under which the programs of a build are encrypted.
func sealedBuild(build string) string { return "build " + build }

// keepBuild writes the programs that an image needs to the bucket, if the bucket does not have them. When ctx is done,
// it returns even if another transfer is still writing them, because a call may be waiting for the sandbox.
func (c *carrier) keepBuild(ctx context.Context, n travel.Needs) error {
	if n.Build == "" || c.machine.Contracts[n.Runtime] == "" {
		return nil
	}
	if err := c.keeping.Take(ctx); err != nil {
		return err
	}
	defer c.keeping.Put()
	if c.builds[n.Build] {
		return nil
	}
	body, err := c.Bucket.Get(ctx, c.buildKey(n.Build))
	if err == nil {
		err = body.Close()
	} else if errors.Is(err, fs.ErrNotExist) {
		_, err = travel.Write(ctx, c.Bucket, c.Key, c.buildKey(n.Build), sealedBuild(n.Build), func(w io.Writer) error {
			return c.Engine.SendBuild(n.Runtime, n.Build, w)
		})
	}
	if err == nil {
		c.builds[n.Build] = true
	}
	return err
}

// keepOldBuild writes the programs again if they have been removed from the bucket since keepBuild. Until the directory
// knows the image, another node can remove the programs of an old version as unused.
func (c *carrier) keepOldBuild(ctx context.Context, n travel.Needs) error {
	if n.Build == c.machine.Builds[n.Runtime] {
		return nil
	}
	if err := c.forgetBuilds(ctx); err != nil {
		return err
	}
	return c.keepBuild(ctx, n)
}

func (c *carrier) forgetBuilds(ctx context.Context) error {
	if err := c.keeping.Take(ctx); err != nil {
		return err
	}
	defer c.keeping.Put()
	clear(c.builds)
	return nil
}

// bringBuild fetches the programs that an image needs, if this node does not have them.
func (c *carrier) bringBuild(ctx context.Context, n travel.Needs) error {
	if n.Build == "" || c.Engine.HasBuild(n.Runtime, n.Build) {
		return nil
	}
	body, err := c.Bucket.Get(ctx, c.buildKey(n.Build))
	if errors.Is(err, fs.ErrNotExist) {
		return hutch.Errorf(hutch.Unavailable, "the bucket does not have the programs of the version of Hutch that saved it (build %.20s): start a node with that version once, or destroy the sandbox", n.Build)
	}
	if err != nil {
		return err
	}
	defer body.Close()
	return travel.Unseal(body, c.Key, sealedBuild(n.Build), func(r io.Reader) error { return c.Engine.ReceiveBuild(n.Runtime, n.Build, r) })
}

// cleanBuilds removes from the bucket the programs that no image needs and no node runs.
func (c *carrier) cleanBuilds(ctx context.Context, keys []string) {
	used, err := c.dir().builds(ctx)
	if err == nil {
		err = c.forgetBuilds(ctx)
	}
	if err != nil {
		return
	}
	for _, key := range keys {
		if build, ok := strings.CutPrefix(key, c.buildKey("")); ok && !used[build] {
			c.drop(key)
		}
	}
}
