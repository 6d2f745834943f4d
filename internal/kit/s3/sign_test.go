package s3

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	unreserved = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	// sessionToken is that of the vector post-sts-header-before.
	sessionToken = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7" +
		"mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0" +
		"iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)

// The test suite of AWS for signature version 4.
func TestPublishedVectors(t *testing.T) {
	for name, tc := range map[string]struct {
		method, url string
		header      http.Header
		body, token string
		names, want string
	}{
		"get-vanilla":                      {want: "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		"get-vanilla-query":                {url: "/", want: "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		"get-vanilla-empty-query-key":      {url: "/?Param1=value1", want: "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
		"get-vanilla-query-order-key":      {url: "/?Param1=value2&Param1=Value1", want: "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1"},
		"get-vanilla-query-order-value":    {url: "/?Param1=value2&Param1=value1", want: "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
		"get-vanilla-query-order-key-case": {url: "/?Param2=value2&Param1=value1", want: "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		"get-vanilla-query-unreserved":     {url: "/?" + unreserved + "=" + unreserved, want: "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
		"get-vanilla-utf8-query":           {url: "/?\u1234=bar", want: "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
		"get-utf8":                         {url: "/\u1234", want: "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
		"get-unreserved":                   {url: "/" + unreserved, want: "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
		"get-space":                        {url: "/example space/", want: "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
		"get-header-key-duplicate": {
			header: http.Header{"My-Header1": {"value2", "value2", "value1"}}, names: "host;my-header1;x-amz-date",
			want: "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
		},
		"get-header-value-order": {
			header: http.Header{"My-Header1": {"value4", "value1", "value3", "value2"}}, names: "host;my-header1;x-amz-date",
			want: "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01",
		},
		"get-header-value-trim": {
			header: http.Header{"My-Header1": {" value1"}, "My-Header2": {` "a   b   c"`}}, names: "host;my-header1;my-header2;x-amz-date",
			want: "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
		},
		"post-vanilla":       {method: "POST", want: "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		"post-vanilla-query": {method: "POST", url: "/?Param1=value1", want: "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
		"post-header-key-sort": {
			method: "POST", header: http.Header{"My-Header1": {"value1"}}, names: "host;my-header1;x-amz-date",
			want: "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
		},
		"post-header-value-case": {
			method: "POST", header: http.Header{"My-Header1": {"VALUE1"}}, names: "host;my-header1;x-amz-date",
			want: "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d",
		},
		"post-sts-header-before": {
			method: "POST", token: sessionToken, names: "host;x-amz-date;x-amz-security-token",
			want: "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
		},
		"post-x-www-form-urlencoded": {
			method: "POST", header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, body: "Param1=value1",
			names: "content-type;host;x-amz-date", want: "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.method == "" {
				tc.method = "GET"
			}
			if tc.names == "" {
				tc.names = "host;x-amz-date"
			}
			req, err := http.NewRequest(tc.method, "https://example.amazonaws.com"+tc.url, nil)
			require.NoError(t, err)
			if tc.header != nil {
				req.Header = tc.header
			}
			keys := credentials{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", tc.token}
			at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
			sign(req, sum([]byte(tc.body)), keys, scope{"us-east-1", "service"}, at)
			require.Equal(t, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders="+tc.names+
				", Signature="+tc.want, req.Header.Get("Authorization"))
		})
	}
}

// The examples in the documentation of S3 (Authenticating Requests: Using the Authorization Header).
func TestExamplesOfS3(t *testing.T) {
	for name, tc := range map[string]struct {
		method, url, body string
		header            http.Header
		want              string
	}{
		"get an object": {
			"GET", "/test.txt", "", http.Header{"Range": {"bytes=0-9"}},
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
		},
		"put an object": {
			"PUT", "/test$file.text", "Welcome to Amazon S3.", http.Header{
				"Date": {"Fri, 24 May 2013 00:00:00 GMT"}, "X-Amz-Storage-Class": {"REDUCED_REDUNDANCY"},
			},
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
		},
		"a parameter without value": {
			"GET", "/?lifecycle", "", http.Header{}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
		},
		"list": {
			"GET", "/?max-keys=2&prefix=J", "", http.Header{},
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
		},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest(tc.method, "https://examplebucket.s3.amazonaws.com"+tc.url, nil)
			require.NoError(t, err)
			req.Header = tc.header
			req.Header.Set("X-Amz-Content-Sha256", sum([]byte(tc.body)))
			keys := credentials{id: "AKIAIOSFODNN7EXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
			sign(req, sum([]byte(tc.body)), keys, scope{"us-east-1", "s3"}, time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC))
			require.Contains(t, req.Header.Get("Authorization"), "Signature="+tc.want)
		})
	}
}

// Signatures that botocore, the library of the AWS CLI, makes for names with many special characters.
func TestSignaturesOfBotocore(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path string
		query        url.Values
		header       http.Header
		body         string
		want         string
	}{
		"an object": {
			"PUT", "/backups/pre/\u00fc a+b~(1)*'!@:&=$,;.tar", nil, http.Header{"Content-Md5": {"nU4eI71bcnBGqeO0t9tXvY1u5oQ="}}, "x",
			"eaae09197f7b13571e7e5edb31d26bc7ccafe21688c14a5771ed736e6c868f94",
		},
		"a page of a list": {
			"GET", "/backups", url.Values{
				"list-type": {"2"}, "encoding-type": {"url"}, "prefix": {"pre/\u00fc a+b~"}, "continuation-token": {"1/a+b=="},
			}, http.Header{}, "", "5c60f150eeee674af63253ff030806b3cbb57d82b3373e6aace6fd95a49876fd",
		},
	} {
		t.Run(name, func(t *testing.T) {
			req := &http.Request{Method: tc.method, Header: tc.header, URL: &url.URL{
				Scheme: "https", Host: "s3.example.com", Path: tc.path, RawQuery: tc.query.Encode(),
			}}
			req.Header.Set("X-Amz-Content-Sha256", sum([]byte(tc.body)))
			keys := credentials{id: "AKIDEXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
			at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
			sign(req, sum([]byte(tc.body)), keys, scope{"us-east-1", "s3"}, at)
			require.Contains(t, req.Header.Get("Authorization"), "Signature="+tc.want)
		})
	}
}
