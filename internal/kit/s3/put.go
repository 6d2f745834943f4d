package s3

import (
	"context"
	"crypto/rand"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// partSize is the size of the parts of an upload, in bytes. One part is in memory.
	partSize = 8 << 20
	// maxParts is how many parts an object can have.
	maxParts = 10_000
	// abortTimeout is how long an upload may take to be aborted, also after Ctrl-C.
	abortTimeout = 30 * time.Second
	// uploadHeader marks an object with the upload that it is from.
	uploadHeader = "X-Amz-Meta-Upload"
)

// part is a part of an object, in the request that completes an upload.
type part struct {
	PartNumber int
	ETag       string
}

// Put stores an object that it reads until the end. The object appears when all of it is stored: if reading or a
// request fails, an existing object of this name is not changed. It sends one request if the content fits into one
// part, and else an upload of parts.
func (b *Bucket) Put(ctx context.Context, name string, r io.Reader) error {
	key, err := b.key(name)
	if err != nil {
		return err
	}
	in := &partReader{r: r, size: b.partSize}
	data, err := in.next(ctx)
	if err != nil {
		return b.explain(request{does: stores, key: key}, err)
	}
	if in.more == nil {
		_, err := b.call(ctx, request{does: stores, method: http.MethodPut, key: key, body: data}, nil)
		return err
	}
	return b.upload(ctx, key, data, in)
}

// partReader reads parts, and one byte more, to know whether there is another part.
type partReader struct {
	r    io.Reader
	size int
	more []byte // the first byte of the next part, if there is one
}

// next returns the next part. Each part has its own memory: net/http may read the body of a request that was answered
// early after its answer. Only io.EOF is the end: io.ReadFull would return
// io.ErrUnexpectedEOF, which can also be the error of a reader whose source has broken off.
func (p *partReader) next(ctx context.Context) ([]byte, error) {
	buf := make([]byte, p.size+1)
	n := copy(buf, p.more)
	for p.more = nil; n < len(buf); {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		m, err := p.r.Read(buf[n:])
		n += m
		if err == io.EOF {
			return buf[:n], nil
		}
		if err != nil {
			return nil, err
		}
	}
	p.more = buf[n-1:]
	return buf[:n-1], nil
}

// upload stores an object of many parts.
func (b *Bucket) upload(ctx context.Context, key string, data []byte, in *partReader) error {
	mark := rand.Text()
	var started struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		UploadID string   `xml:"UploadId"`
	}
	r := request{
		does: stores, method: http.MethodPost, key: key,
		query: url.Values{"uploads": {""}}, header: http.Header{uploadHeader: {mark}},
	}
	if _, err := b.call(ctx, r, &started); err != nil {
		return err
	}
	if started.UploadID == "" {
		return b.explain(r, errors.New("the server does not send the ID of the upload"))
	}
	parts, err := b.uploadParts(ctx, key, started.UploadID, data, in)
	if err == nil {
		err = b.complete(ctx, key, started.UploadID, mark, parts)
	}
	if err == nil {
		return nil
	}
	abort, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	return errors.Join(err, b.abort(abort, key, started.UploadID))
}

// uploadParts sends the first part and all that follow it.
func (b *Bucket) uploadParts(ctx context.Context, key, upload string, data []byte, in *partReader) ([]part, error) {
	var parts []part
	for {
		n := len(parts) + 1
		r := request{does: stores, method: http.MethodPut, key: key, body: data, query: url.Values{
			"partNumber": {strconv.Itoa(n)}, "uploadId": {upload},
		}}
		if n > b.maxParts {
			return nil, b.explain(r, fmt.Errorf("it is larger than %d parts of %d bytes", b.maxParts, b.partSize))
		}
		header, err := b.call(ctx, r, nil)
		if err != nil {
			return nil, err
		}
		if header.Get("ETag") == "" {
			return nil, b.explain(r, fmt.Errorf("the server does not send the ETag of part %d", n))
		}
		parts = append(parts, part{n, header.Get("ETag")})
		if in.more == nil {
			return parts, nil
		}
		if data, err = in.next(ctx); err != nil {
			return nil, b.explain(r, err)
		}
	}
}

// complete makes an object of the parts of an upload.
func (b *Bucket) complete(ctx context.Context, key, upload, mark string, parts []part) error {
	body, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []part
	}{Part: parts})
	if err != nil {
		return err
	}
	var done struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
	}
	_, err = b.call(ctx, request{
		does: stores, method: http.MethodPost, key: key, query: url.Values{"uploadId": {upload}}, body: body,
	}, &done)
	// The answer to an earlier attempt can be lost. Then there is no upload, but an object with its mark.
	if e, ok := errors.AsType[*Error](err); ok && e.Code == noSuchUpload && b.has(ctx, key, mark) {
		return nil
	}
	return err
}

// has reports whether the server has an object from an upload with this mark.
func (b *Bucket) has(ctx context.Context, key, mark string) bool {
	header, err := b.call(ctx, request{does: reads, method: http.MethodHead, key: key}, nil)
	return err == nil && header.Get(uploadHeader) == mark
}

// abort deletes the parts of an upload. It is not an error if the server does not have the upload.
func (b *Bucket) abort(ctx context.Context, key, upload string) error {
	r := request{does: aborts, method: http.MethodDelete, key: key, query: url.Values{"uploadId": {upload}}}
	_, err := b.call(ctx, r, nil)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == noSuchUpload {
		return nil
	}
	return err
}
