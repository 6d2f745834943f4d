package s3

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	algorithm  = "AWS4-HMAC-SHA256"
	timeFormat = "20060102T150405Z"
)

// credentials are the keys of a user.
type credentials struct{ id, secret, token string }

// scope is where a signature is valid.
type scope struct{ region, service string }

// sign adds a signature (AWS Signature Version 4) over the path, the query, the headers and the SHA-256 of the body. It
// writes path and query in the encoding that is signed, so that the server reads the same bytes.
func sign(req *http.Request, payload string, c credentials, s scope, now time.Time) {
	stamp := now.UTC().Format(timeFormat)
	req.Header.Set("X-Amz-Date", stamp)
	if c.token != "" {
		req.Header.Set("X-Amz-Security-Token", c.token)
	}
	req.URL.RawPath = escapePath(req.URL.Path)
	req.URL.RawQuery = canonicalQuery(req.URL.Query())
	names, headers := canonicalHeaders(req)
	request := strings.Join([]string{
		req.Method, cmp.Or(req.URL.RawPath, "/"), req.URL.RawQuery, headers, names, payload,
	}, "\n")
	day := stamp[:len("20060102")]
	within := strings.Join([]string{day, s.region, s.service, "aws4_request"}, "/")
	key := []byte("AWS4" + c.secret)
	for _, part := range []string{day, s.region, s.service, "aws4_request"} {
		key = mac(key, part)
	}
	signature := mac(key, strings.Join([]string{algorithm, stamp, within, sum([]byte(request))}, "\n"))
	req.Header.Set("Authorization", algorithm+" Credential="+c.id+"/"+within+", SignedHeaders="+names+
		", Signature="+hex.EncodeToString(signature))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// sum is the SHA-256 of data in hexadecimal.
func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// escape encodes all bytes except A-Z, a-z, 0-9, "-", ".", "_" and "~".
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// escapePath encodes the elements of a path. S3, unlike other services, does not encode them twice.
func escapePath(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = escape(parts[i])
	}
	return strings.Join(parts, "/")
}

// canonicalQuery encodes parameters in the order of their encoded names and values.
func canonicalQuery(values url.Values) string {
	var all [][2]string
	for name, list := range values {
		for _, v := range list {
			all = append(all, [2]string{escape(name), escape(v)})
		}
	}
	slices.SortFunc(all, func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
	pairs := make([]string, len(all))
	for i, p := range all {
		pairs[i] = p[0] + "=" + p[1]
	}
	return strings.Join(pairs, "&")
}

// canonicalHeaders returns the names of the signed headers, and their lines. Proxies may change the headers that are
// not signed.
func canonicalHeaders(req *http.Request) (names, lines string) {
	signed := map[string]string{"host": cmp.Or(req.Host, req.URL.Host)}
	for name, values := range req.Header {
		name = strings.ToLower(name)
		if slices.Contains([]string{"authorization", "expect", "user-agent"}, name) {
			continue
		}
		trimmed := make([]string, len(values))
		for i, v := range values {
			trimmed[i] = strings.Join(strings.Fields(v), " ")
		}
		signed[name] = strings.Join(trimmed, ",")
	}
	var list []string
	for name := range signed {
		list = append(list, name)
	}
	slices.Sort(list)
	for _, name := range list {
		lines += name + ":" + signed[name] + "\n"
	}
	return strings.Join(list, ";"), lines
}
