package s3

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func TestParse(t *testing.T) {
	for rawURL, tc := range map[string]struct {
		env                   map[string]string
		base, region, printed string
	}{
		"s3://b":                            {nil, "https://b.s3.us-east-1.amazonaws.com", "us-east-1", "s3://b"},
		"s3://b/":                           {nil, "https://b.s3.us-east-1.amazonaws.com", "us-east-1", "s3://b"},
		"s3://b/x/y/?region=eu-1":           {nil, "https://b.s3.eu-1.amazonaws.com", "eu-1", "s3://b/x/y"},
		"s3://b?region=cn-north-1":          {nil, "https://b.s3.cn-north-1.amazonaws.com.cn", "cn-north-1", "s3://b"},
		"s3://b.c":                          {nil, "https://s3.us-east-1.amazonaws.com/b.c", "us-east-1", "s3://b.c"},
		"s3://b?pathStyle=true":             {nil, "https://s3.us-east-1.amazonaws.com/b", "us-east-1", "s3://b"},
		"s3://b?endpoint=https://h:443/s3/": {nil, "https://h/s3/b", "us-east-1", "s3://b"},
		"s3://b?endpoint=https://h:9000&pathStyle=false": {nil, "https://b.h:9000", "us-east-1", "s3://b"},
		"s3://b?endpoint=http://localhost:80":            {nil, "http://localhost/b", "us-east-1", "s3://b"},
		"s3://b?endpoint=http://[::1]:1":                 {nil, "http://[::1]:1/b", "us-east-1", "s3://b"},
		"s3://b?endpoint=http://h&insecure=true":         {nil, "http://h/b", "us-east-1", "s3://b"},
		"s3://b?":                                        {map[string]string{"AWS_REGION": "r1", "AWS_DEFAULT_REGION": "r2"}, "https://b.s3.r1.amazonaws.com", "r1", "s3://b"},
		"s3://b/?":                                       {map[string]string{"AWS_DEFAULT_REGION": "r2"}, "https://b.s3.r2.amazonaws.com", "r2", "s3://b"},
		"s3://b?region=r0":                               {map[string]string{"AWS_REGION": "r1"}, "https://b.s3.r0.amazonaws.com", "r0", "s3://b"},
		"s3://b/x":                                       {map[string]string{"AWS_ENDPOINT_URL": "https://all", "AWS_ENDPOINT_URL_S3": "https://s3"}, "https://s3/b", "us-east-1", "s3://b/x"},
		"s3://b/y":                                       {map[string]string{"AWS_ENDPOINT_URL": "https://all"}, "https://all/b", "us-east-1", "s3://b/y"},
		"s3://b/y?endpoint=https://h":                    {map[string]string{"AWS_ENDPOINT_URL": "https://all"}, "https://h/b", "us-east-1", "s3://b/y"},
		"s3://b/z":                                       {map[string]string{"AWS_ENDPOINT_URL": "https://all", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, "https://b.s3.us-east-1.amazonaws.com", "us-east-1", "s3://b/z"},
	} {
		t.Run(rawURL, func(t *testing.T) {
			env := map[string]string{"AWS_ACCESS_KEY_ID": testID, "AWS_SECRET_ACCESS_KEY": testSecret}
			for name, value := range tc.env {
				env[name] = value
			}
			b, err := Parse(rawURL, environment(env))
			require.NoError(t, err)
			require.Equal(t, tc.base, b.base.String())
			require.Equal(t, tc.region, b.region)
			for _, printed := range []string{fmt.Sprint(b), fmt.Sprintf("%+v", b), fmt.Sprintf("%#v", b)} {
				require.Equal(t, tc.printed, printed)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for rawURL, want := range map[string][2]string{
		"https://b/x":                             {"the URL of the bucket is not valid", "'s3://bucket/prefix?endpoint=https://host:port&region=eu-central-1'"},
		"s3:b":                                    {"the URL of the bucket is not valid"},
		"s3://b/x#f":                              {"the URL of the bucket is not valid"},
		"s3://b:9000/x":                           {"the URL of the bucket is not valid"},
		"s3://ID:" + testSecret + "@b":            {"the URL of the bucket is not valid", "with the credentials in the environment"},
		"s3://ID:%zz@b":                           {"the URL of the bucket is not valid"},
		"s3:///x":                                 {`"" is not the name of a bucket`},
		"s3://a_&b":                               {`"a_&b" is not the name of a bucket`},
		"s3://b/a//b":                             {`"a//b" is not the name of an object`},
		"s3://b/../x":                             {`"../x" is not the name of an object`},
		"s3://b?%zz":                              {"the parameters of the bucket's URL are not valid"},
		"s3://b?pathstyle=true":                   {`the bucket's URL has an unknown parameter "pathstyle"`, "did you mean pathStyle?"},
		"s3://b?profile=x":                        {`the bucket's URL has an unknown parameter "profile"`, "use one of caFile, endpoint, insecure, pathStyle, region"},
		"s3://b?region=":                          {"parameter region of the bucket's URL must have one value"},
		"s3://b?region=a&region=b":                {"parameter region of the bucket's URL must have one value"},
		"s3://b?region=a/b":                       {`"a/b" is not the name of a region`},
		"s3://b?pathStyle=yes":                    {`parameter pathStyle of the bucket's URL is "yes"`, "use true or false"},
		"s3://b?insecure=1x":                      {`parameter insecure of the bucket's URL is "1x"`},
		"s3://b?endpoint=h:9000":                  {"the endpoint of bucket b is not valid", "https://host:port"},
		"s3://b?endpoint=ftp://h":                 {"the endpoint of bucket b is not valid"},
		"s3://b?endpoint=https://ID:secretkey@h":  {"the endpoint of bucket b is not valid"},
		"s3://b?endpoint=http://h:1":              {"the endpoint of bucket b is http://h:1, without encryption", "set insecure=true"},
		"s3://b?endpoint=http://localhost.x":      {"without encryption"},
		"s3://b?endpoint=http://h&insecure=false": {"without encryption"},
		"s3://b?caFile=/does/not/exist":           {"read the CA of the endpoint", "check caFile="},
		"s3://b?caFile=config_test.go":            {"config_test.go has no certificate"},
	} {
		t.Run(rawURL, func(t *testing.T) {
			_, err := Parse(rawURL, environment(map[string]string{"AWS_ACCESS_KEY_ID": testID, "AWS_SECRET_ACCESS_KEY": testSecret}))
			require.ErrorContains(t, err, want[0])
			require.Contains(t, clierr.Hint(err), want[1])
			require.Equal(t, clierr.BadInput, clierr.Code(err))
			for _, secret := range []string{testSecret, "secretkey"} {
				require.NotContains(t, err.Error(), secret)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, ".aws", "credentials")
	require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(`# keys
[default]
aws_access_key_id = ID1
aws_secret_access_key = secret1=
; aws_session_token = no

[ ci ]
AWS_ACCESS_KEY_ID=ID2
aws_secret_access_key=secret2
aws_session_token=token2
region = eu-2
[half]
aws_access_key_id = ID3
[sso]
sso_session = x
`), 0o600))
	for name, tc := range map[string]struct {
		env    map[string]string
		want   credentials
		region string
		err    string
	}{
		"default":         {map[string]string{"HOME": dir}, credentials{"ID1", "secret1=", ""}, defaultRegion, ""},
		"a profile":       {map[string]string{"HOME": dir, "AWS_PROFILE": "ci"}, credentials{"ID2", "secret2", "token2"}, "eu-2", ""},
		"a region":        {map[string]string{"HOME": dir, "AWS_PROFILE": "ci", "AWS_REGION": "r"}, credentials{"ID2", "secret2", "token2"}, "r", ""},
		"another file":    {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file}, credentials{"ID1", "secret1=", ""}, defaultRegion, ""},
		"the environment": {map[string]string{"HOME": dir, "AWS_ACCESS_KEY_ID": "ID", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}, credentials{"ID", "s", "t"}, defaultRegion, ""},
		"half of it":      {map[string]string{"HOME": dir, "AWS_SECRET_ACCESS_KEY": "s"}, credentials{}, "", "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set"},
		"half a profile":  {map[string]string{"HOME": dir, "AWS_PROFILE": "half"}, credentials{}, "", "profile half in " + file + " has no aws_access_key_id with aws_secret_access_key"},
		"no keys":         {map[string]string{"HOME": dir, "AWS_PROFILE": "sso"}, credentials{}, "", "profile sso in " + file + " has no aws_access_key_id"},
		"no profile":      {map[string]string{"HOME": dir, "AWS_PROFILE": "none"}, credentials{}, "", "profile none in " + file + " has no aws_access_key_id"},
		"no file":         {map[string]string{"HOME": "/none"}, credentials{}, "", "AWS_ACCESS_KEY_ID is not set, and /none/.aws/credentials does not exist"},
		"a directory":     {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": dir}, credentials{}, "", "read the credentials for S3"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Parse("s3://b", environment(tc.env))
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.Equal(t, clierr.BadInput, clierr.Code(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, b.credentials)
			require.Equal(t, tc.region, b.region)
		})
	}
}

// serve starts a server on a real connection, and returns a bucket of it.
func serve(t *testing.T, options string, h http.HandlerFunc) *Bucket {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that the test makes fail
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	raw := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(ca, raw, 0o600))
	b := parse(t, "s3://backups?region=eu-central-1&endpoint="+server.URL+strings.ReplaceAll(options, "CA", ca))
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

func TestPrivateCA(t *testing.T) {
	f := &fake{t: t, objects: map[string]stored{}, uploads: map[string]*uploading{}, partSize: partSize}
	b := serve(t, "&caFile=CA", f.ServeHTTP)
	require.NoError(t, b.Put(t.Context(), "x", strings.NewReader("hello")))
	require.Equal(t, "hello", string(read(t, b, "x")))
	require.Len(t, f.requests(), 2)

	other := serve(t, "", f.ServeHTTP)
	err := other.Put(t.Context(), "x", strings.NewReader("hello"))
	require.ErrorContains(t, err, "store s3://backups/x: tls: failed to verify certificate")
	require.Contains(t, clierr.Hint(err), "set caFile= in the URL")
	require.Len(t, f.requests(), 2)
}

// A connection is reset while a large part is sent.
func TestReset(t *testing.T) {
	f := &fake{t: t, objects: map[string]stored{}, uploads: map[string]*uploading{}, partSize: partSize}
	var resets atomic.Int32
	b := serve(t, "&caFile=CA", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("partNumber") != "2" || resets.Add(1) > 1 {
			f.ServeHTTP(w, r)
			return
		}
		io.CopyN(io.Discard, r.Body, 10_000)
		conn, _, err := w.(http.Hijacker).Hijack()
		require.NoError(t, err)
		conn.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn).SetLinger(0)
		conn.Close()
	})
	data := content(partSize + partSize/2)
	require.NoError(t, b.Put(t.Context(), "x", bytes.NewReader(data)))
	require.EqualValues(t, 2, resets.Load())
	require.True(t, bytes.Equal(data, f.objects["x"].data))
}
