package s3

import (
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func TestErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		status     int
		header     http.Header
		body       string
		want, hint string
	}{
		"access denied": {
			403, nil, errorBody("AccessDenied", "Access Denied."), "AccessDenied: Access Denied (request ID R1)",
			"allow s3:GetObject on s3://backups for these credentials; without s3:ListBucket, S3 answers the same if there is no such object",
		},
		"no bucket": {
			404, nil, errorBody("NoSuchBucket", "The specified bucket does not exist"),
			"NoSuchBucket: The specified bucket does not exist (request ID R1)",
			"check the name of the bucket, endpoint and region, or create the bucket",
		},
		"a wrong key": {
			403, nil, errorBody("SignatureDoesNotMatch", "They differ"), "SignatureDoesNotMatch: They differ (request ID R1)",
			"check AWS_SECRET_ACCESS_KEY, or the key of the profile. If it is right, check that no proxy before 127.0.0.1:9000 " +
				"changes the requests or the host",
		},
		"an old session": {
			400, nil, errorBody("ExpiredToken", ""), "ExpiredToken (request ID R1)",
			"renew the credentials, and check that they are for 127.0.0.1:9000",
		},
		"a slow clock": {
			403, http.Header{"Date": {"Sat, 01 Jan 2000 00:17:00 GMT"}}, errorBody("RequestTimeTooSkewed", "Too large"),
			"RequestTimeTooSkewed: Too large (request ID R1)", "set the clock of this machine: it is 17m0s behind the server's",
		},
		"a fast clock": {
			403, http.Header{"Date": {"Fri, 31 Dec 1999 22:00:00 GMT"}}, errorBody("RequestTimeTooSkewed", "Too large"),
			"RequestTimeTooSkewed: Too large (request ID R1)", "set the clock of this machine: it is 2h0m0s ahead of the server's",
		},
		"a server without a clock": {
			403, http.Header{"Date": {""}}, errorBody("RequestTimeTooSkewed", ""),
			"RequestTimeTooSkewed (request ID R1)", "set the clock of this machine",
		},
		"another region": {
			301, http.Header{"X-Amz-Bucket-Region": {"us-west-2"}}, errorBody("PermanentRedirect", "Elsewhere"),
			"PermanentRedirect: Elsewhere (request ID R1)",
			"the bucket is in region us-west-2, and the request was for eu-central-1: set region=us-west-2 in the URL",
		},
		"another region in the body": {
			400, nil, strings.Replace(errorBody("AuthorizationHeaderMalformed", "Wrong"), "<Message>", "<Region>us-west-2</Region><Message>", 1),
			"AuthorizationHeaderMalformed: Wrong (request ID R1)",
			"the bucket is in region us-west-2, and the request was for eu-central-1: set region=us-west-2 in the URL",
		},
		"a redirect": {
			307, nil, strings.Replace(errorBody("TemporaryRedirect", "Elsewhere"), "<Message>", "<Endpoint>b.example.com</Endpoint><Message>", 1),
			"TemporaryRedirect: Elsewhere (request ID R1)",
			"set region= or endpoint= in the URL to where the bucket is: the server redirects to b.example.com",
		},
		"a redirect of a proxy": {
			302, http.Header{"Location": {"https://login.example.com"}}, "", "the server answers 302 Found",
			"set region= or endpoint= in the URL to where the bucket is: the server redirects to https://login.example.com",
		},
		"not S3": {
			404, nil, "404 page not found", "the server answers 404 Not Found", "check that 127.0.0.1:9000 is the endpoint of an S3 API",
		},
		"control characters": {
			400, nil, errorBody("Bad&#10;Code", strings.Repeat("x", 600)), "Bad Code: " + strings.Repeat("x", 500) + " (request ID R1)", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFake(t, func(t *testing.T, f *fake, b *Bucket) {
				f.fault = func(_ *fake, w http.ResponseWriter, _ *http.Request) bool {
					w.Header()["Date"] = nil
					for name, values := range tc.header {
						w.Header()[name] = values
					}
					w.WriteHeader(tc.status)
					io.WriteString(w, tc.body)
					return true
				}
				_, err := b.Get(t.Context(), "x")
				require.EqualError(t, err, "read s3://backups/a b/x: "+tc.want)
				require.Equal(t, tc.hint, clierr.Hint(err))
				require.NotErrorIs(t, err, fs.ErrNotExist)
				require.Len(t, f.requests(), 1, "not repeated")
				require.Error(t, b.Delete(t.Context(), "x"))
			})
		})
	}
}

// Delete is for servers too that report that there is no object.
func TestDeleteOfNoObject(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake, b *Bucket) {
		f.fault = answers(404, "NoSuchKey")
		require.NoError(t, b.Delete(t.Context(), "x"))
	})
}

func TestRetriesHavePauses(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake, b *Bucket) {
		f.fault = answers(503, "SlowDown")
		start := time.Now() // of the bubble
		_, err := b.List(t.Context(), "")
		require.ErrorContains(t, err, "list s3://backups/a b: SlowDown")
		require.Equal(t, "rerun the command later", clierr.Hint(err))
		require.Len(t, f.requests(), attempts)
		require.GreaterOrEqual(t, time.Since(start), 7*firstPause)
	})
}

// The times are of the bubble.
func TestServerThatDoesNotAnswer(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake, b *Bucket) {
		f.fault = stalls
		start := time.Now()
		_, err := b.List(t.Context(), "")
		require.ErrorContains(t, err, "list s3://backups/a b: no progress for 1m0s")
		require.Equal(t, "check the network to 127.0.0.1:9000, and rerun the command", clierr.Hint(err))
		require.Len(t, f.requests(), attempts)
		require.Less(t, time.Since(start), 6*time.Minute)
	})
}
