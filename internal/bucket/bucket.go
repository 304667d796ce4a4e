// Package bucket reads and writes the objects of a bucket of an S3-compatible service.
//
// A user can name the service of a [Bucket]. So its answers are not trusted: keys, sizes and texts have limits, and
// [Transport] refuses addresses that no user may reach.
package bucket

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"hutch"
)

const (
	partSize = 16 << 20 // size of the parts of a large object; one part is in memory at a time
	mostETag = 200      // bytes
	// The metadata of the objects that are written here.
	sumField  = "hutch-sha256"
	modeField = "hutch-mode"
)

// ErrChanged is the error for an object that is not, or no longer, as the caller expects.
var ErrChanged = errors.New("the object has changed")

// Bucket is a bucket, or the part of one below a prefix.
type Bucket struct {
	core *minio.Core
	at   Address
}

// Object is an object as a listing shows it. Its key is without the prefix of the bucket.
type Object struct {
	Key      string
	ETag     string
	Size     int64
	Modified time.Time
}

// Meta is an object's metadata about the file that it was written from; empty for other objects.
type Meta struct {
	Sum  string // SHA-256 of the content, in hexadecimal
	Mode int64  // permissions; 0 if unknown
}

// Open returns a bucket. It does not contact the service yet. Without a key it signs nothing, as for public buckets.
func Open(at Address, keyID, key string, transport http.RoundTripper) (*Bucket, error) {
	core, err := at.Client(credentials.NewStaticV4(keyID, key, ""), transport)
	if err != nil {
		return nil, err
	}
	return &Bucket{core, at}, nil
}

// List yields the objects. It ends after an error.
func (b *Bucket) List(ctx context.Context) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		ctx, cancel := context.WithCancel(context.WithValue(ctx, listKey{}, &list{}))
		defer cancel()
		owners := false
		for o := range b.core.ListObjectsIter(ctx, b.at.Name, minio.ListObjectsOptions{Prefix: b.at.Prefix, Recursive: true, FetchOwner: &owners}) {
			key, below := strings.CutPrefix(o.Key, b.at.Prefix)
			err := b.explain(o.Err)
			if err == nil && (!below || len(o.ETag) > mostETag || o.Size < 0) {
				err = b.notS3()
			}
			if !yield(Object{key, o.ETag, o.Size, o.LastModified}, err) || err != nil {
				return
			}
		}
		if ctx.Err() != nil {
			yield(Object{}, context.Cause(ctx))
		}
	}
}

// Get opens an object that is as a listing showed it, or returns ErrChanged.
func (b *Bucket) Get(ctx context.Context, o Object) (io.ReadCloser, Meta, error) {
	var opt minio.GetObjectOptions
	if err := opt.SetMatchETag(o.ETag); err != nil {
		return nil, Meta{}, b.notS3()
	}
	body, info, _, err := b.core.GetObject(ctx, b.at.Name, b.at.Prefix+o.Key, opt)
	if err != nil {
		return nil, Meta{}, b.explain(err)
	}
	return &content{body, b, o.Size}, metaOf(info), nil
}

// content is the content of an object, with exactly the given length.
type content struct {
	io.ReadCloser
	b    *Bucket
	left int64
}

func (c *content) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	switch {
	case err == nil || c.left == 0:
		return n, nil
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return n, c.b.explain(err)
}

// Stat returns an object's metadata.
func (b *Bucket) Stat(ctx context.Context, o Object) (Meta, error) {
	info, err := b.core.Client.StatObject(ctx, b.at.Name, b.at.Prefix+o.Key, minio.StatObjectOptions{})
	return metaOf(info), b.explain(err)
}

func metaOf(info minio.ObjectInfo) (m Meta) {
	m.Sum = info.Metadata.Get("X-Amz-Meta-" + sumField)
	if mode, err := strconv.ParseInt(info.Metadata.Get("X-Amz-Meta-"+modeField), 8, 32); err == nil {
		m.Mode = mode & 0o777
	}
	return m
}

// Put writes an object of a given length, completely or not at all, and returns its ETag.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, size int64, m Meta) (etag string, err error) {
	info, err := b.core.Client.PutObject(ctx, b.at.Name, b.at.Prefix+key, r, size, minio.PutObjectOptions{
		PartSize: partSize, NumThreads: 1, UserMetadata: map[string]string{sumField: m.Sum, modeField: strconv.FormatInt(m.Mode, 8)},
	})
	if err == nil && len(info.ETag) > mostETag {
		err = b.notS3()
	}
	return strings.Trim(info.ETag, `"`), b.explain(err)
}

// Copy copies an object that is as a listing showed it to another key, or returns ErrChanged.
func (b *Bucket) Copy(ctx context.Context, o Object, to string) error {
	_, err := b.core.Client.CopyObject(ctx, minio.CopyDestOptions{Bucket: b.at.Name, Object: b.at.Prefix + to},
		minio.CopySrcOptions{Bucket: b.at.Name, Object: b.at.Prefix + o.Key, MatchETag: o.ETag})
	return b.explain(err)
}

// Delete removes an object. A missing object is not an error.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	return b.explain(b.core.Client.RemoveObject(ctx, b.at.Name, b.at.Prefix+key, minio.RemoveObjectOptions{}))
}

func (b *Bucket) notS3() error {
	return hutch.Errorf(hutch.Unavailable, "the endpoint %s of the bucket %q does not answer as an S3 service: correct the URL", b.at.Host, b.at.Name)
}

// explain turns an error of the service or of the connection into an error for the user.
func (b *Bucket) explain(err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*hutch.Error](err); ok {
		return known
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	answer, _ := errors.AsType[minio.ErrorResponse](err)
	switch code := answer.Code; code {
	case "":
		return hutch.Errorf(hutch.Unavailable, "the bucket %q at %s does not answer: check the endpoint, or try again later", b.at.Name, b.at.Host).Because(err)
	case "NoSuchKey", "PreconditionFailed":
		return ErrChanged
	case "NoSuchBucket", "InvalidBucketName":
		return hutch.Errorf(hutch.NotFound, "there is no bucket %q at %s: create it there, or correct the URL", b.at.Name, b.at.Host).Because(err)
	case "AccessDenied", "SignatureDoesNotMatch", "InvalidAccessKeyId", "InvalidAccessKey", "XAdminUserNotFound":
		return hutch.Errorf(hutch.Denied, "the bucket %q at %s refused the access key (%s): correct the key id and the secret, or the rights of the key", b.at.Name, b.at.Host, code).Because(err)
	default:
		return hutch.Errorf(hutch.Unavailable, "the bucket %q at %s refused (%.60q): try again later", b.at.Name, b.at.Host, code).Because(err)
	}
}
