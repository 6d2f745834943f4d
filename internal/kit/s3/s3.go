// Package s3 stores objects in a bucket of an S3 API: of AWS, or of another server.
package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
)

// maxName is the longest name of an object with its prefix, in bytes.
const maxName = 1024

// Bucket is a bucket, or what is below a prefix in it.
type Bucket struct {
	name, prefix, region string
	base                 *url.URL // of the bucket
	credentials          credentials
	client               *http.Client
	stall                time.Duration // how long a request may make no progress
	partSize, maxParts   int
}

// Object is a stored object.
type Object struct {
	// Name is below the prefix of the bucket.
	Name     string
	Size     int64
	Modified time.Time
}

// String returns the bucket with its prefix. It has no credentials.
func (b *Bucket) String() string { return strings.TrimSuffix("s3://"+b.name+"/"+b.prefix, "/") }

// GoString is for the verb %#v: without it, fmt prints the credentials.
func (b *Bucket) GoString() string { return b.String() }

// key returns the key of an object in the bucket.
func (b *Bucket) key(name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	key := b.prefix + name
	if len(key) > maxName {
		return "", bad("use a shorter name or prefix",
			"object %q has a name of %d bytes with the prefix, and S3 allows %d", name, len(key), maxName)
	}
	return key, nil
}

// checkName refuses names that servers and proxies read in different ways.
func checkName(name string) error {
	if !fs.ValidPath(name) || name == "." || strings.ContainsFunc(name, unicode.IsControl) {
		return bad("use names with single slashes, without . and .. between them",
			"%q is not the name of an object", name)
	}
	return nil
}

// List returns the objects whose names start with a prefix, in the order of their names. Objects with names that Put
// refuses are not listed, such as the empty objects that stand for directories in some tools.
func (b *Bucket) List(ctx context.Context, prefix string) ([]Object, error) {
	if prefix != "" {
		if err := checkName(strings.TrimSuffix(prefix, "/")); err != nil {
			return nil, err
		}
	}
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "prefix": {b.prefix + prefix}}
	var all []Object
	for {
		var p page
		r := request{does: lists, method: http.MethodGet, query: query}
		if _, err := b.call(ctx, r, &p); err != nil {
			return nil, err
		}
		if err := p.objects(b.prefix+prefix, func(key string, o Object) {
			o.Name = strings.TrimPrefix(key, b.prefix)
			if checkName(o.Name) == nil {
				all = append(all, o)
			}
		}); err != nil {
			return nil, b.explain(r, err)
		}
		if !p.IsTruncated {
			return all, nil
		}
		if p.NextContinuationToken == "" || p.NextContinuationToken == query.Get("continuation-token") {
			return nil, b.explain(r,
				errors.New("the list has more pages, but the server does not send where they start"))
		}
		query.Set("continuation-token", p.NextContinuationToken)
	}
}

// page is a page of a list.
type page struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	EncodingType          string
	IsTruncated           bool
	NextContinuationToken string
	Contents              []struct {
		Key          string
		Size         int64
		LastModified time.Time
	}
}

// objects calls add for the objects of a page. Keys are encoded, because XML does not allow all characters.
func (p page) objects(prefix string, add func(key string, o Object)) error {
	for _, c := range p.Contents {
		key := c.Key
		if p.EncodingType == "url" {
			var err error
			if key, err = url.QueryUnescape(key); err != nil {
				return fmt.Errorf("the server sends the name %q: %w", c.Key, err)
			}
		}
		if !strings.HasPrefix(key, prefix) {
			return fmt.Errorf("the server sends the name %q, which does not start with %q", key, prefix)
		}
		add(key, Object{Size: c.Size, Modified: c.LastModified})
	}
	return nil
}

// Delete deletes an object. It is not an error if there is none.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	key, err := b.key(name)
	if err != nil {
		return err
	}
	_, err = b.call(ctx, request{does: deletes, method: http.MethodDelete, key: key}, nil)
	if errors.Is(err, fs.ErrNotExist) { // AWS does not report it, other servers do
		return nil
	}
	return err
}
