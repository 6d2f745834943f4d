package s3

import (
	"cmp"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// The codes of S3 that decide what happens next.
const (
	noSuchKey    = "NoSuchKey"
	noSuchUpload = "NoSuchUpload"
)

// action is the purpose of a request, for errors.
type action string

const (
	lists   action = "list"
	reads   action = "read"
	stores  action = "store"
	deletes action = "delete"
	aborts  action = "delete the uploaded parts of"
)

// permission returns the permission of AWS that an action needs.
func (a action) permission() string {
	return map[action]string{
		lists: "s3:ListBucket", reads: "s3:GetObject", stores: "s3:PutObject", deletes: "s3:DeleteObject",
		aborts: "s3:AbortMultipartUpload",
	}[a]
}

// Error is the answer of a server that refuses a request.
type Error struct {
	// Status is the HTTP status, such as 403 Forbidden. It can be 200 OK.
	Status string
	// Code and Message are from S3. Code is empty if the answer is not from S3.
	Code, Message string
	// RequestID identifies the request in the logs of the server.
	RequestID string
	status    int
	region    string        // where the bucket is, if the server sends it
	location  string        // where the server redirects to
	skew      time.Duration // how much the clock of the server is ahead
}

func (e *Error) Error() string {
	if e.Code == "" {
		return "the server answers " + e.Status
	}
	text := e.Code
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.RequestID != "" {
		text += " (request ID " + e.RequestID + ")"
	}
	return text
}

// Is reports that there is no such object. A 404 without this code can be from a proxy, or mean that there is no such
// bucket.
func (e *Error) Is(target error) bool { return target == fs.ErrNotExist && e.Code == noSuchKey }

// passes reports whether the same request can succeed later.
func (e *Error) passes() bool {
	switch e.Code {
	case "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException",
		"OperationAborted", "BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch":
		return true
	}
	return e.status == http.StatusTooManyRequests || e.status == http.StatusRequestTimeout ||
		e.status >= 500 && e.status != http.StatusNotImplemented
}

// errorAnswer is the body of an error.
type errorAnswer struct {
	XMLName                         xml.Name `xml:"Error"`
	Code, Message, Region, Endpoint string
	RequestID                       string `xml:"RequestId"`
}

// of returns the error that an answer means.
func (a errorAnswer) of(resp *http.Response) *Error {
	e := &Error{
		Status:    resp.Status,
		Code:      printable(a.Code),
		Message:   strings.TrimSuffix(printable(a.Message), "."),
		RequestID: printable(cmp.Or(a.RequestID, resp.Header.Get("X-Amz-Request-Id"))),
		status:    resp.StatusCode,
		region:    printable(cmp.Or(resp.Header.Get("X-Amz-Bucket-Region"), a.Region)),
		location:  printable(cmp.Or(resp.Header.Get("Location"), a.Endpoint)),
	}
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		e.skew = time.Until(at)
	}
	return e
}

// refused reads the answer to a refused request. What is not from S3, such as the page of a proxy, has no code.
func refused(resp *http.Response) error {
	var a errorAnswer
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the status is enough
	if xml.Unmarshal(raw, &a) != nil {
		a = errorAnswer{}
	}
	return a.of(resp)
}

// printable returns a text of a server without control characters, and not longer than a few lines.
func printable(s string) string {
	const most = 500
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
	return string(runes[:min(len(runes), most)])
}

// explain names what failed and the next step.
func (b *Bucket) explain(r request, err error) error {
	where := b.String()
	if r.key != "" {
		where = "s3://" + b.name + "/" + r.key
	}
	return clierr.New(clierr.Failed, b.hint(r, err), "%s %s: %w", r.does, where, err)
}

// hint returns the next step after an error.
func (b *Bucket) hint(r request, err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return b.hintOf(r, e)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "if the endpoint has a private CA, set caFile= in the URL to its certificate. If the certificate is " +
			"for the host without the bucket, set pathStyle=true"
	}
	if _, ok := errors.AsType[stallError](err); ok {
		return "check the network to " + b.base.Host + ", and rerun the command"
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return "check that " + b.base.Host + " is reachable from this machine, and that endpoint and region are right"
	}
	return ""
}

// hintOf returns the next step after a refusal.
func (b *Bucket) hintOf(r request, e *Error) string {
	wrongRegion := []string{
		"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect",
	}
	switch {
	case e.Code == "AccessDenied":
		hint := fmt.Sprintf("allow %s on s3://%s for these credentials", r.does.permission(), b.name)
		if r.does == reads {
			hint += "; without s3:ListBucket, S3 answers the same if there is no such object"
		}
		return hint
	case e.Code == "NoSuchBucket":
		return "check the name of the bucket, endpoint and region, or create the bucket"
	case e.Code == "SignatureDoesNotMatch":
		return "check AWS_SECRET_ACCESS_KEY, or the key of the profile. If it is right, check that no proxy before " +
			b.base.Host + " changes the requests or the host"
	case slices.Contains([]string{"InvalidAccessKeyId", "InvalidToken", "ExpiredToken"}, e.Code):
		return "renew the credentials, and check that they are for " + b.base.Host
	case e.Code == "RequestTimeTooSkewed":
		return "set the clock of this machine" + clock(e.skew)
	case e.Code == "PreconditionFailed":
		return "the object was replaced while it was read: rerun the command"
	case e.region != "" && e.region != b.region && (e.status/100 == 3 || slices.Contains(wrongRegion, e.Code)):
		return fmt.Sprintf("the bucket is in region %s, and the request was for %s: set region=%s in the URL", e.region,
			b.region, e.region)
	case slices.Contains(wrongRegion, e.Code) || e.status/100 == 3:
		return "set region= or endpoint= in the URL to where the bucket is" + redirected(e.location)
	case e.passes():
		return "rerun the command later"
	case e.Code == "":
		return "check that " + b.base.Host + " is the endpoint of an S3 API"
	}
	return ""
}

func redirected(location string) string {
	if location == "" {
		return ""
	}
	return ": the server redirects to " + location
}

// clock describes the clock of this machine, if the time of the server is known.
func clock(skew time.Duration) string {
	skew = skew.Round(time.Second)
	switch {
	case skew > 0:
		return ": it is " + skew.String() + " behind the server's"
	case skew < 0:
		return ": it is " + (-skew).String() + " ahead of the server's"
	}
	return ""
}
