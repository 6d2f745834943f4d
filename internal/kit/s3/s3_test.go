package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// content has bytes that differ between parts.
func content(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i / 7)
	}
	return data
}

func read(t *testing.T, b *Bucket, name string) []byte {
	t.Helper()
	r, err := b.Get(t.Context(), name)
	require.NoError(t, err)
	defer r.Close()
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	return data
}

func TestPutAndGet(t *testing.T) {
	for name, tc := range map[string]struct {
		size     int
		requests []string
	}{
		"empty":                 {0, []string{"PUT a b/x"}},
		"small":                 {1, []string{"PUT a b/x"}},
		"one part exactly":      {testPart, []string{"PUT a b/x"}},
		"one byte more":         {testPart + 1, []string{"POST a b/x?uploads=", "PUT a b/x?partNumber=1", "PUT a b/x?partNumber=2", "POST a b/x"}},
		"several parts exactly": {2 * testPart, []string{"POST a b/x?uploads=", "PUT a b/x?partNumber=1", "PUT a b/x?partNumber=2", "POST a b/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			withFake(t, func(t *testing.T, f *fake, b *Bucket) {
				data := content(tc.size)
				// A reader that returns a byte at a time, and one that returns its end with the data.
				require.NoError(t, b.Put(t.Context(), "x", iotest.OneByteReader(bytes.NewReader(data))))
				require.Equal(t, tc.requests, f.requests())
				require.True(t, bytes.Equal(data, read(t, b, "x")))
				require.NoError(t, b.Put(t.Context(), "y", iotest.DataErrReader(bytes.NewReader(data))))
				require.True(t, bytes.Equal(data, read(t, b, "y")))
				require.Empty(t, f.uploads)
			})
		})
	}
}

func TestNames(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake, b *Bucket) {
		f.pageSize = 2
		names := []string{"!*'()@&=$,;:", "1 + 1.tar", "a%20b", "dir/x~1", "ü/\u1234"}
		for i, name := range names {
			require.NoError(t, b.Put(t.Context(), name, bytes.NewReader(content(i))), name)
			require.NoError(t, b.Put(t.Context(), name, bytes.NewReader(content(testPart+i))), name)
			require.Len(t, read(t, b, name), testPart+i)
		}
		f.objects["other/x"] = stored{}
		f.objects["a b/"] = stored{}     // what consoles create for directories
		f.objects["a b/dir/"] = stored{} // also with the names that Put refuses
		f.objects["a b/../x"] = stored{}
		all, err := b.List(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, all, len(names))
		for i, o := range all {
			require.Equal(t, Object{names[i], int64(testPart + i), time.Now().UTC()}, o)
		}
		some, err := b.List(t.Context(), "dir/")
		require.NoError(t, err)
		require.Equal(t, all[3:4], some)
		for _, name := range append(names, "none") {
			require.NoError(t, b.Delete(t.Context(), name), name)
			_, err := b.Get(t.Context(), name)
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		require.Len(t, f.objects, 4)
	})
}

func TestRefusedNames(t *testing.T) {
	b := parse(t, testURL)
	for _, name := range []string{"", ".", "/x", "x/", "a//b", "..", "a/../b", "./a", "a\nb", "\xff", strings.Repeat("a", 1022)} {
		_, err := b.Get(t.Context(), name)
		for _, err := range []error{err, b.Put(t.Context(), name, strings.NewReader("")), b.Delete(t.Context(), name)} {
			require.Equal(t, clierr.BadInput, clierr.Code(err), "%q: %v", name, err)
		}
	}
	for _, prefix := range []string{"/", "/x", "../", "a//"} {
		_, err := b.List(t.Context(), prefix)
		require.Equal(t, clierr.BadInput, clierr.Code(err), "%q: %v", prefix, err)
	}
}

// times injects a fault into the first requests of this method whose query has a parameter.
func times(n int, method, parameter string, do fault) fault {
	return func(f *fake, w http.ResponseWriter, r *http.Request) bool {
		f.mu.Lock()
		hit := n > 0 && r.Method == method && (parameter == "" || strings.Contains(r.URL.RawQuery, parameter))
		if hit {
			n--
		}
		f.mu.Unlock()
		return hit && do(f, w, r)
	}
}

const always = 1 << 30

func answers(status int, code string) fault {
	return func(_ *fake, w http.ResponseWriter, r *http.Request) bool {
		refuse(w, status, code, "Some message.")
		return true
	}
}

// cut closes the connection after a few bytes of the request.
func cut(_ *fake, w http.ResponseWriter, r *http.Request) bool {
	io.CopyN(io.Discard, r.Body, 100)
	panic(http.ErrAbortHandler)
}

// stalls reads a few bytes and does not answer.
func stalls(f *fake, w http.ResponseWriter, r *http.Request) bool {
	io.CopyN(io.Discard, r.Body, 100)
	<-f.stop
	return true
}

// unheard does what the request requires, and closes the connection before the answer.
func unheard(f *fake, w http.ResponseWriter, r *http.Request) bool {
	f.answer(discard{}, r, strings.TrimPrefix(r.URL.Path, "/backups/"))
	panic(http.ErrAbortHandler)
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

func TestFaultsThatPass(t *testing.T) {
	for name, fault := range map[string]fault{
		"500 in the middle": times(2, "PUT", "partNumber=2", answers(500, "InternalError")),
		"a proxy without a backend": times(1, "PUT", "partNumber=3", func(_ *fake, w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "bad gateway", 502)
			return true
		}),
		"too many requests":               times(4, "PUT", "partNumber=1", answers(503, "SlowDown")),
		"429":                             times(1, "PUT", "partNumber=1", answers(429, "TooManyRequests")),
		"a slow request":                  times(1, "PUT", "partNumber=1", answers(400, "RequestTimeout")),
		"the start":                       times(1, "POST", "uploads", answers(500, "InternalError")),
		"a connection is cut":             times(1, "PUT", "partNumber=2", cut),
		"a connection stalls":             times(1, "PUT", "partNumber=2", stalls),
		"the answer of a part is lost":    times(1, "PUT", "partNumber=2", unheard),
		"the answer of the start is lost": times(1, "POST", "uploads", cut),
		"an error in a 200":               times(1, "POST", "uploadId", answers(200, "InternalError")),
		"an empty 200":                    times(1, "POST", "uploadId", func(*fake, http.ResponseWriter, *http.Request) bool { return true }),
		"the answer of the end is lost":   times(1, "POST", "uploadId", unheard),
		"a body of the end that breaks off": times(1, "POST", "uploadId", func(_ *fake, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "<Comp")
			panic(http.ErrAbortHandler)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			withFake(t, func(t *testing.T, f *fake, b *Bucket) {
				f.fault = fault
				data := content(3*testPart + 5)
				require.NoError(t, b.Put(t.Context(), "x", bytes.NewReader(data)))
				require.True(t, bytes.Equal(data, f.objects["a b/x"].data))
				require.Empty(t, f.uploads)
			})
		})
	}
}

func TestFaultsThatDoNotPass(t *testing.T) {
	source := errors.New("the source broke")
	for name, tc := range map[string]struct {
		fault   fault
		then    io.Reader
		request string // that fails
		tries   int
		want    string
	}{
		"500":               {fault: times(always, "PUT", "partNumber=2", answers(500, "InternalError")), request: "PUT a b/x?partNumber=2", tries: 5, want: "InternalError: Some message"},
		"a stall":           {fault: times(always, "PUT", "partNumber=2", stalls), request: "PUT a b/x?partNumber=2", tries: 5, want: "no progress for 1m0s"},
		"403":               {fault: times(always, "PUT", "partNumber=2", answers(403, "AccessDenied")), request: "PUT a b/x?partNumber=2", tries: 1, want: "AccessDenied: Some message"},
		"not implemented":   {fault: times(always, "PUT", "partNumber=2", answers(501, "NotImplemented")), request: "PUT a b/x?partNumber=2", tries: 1, want: "NotImplemented: Some message"},
		"a part without ID": {fault: times(always, "PUT", "partNumber=2", func(*fake, http.ResponseWriter, *http.Request) bool { return true }), request: "PUT a b/x?partNumber=2", tries: 1, want: "the server does not send the ETag of part 2"},
		"an error in a 200": {fault: times(always, "POST", "uploadId", answers(200, "AccessDenied")), request: "POST a b/x", tries: 1, want: "AccessDenied: Some message"},
		"a page in a 200": {
			fault: times(always, "POST", "uploadId", func(_ *fake, w http.ResponseWriter, _ *http.Request) bool {
				io.WriteString(w, "<html></html>")
				return true
			}),
			request: "POST a b/x", tries: 5, want: "the server answers 200 OK, but the content is not from S3",
		},
		"another deleted the upload": {
			fault:   times(1, "POST", "uploadId", func(f *fake, _ http.ResponseWriter, _ *http.Request) bool { clear(f.uploads); return false }),
			request: "POST a b/x", tries: 1, want: "NoSuchUpload",
		},
		"the source":            {then: iotest.ErrReader(source), want: "the source broke"},
		"the source breaks off": {then: iotest.ErrReader(io.ErrUnexpectedEOF), want: "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			withFake(t, func(t *testing.T, f *fake, b *Bucket) {
				f.objects["a b/x"] = stored{data: []byte("before"), mark: "other"}
				f.fault = tc.fault
				r := io.Reader(bytes.NewReader(content(3*testPart + 5)))
				if tc.then != nil {
					r = io.MultiReader(r, tc.then)
				}
				err := b.Put(t.Context(), "x", r)
				require.ErrorContains(t, err, "store s3://backups/a b/x: "+tc.want)
				require.Equal(t, "before", string(f.objects["a b/x"].data))
				require.Empty(t, f.uploads, "aborted")
				tries := 0
				for _, r := range f.requests() {
					if r == tc.request {
						tries++
					}
				}
				require.Equal(t, tc.tries, tries)
			})
		})
	}
}

// What fits into one part fails before anything is sent, if reading fails.
func TestShortSourceThatFails(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake, b *Bucket) {
		r := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))
		require.ErrorIs(t, b.Put(t.Context(), "x", r), io.ErrUnexpectedEOF)
		require.Empty(t, f.requests())
	})
}

func TestInterruptedUpload(t *testing.T) {
	for name, fault := range map[string]func(cancel func()) fault{
		"while a part is sent": func(cancel func()) fault {
			return times(1, "PUT", "partNumber=2", func(f *fake, w http.ResponseWriter, r *http.Request) bool { cancel(); return stalls(f, w, r) })
		},
		"before another attempt": func(cancel func()) fault {
			return times(1, "PUT", "partNumber=2", func(f *fake, w http.ResponseWriter, r *http.Request) bool {
				time.AfterFunc(10*time.Millisecond, cancel)
				return answers(503, "SlowDown")(f, w, r)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFake(t, func(t *testing.T, f *fake, b *Bucket) {
				ctx, cancel := context.WithCancelCause(t.Context())
				lost := errors.New("the lock was lost")
				f.fault = fault(func() { cancel(lost) })
				require.ErrorIs(t, b.Put(ctx, "x", bytes.NewReader(content(3*testPart))), lost)
				require.Empty(t, f.uploads)
				require.Empty(t, f.objects)
				require.Equal(t, "DELETE a b/x", f.requests()[len(f.requests())-1])
			})
		})
	}
}

func TestUploadThatCannotBeAborted(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake, b *Bucket) {
		f.fault = func(f *fake, w http.ResponseWriter, r *http.Request) bool {
			return (r.Method == "DELETE" || r.Method == "PUT") && answers(403, "AccessDenied")(f, w, r)
		}
		err := b.Put(t.Context(), "x", bytes.NewReader(content(3*testPart)))
		require.ErrorContains(t, err, "store s3://backups/a b/x: AccessDenied")
		require.ErrorContains(t, err, "delete the uploaded parts of s3://backups/a b/x: AccessDenied")
	})
}

func TestTooManyParts(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake, b *Bucket) {
		b.partSize = 1
		b.maxParts = 3
		f.fault = times(always, "PUT", "", func(_ *fake, w http.ResponseWriter, _ *http.Request) bool { w.Header().Set("ETag", "x"); return true })
		err := b.Put(t.Context(), "x", bytes.NewReader(content(4)))
		require.ErrorContains(t, err, "it is larger than 3 parts of 1 bytes")
		require.Empty(t, f.uploads)
		require.NoError(t, b.Put(t.Context(), "x", bytes.NewReader(content(1))))
	})
}

// breaks sends some bytes of what follows from a position, and closes the connection.
func breaks(f *fake, w http.ResponseWriter, r *http.Request) bool {
	data := f.objects["a b/x"].data
	start := 0
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &start)
	w.Header().Set("ETag", f.objects["a b/x"].etag)
	w.Header().Set("Content-Length", fmt.Sprint(len(data)-start))
	if start > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(data)-1, len(data)))
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write(data[start : start+500])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func TestGetThatBreaks(t *testing.T) {
	replaced := func(f *fake, w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") == "" {
			return breaks(f, w, r)
		}
		f.mu.Lock()
		f.objects["a b/x"] = stored{data: content(10_000), etag: `"new"`}
		f.mu.Unlock()
		return false
	}
	for name, tc := range map[string]struct {
		fault fault
		want  string
		hint  string
	}{
		"often": {fault: times(12, "GET", "", breaks)},
		"then an error": {fault: times(2, "GET", "", func(f *fake, w http.ResponseWriter, r *http.Request) bool {
			return r.Header.Get("Range") != "" && answers(503, "SlowDown")(f, w, r) || r.Header.Get("Range") == "" && breaks(f, w, r)
		})},
		"a stall": {fault: times(1, "GET", "", func(f *fake, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", f.objects["a b/x"].etag)
			w.Header().Set("Content-Length", "10000")
			w.Write(content(600))
			w.(http.Flusher).Flush()
			return stalls(f, w, r)
		})},
		"another version": {fault: times(2, "GET", "", replaced), want: "PreconditionFailed", hint: "the object was replaced while it was read"},
		"a server without ranges": {
			fault: times(always, "GET", "", func(f *fake, w http.ResponseWriter, r *http.Request) bool {
				r.Header.Del("Range")
				return breaks(f, w, r)
			}),
			want: "the connection broke after 500 of 10000 bytes, and the server does not send the rest",
		},
		"without an ETag": {
			fault: times(always, "GET", "", func(f *fake, w http.ResponseWriter, r *http.Request) bool {
				f.objects["a b/x"] = stored{data: content(10_000)}
				return breaks(f, w, r)
			}),
			want: "the connection broke after 500 of 10000 bytes: unexpected EOF",
		},
		"without progress": {
			fault: times(always, "GET", "", func(f *fake, w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("ETag", f.objects["a b/x"].etag)
				w.Header().Set("Content-Length", "10000")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}),
			want: "the connection broke after 0 of 10000 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFake(t, func(t *testing.T, f *fake, b *Bucket) {
				f.objects["a b/x"] = stored{data: content(10_000), etag: `"old"`}
				f.fault = tc.fault
				r, err := b.Get(t.Context(), "x")
				require.NoError(t, err)
				defer r.Close()
				data, err := io.ReadAll(r)
				if tc.want == "" {
					require.NoError(t, err)
					require.True(t, bytes.Equal(content(10_000), data))
					return
				}
				require.ErrorContains(t, err, "read s3://backups/a b/x: "+tc.want)
				require.Contains(t, clierr.Hint(err), tc.hint)
				_, again := r.Read(make([]byte, 1))
				require.Error(t, again)
			})
		})
	}
}

// The limit is for the server: what reads an object can be slower, such as a command that waits for the user.
func TestSlowReader(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake, b *Bucket) {
		f.objects["a b/x"] = stored{data: content(10_000), etag: `"x"`}
		r, err := b.Get(t.Context(), "x")
		require.NoError(t, err)
		defer r.Close()
		for data := make([]byte, 2500); ; time.Sleep(time.Hour) {
			if _, err := io.ReadFull(r, data); err == io.EOF {
				break
			}
			require.NoError(t, err)
		}
		require.Len(t, f.requests(), 1)
	})
}

func TestListsThatAreNotFromS3(t *testing.T) {
	for name, tc := range map[string]struct{ body, want string }{
		"a login page":         {"<html><body>log in</body></html>", "the content is not from S3"},
		"an error":             {errorBody("AccessDenied", ""), "AccessDenied"},
		"no token":             {"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", "does not send where they start"},
		"an endless list":      {"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>", "does not send where they start"},
		"of another directory": {"<ListBucketResult><Contents><Key>b/x</Key></Contents></ListBucketResult>", `the name "b/x"`},
		"a bad encoding":       {"<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%</Key></Contents></ListBucketResult>", `the name "%"`},
	} {
		t.Run(name, func(t *testing.T) {
			withFake(t, func(t *testing.T, f *fake, b *Bucket) {
				f.fault = func(_ *fake, w http.ResponseWriter, _ *http.Request) bool { reply(w, tc.body); return true }
				all, err := b.List(t.Context(), "")
				require.ErrorContains(t, err, "list s3://backups/a b: ")
				require.ErrorContains(t, err, tc.want)
				require.Empty(t, all)
			})
		})
	}
}
