package objects

import (
	"context"
	"io"
	"io/fs"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"hutch"
	"hutch/internal/bucket"
)

// partSize is how much of an object is sent at a time, and held in memory; an
// object has at most 10,000 parts.
const partSize = 16 << 20

// Bucket is a store in a bucket of an S3-compatible service.
type Bucket struct {
	client *minio.Client
	name   string
	prefix string
}

// OpenBucket opens the bucket that a URL names: s3://BUCKET/PREFIX, with the parameters region and, if the service is
// not Amazon's, endpoint. It does not contact the service yet.
func OpenBucket(address string, creds *credentials.Credentials) (*Bucket, error) {
	at, err := bucket.Parse(address)
	if err != nil {
		return nil, err
	}
	core, err := at.Client(creds, nil)
	if err != nil {
		return nil, err
	}
	return &Bucket{client: core.Client, name: at.Name, prefix: at.Prefix}, nil
}

// Put implements Store.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader) error {
	_, err := b.client.PutObject(ctx, b.name, b.prefix+key, r, -1, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: partSize,
	})
	return b.explain(err)
}

// Get implements Store.
func (b *Bucket) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	o, err := b.client.GetObject(ctx, b.name, b.prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.explain(err)
	}
	if _, err := o.Stat(); err != nil {
		o.Close()
		return nil, b.explain(err)
	}
	return o, nil
}

// List implements Store.
func (b *Bucket) List(ctx context.Context, prefix string) (keys []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for o := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, b.explain(o.Err)
		}
		keys = append(keys, strings.TrimPrefix(o.Key, b.prefix))
	}
	return keys, ctx.Err()
}

// Delete implements Store.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	return b.explain(b.client.RemoveObject(ctx, b.name, b.prefix+key, minio.RemoveObjectOptions{}))
}

// explain turns the service's answer into an error for the operator.
func (b *Bucket) explain(err error) error {
	if err == nil {
		return nil
	}
	said := minio.ToErrorResponse(err)
	switch said.Code {
	case "NoSuchKey":
		return fs.ErrNotExist
	case "": // not an error of the service, but of a reader, a context or the network
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the bucket refused (%s): try again later, or tell the operator of this server", said.Code).Because(err)
}
