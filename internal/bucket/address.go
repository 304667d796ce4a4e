package bucket

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"hutch"
)

// Address is where a bucket is.
type Address struct {
	Name     string
	Prefix   string // prefix of all keys; empty, or with a slash at its end
	Host     string // host of the service, with its port if that is not the usual one
	Region   string
	Insecure bool // without TLS
}

// Parse reads s3://BUCKET/PREFIX, with the parameters region and, if the service is not Amazon's, endpoint.
func Parse(text string) (Address, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil {
		return Address{}, hutch.Errorf(hutch.Invalid, "%.200q names no bucket: write s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION, without the keys", text)
	}
	if err := s3utils.CheckValidBucketName(u.Host); err != nil {
		return Address{}, hutch.Errorf(hutch.Invalid, "%.80q cannot be the name of a bucket: use 3 to 63 of a-z, 0-9, hyphen and dot", u.Host).Because(err)
	}
	q := u.Query()
	endpoint, err := url.Parse(q.Get("endpoint"))
	if err != nil || endpoint.Host == "" && q.Has("endpoint") || strings.Trim(endpoint.Path, "/") != "" || endpoint.User != nil {
		return Address{}, hutch.Errorf(hutch.Invalid, "the endpoint %.200q is not a URL: write https://HOST or http://HOST:PORT", q.Get("endpoint"))
	}
	a := Address{Name: u.Host, Prefix: strings.Trim(u.Path, "/"), Host: endpoint.Host, Region: q.Get("region"), Insecure: endpoint.Scheme == "http"}
	if a.Host == "" {
		a.Host = "s3.amazonaws.com"
	}
	if a.Prefix != "" {
		a.Prefix += "/"
	}
	return a, nil
}

// Client returns a client of the service. It does not contact the service yet. Without a transport it uses the
// client's own.
func (a Address) Client(keys *credentials.Credentials, transport http.RoundTripper) (*minio.Core, error) {
	core, err := minio.NewCore(a.Host, &minio.Options{Creds: keys, Secure: !a.Insecure, Region: a.Region, Transport: transport, MaxRetries: retries(transport)})
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the bucket %s cannot be used: %v", a.Name, err)
	}
	return core, nil
}

// retries returns how many times a request is sent at most; 0 is the client's own default. Requests that a user waits
// for fail early.
func retries(transport http.RoundTripper) int {
	if transport == nil {
		return 0
	}
	return 2
}
