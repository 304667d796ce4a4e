package backup

import (
	"context"
	"io"
	"io/fs"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"hutch"
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
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil {
		return nil, hutch.Errorf(hutch.Invalid, "%q names no bucket: write s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION, and give the keys in the environment", address)
	}
	q := u.Query()
	endpoint, err := url.Parse(q.Get("endpoint"))
	if err != nil || endpoint.Host == "" && q.Has("endpoint") || strings.Trim(endpoint.Path, "/") != "" {
		return nil, hutch.Errorf(hutch.Invalid, "the endpoint %q is not a URL: write https://HOST or http://HOST:PORT", q.Get("endpoint"))
	}
	host := endpoint.Host
	if host == "" {
		host = "s3.amazonaws.com"
	}
	client, err := minio.New(host, &minio.Options{Creds: creds, Secure: endpoint.Scheme != "http", Region: q.Get("region")})
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the bucket %s cannot be used: %v", u.Host, err)
	}
	b := &Bucket{client: client, name: u.Host, prefix: strings.Trim(u.Path, "/")}
	if b.prefix != "" {
		b.prefix += "/"
	}
	return b, nil
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
	case "": // another error than a refusal by the service: a reader, a context, the network
		return err
	}
	return hutch.Errorf(hutch.Unavailable, "the bucket of the backups refused (%s): try again later, or tell whoever runs this server", said.Code).Because(err)
}
