package s3

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	testID     = "AKIDEXAMPLE"
	testSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	testToken  = "session//token=="
	testPart   = 1000
	testURL    = "s3://backups/a b?endpoint=http://127.0.0.1:9000&region=eu-central-1"
)

// fault is what a server does instead of answering a request. It returns false to answer it.
type fault func(f *fake, w http.ResponseWriter, r *http.Request) bool

// fake is an S3 API with the bucket "backups", in memory. It rejects requests whose signature is not right.
type fake struct {
	t        *testing.T
	mu       sync.Mutex
	objects  map[string]stored
	uploads  map[string]*uploading
	seen     []string // METHOD KEY?QUERY, without the ID of an upload
	fault    fault
	pageSize int
	partSize int // of all parts except the last
	serial   int
	stop     chan struct{}
	conns    chan net.Conn
}

type stored struct {
	data     []byte
	etag     string
	mark     string
	modified time.Time
}

type uploading struct {
	key, mark string
	parts     map[int][]byte
}

// withFake runs a test with a fake server and a client, in a bubble: pauses and limits take no time.
func withFake(t *testing.T, test func(t *testing.T, f *fake, b *Bucket)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{
			t: t, objects: map[string]stored{}, uploads: map[string]*uploading{}, pageSize: 1000, partSize: testPart,
			stop: make(chan struct{}), conns: make(chan net.Conn),
		}
		b := parse(t, testURL)
		b.partSize = testPart
		transport := b.client.Transport.(*http.Transport)
		transport.DialContext = f.dial
		server := &http.Server{Handler: f}
		done := make(chan struct{})
		go func() {
			defer close(done)
			server.Serve(f)
		}()
		defer func() {
			close(f.stop)
			transport.CloseIdleConnections()
			server.Close()
			<-done
		}()
		test(t, f, b)
	})
}

func parse(t *testing.T, rawURL string) *Bucket {
	t.Helper()
	b, err := Parse(rawURL, environment(map[string]string{
		"AWS_ACCESS_KEY_ID": testID, "AWS_SECRET_ACCESS_KEY": testSecret, "AWS_SESSION_TOKEN": testToken,
	}))
	require.NoError(t, err)
	return b
}

func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func (f *fake) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case f.conns <- theirs:
		return ours, nil
	case <-f.stop:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept, Close and Addr make the fake a listener.
func (f *fake) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.stop:
		return nil, net.ErrClosed
	}
}

func (f *fake) Close() error   { return nil }
func (f *fake) Addr() net.Addr { return &net.TCPAddr{} }

// requests returns what was requested so far.
func (f *fake) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/backups"), "/")
	query := r.URL.Query()
	query.Del("uploadId")
	f.seen = append(f.seen, strings.TrimSuffix(r.Method+" "+key+"?"+query.Encode(), "?"))
	inject := f.fault
	f.mu.Unlock()
	if inject != nil && inject(f, w, r) {
		return
	}
	f.answer(w, r, key)
}

// answer does what a request requires, if its signature is right.
func (f *fake) answer(w http.ResponseWriter, r *http.Request, key string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if problem := verify(r, body); problem != "" {
		refuse(w, http.StatusForbidden, "SignatureDoesNotMatch", problem)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	query := r.URL.Query()
	upload := f.uploads[query.Get("uploadId")]
	switch {
	case query.Has("uploadId") && upload == nil:
		refuse(w, http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist.")
	case r.Method == http.MethodGet && key == "":
		f.list(w, query)
	case r.Method == http.MethodPost && query.Has("uploads"):
		f.serial++
		id := fmt.Sprintf("upload/%d+", f.serial)
		f.uploads[id] = &uploading{key, r.Header.Get("X-Amz-Meta-Upload"), map[int][]byte{}}
		reply(w, "<InitiateMultipartUploadResult><UploadId>"+id+"</UploadId></InitiateMultipartUploadResult>")
	case r.Method == http.MethodPost:
		f.complete(w, query.Get("uploadId"), body)
	case r.Method == http.MethodPut && upload != nil:
		n, _ := strconv.Atoi(query.Get("partNumber"))
		upload.parts[n] = body
		w.Header().Set("ETag", etagOf(body))
	case r.Method == http.MethodPut:
		f.objects[key] = stored{body, etagOf(body), "", time.Now()}
		w.Header().Set("ETag", etagOf(body))
	case r.Method == http.MethodDelete && upload != nil:
		delete(f.uploads, query.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		o, ok := f.objects[key]
		if !ok {
			refuse(w, http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
			return
		}
		if match := r.Header.Get("If-Match"); match != "" && match != o.etag {
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "A condition did not hold.")
			return
		}
		w.Header().Set("ETag", o.etag)
		w.Header().Set("X-Amz-Meta-Upload", o.mark)
		http.ServeContent(w, r, "", o.modified, bytes.NewReader(o.data)) // also a Range
	}
}

// complete makes an object of an upload whose parts are listed.
func (f *fake) complete(w http.ResponseWriter, id string, body []byte) {
	var listed struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []struct {
			PartNumber int
			ETag       string
		}
	}
	upload := f.uploads[id]
	var all []byte
	if xml.Unmarshal(body, &listed) != nil || len(listed.Part) != len(upload.parts) {
		refuse(w, http.StatusBadRequest, "MalformedXML", "")
		return
	}
	for i, p := range listed.Part {
		data := upload.parts[p.PartNumber]
		last := i == len(listed.Part)-1
		if p.PartNumber != i+1 || p.ETag != etagOf(data) || !last && len(data) != f.partSize || last && len(data) > f.partSize {
			refuse(w, http.StatusBadRequest, "InvalidPart", "")
			return
		}
		all = append(all, data...)
	}
	f.objects[upload.key] = stored{all, `"of-all-parts"`, upload.mark, time.Now()}
	delete(f.uploads, id)
	// As S3 does it: the status first, then spaces, then the result.
	reply(w, "  \n<CompleteMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><ETag>x</ETag></CompleteMultipartUploadResult>")
}

func (f *fake) list(w http.ResponseWriter, query url.Values) {
	type content struct {
		Key, LastModified string
		Size              int
	}
	var result struct {
		XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
		EncodingType          string
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
	}
	var keys []string
	for key := range f.objects {
		if strings.HasPrefix(key, query.Get("prefix")) && key > strings.TrimPrefix(query.Get("continuation-token"), "after +") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	result.EncodingType = query.Get("encoding-type")
	if len(keys) > f.pageSize {
		keys = keys[:f.pageSize]
		result.IsTruncated = true
		result.NextContinuationToken = "after +" + keys[len(keys)-1]
	}
	for _, key := range keys {
		o := f.objects[key]
		result.Contents = append(result.Contents, content{
			url.QueryEscape(key), o.modified.UTC().Format("2006-01-02T15:04:05.000Z"), len(o.data),
		})
	}
	raw, err := xml.Marshal(result)
	require.NoError(f.t, err)
	reply(w, string(raw))
}

// etagOf is not an MD5, as with encryption.
func etagOf(data []byte) string { return fmt.Sprintf(`"etag-%x"`, sha256.Sum256(data))[:20] + `"` }

func reply(w http.ResponseWriter, body string) { io.WriteString(w, xml.Header+body) }

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	reply(w, errorBody(code, message))
}

func errorBody(code, message string) string {
	return "<Error><Code>" + code + "</Code><Message>" + message + "</Message><RequestId>R1</RequestId></Error>"
}

// verify checks a signature from the bytes of the request line and the headers as they were received.
func verify(r *http.Request, body []byte) (problem string) {
	var id, names, signature string
	for part := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ", ") {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "Credential":
			id = value
		case "SignedHeaders":
			names = value
		case "Signature":
			signature = value
		}
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > 15*time.Minute {
		return "the date is " + r.Header.Get("X-Amz-Date")
	}
	within := at.Format("20060102") + "/eu-central-1/s3/aws4_request"
	if id != testID+"/"+within || r.Header.Get("X-Amz-Security-Token") != testToken {
		return "the credential is " + id
	}
	path, query, _ := strings.Cut(r.RequestURI, "?")
	if path != strict(r.URL.Path, "/") {
		return "the path is " + path
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		plainName, _ := url.QueryUnescape(name)
		plainValue, _ := url.QueryUnescape(value)
		if name != strict(plainName, "") || value != strict(plainValue, "") || i > 0 && pair < pairs[i-1] {
			return "the query is " + query
		}
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(body))
	if r.Header.Get("X-Amz-Content-Sha256") != hash {
		return "the body is another one"
	}
	digest := md5.Sum(body)
	if r.Method == http.MethodPut && r.Header.Get("Content-MD5") != base64.StdEncoding.EncodeToString(digest[:]) {
		return "Content-MD5 is " + r.Header.Get("Content-MD5")
	}
	text := r.Method + "\n" + path + "\n" + query + "\n"
	signed := strings.Split(names, ";")
	for _, name := range signed {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		text += name + ":" + value + "\n"
	}
	for name := range r.Header {
		name = strings.ToLower(name)
		if strings.HasPrefix(name, "x-amz-") && !slices.Contains(signed, name) {
			return "no signature for " + name
		}
	}
	if !slices.Contains(signed, "host") || !slices.IsSorted(signed) {
		return "the signed headers are " + names
	}
	text += "\n" + names + "\n" + hash
	key := []byte("AWS4" + testSecret)
	for part := range strings.SplitSeq(within, "/") {
		key = hmacOf(key, part)
	}
	want := hmacOf(key, fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s\n%x", r.Header.Get("X-Amz-Date"), within, sha256.Sum256([]byte(text))))
	if signature != fmt.Sprintf("%x", want) {
		return "the signature is another one"
	}
	return ""
}

// strict encodes all bytes that are not unreserved or in keep.
func strict(s, keep string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte(unreserved+keep, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func hmacOf(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
