package s3

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

const (
	// form is an example of a URL, in quotes because of ? and &: a shell runs what is in front of & in the background.
	form = "'s3://bucket/prefix?endpoint=https://host:port&region=eu-central-1'"
	// defaultRegion is the region of most servers that are not from AWS. AWS answers with the right one.
	defaultRegion = "us-east-1"
)

// parameters are the parameters of a URL.
func parameters() []string { return []string{"caFile", "endpoint", "insecure", "pathStyle", "region"} }

// Parse returns the bucket of a URL, with credentials from the environment, or from the profile in the file that the
// AWS CLI uses:
//
//	s3://bucket/prefix?endpoint=https://host:port&region=eu-central-1&pathStyle=true&caFile=ca.crt
//
// Errors do not contain the URL: it is not valid, and may contain credentials.
func Parse(rawURL string, env func(string) string) (*Bucket, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "s3" || u.User != nil || u.Port() != "" || u.Opaque != "" || u.Fragment != "" {
		return nil, bad("use "+form+", with the credentials in the environment", "the URL of the bucket is not valid")
	}
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`).MatchString(u.Host) {
		return nil, bad("use "+form, "%q is not the name of a bucket", u.Host)
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		if err := checkName(prefix); err != nil {
			return nil, err
		}
		prefix += "/"
	}
	options, err := parseOptions(u.RawQuery)
	if err != nil {
		return nil, err
	}
	keys, region, err := readCredentials(env)
	if err != nil {
		return nil, err
	}
	b := &Bucket{
		name: u.Host, prefix: prefix, credentials: keys, stall: defaultStall, partSize: partSize, maxParts: maxParts,
	}
	b.region = cmp.Or(options["region"], env("AWS_REGION"), env("AWS_DEFAULT_REGION"), region, defaultRegion)
	if !regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString(b.region) {
		return nil, bad("use a name such as eu-central-1", "%q is not the name of a region", b.region)
	}
	if b.base, err = baseURL(b, options, env); err != nil {
		return nil, err
	}
	b.client, err = newClient(cmp.Or(options["caFile"], env("AWS_CA_BUNDLE")))
	return b, err
}

func bad(hint, format string, args ...any) error {
	return clierr.New(clierr.BadInput, hint, format, args...)
}

// parseOptions reads the parameters of a URL.
func parseOptions(query string) (map[string]string, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, bad("use "+form, "the parameters of the bucket's URL are not valid")
	}
	options := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(parameters(), name) {
			hint := "use one of " + strings.Join(parameters(), ", ")
			for _, known := range parameters() {
				if strings.EqualFold(known, name) {
					hint = "did you mean " + known + "?"
				}
			}
			return nil, bad(hint, "the bucket's URL has an unknown parameter %q", name)
		}
		if options[name] = values.Get(name); options[name] == "" || len(values[name]) > 1 {
			return nil, bad("set it once", "parameter %s of the bucket's URL must have one value", name)
		}
	}
	for _, name := range []string{"insecure", "pathStyle"} {
		if _, err := strconv.ParseBool(cmp.Or(options[name], "false")); err != nil {
			return nil, bad("use true or false", "parameter %s of the bucket's URL is %q", name, options[name])
		}
	}
	return options, nil
}

// baseURL returns the URL of a bucket. As with the AWS CLI, the bucket is in the host for AWS and in the path for other
// endpoints.
func baseURL(b *Bucket, options map[string]string, env func(string) string) (*url.URL, error) {
	endpoint := options["endpoint"]
	if endpoint == "" && env("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") != "true" {
		endpoint = cmp.Or(env("AWS_ENDPOINT_URL_S3"), env("AWS_ENDPOINT_URL"))
	}
	inPath := endpoint != ""
	if endpoint == "" {
		endpoint = "https://s3." + b.region + ".amazonaws.com"
		if strings.HasPrefix(b.region, "cn-") {
			endpoint += ".cn"
		}
	}
	if v := options["pathStyle"]; v != "" {
		inPath, _ = strconv.ParseBool(v) // parseOptions has checked it
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && u.Scheme != "http" {
		return nil, bad("use a URL such as https://host:port", "the endpoint of bucket %s is not valid", b.name)
	}
	insecure, _ := strconv.ParseBool(options["insecure"])
	if u.Scheme == "http" && !insecure && !isLoopback(u.Hostname()) {
		return nil, bad("use https, or set insecure=true: others in the network can read what is stored",
			"the endpoint of bucket %s is http://%s, without encryption", b.name, u.Host)
	}
	if u.Port() == map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		u.Host = strings.TrimSuffix(u.Host, ":"+u.Port()) // as proxies do
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if inPath || strings.Trim(b.name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" { // no certificate is for a.b.host
		u.Path += "/" + b.name
	} else {
		u.Host = b.name + "." + u.Host
	}
	return u, nil
}

func isLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// newClient returns a client that trusts the CA in a file, or the CAs of the system. It follows no redirects, because
// the signature is for one host and one region.
func newClient(caFile string) (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
	t.DisableCompression = true // an object is read as it was stored
	if caFile != "" {
		raw, err := os.ReadFile(caFile)
		if err != nil {
			return nil, bad("check caFile= in the URL, or AWS_CA_BUNDLE", "read the CA of the endpoint: %w", err)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(raw) {
			return nil, bad("use a file with certificates in PEM", "%s has no certificate", caFile)
		}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}, nil
}

// readCredentials returns credentials from the environment or from a profile, and the region of the profile.
func readCredentials(env func(string) string) (credentials, string, error) {
	c := credentials{env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"), env("AWS_SESSION_TOKEN")}
	if c.id != "" && c.secret != "" {
		return c, "", nil
	}
	if c.id != "" || c.secret != "" {
		return c, "", bad("set both, or neither", "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set")
	}
	const hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. For other kinds of credentials, run eval " +
		`"$(aws configure export-credentials --format env)" first`
	path := cmp.Or(env("AWS_SHARED_CREDENTIALS_FILE"), filepath.Join(env("HOME"), ".aws", "credentials"))
	profile := cmp.Or(env("AWS_PROFILE"), "default")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, "", bad(hint, "no credentials for S3: AWS_ACCESS_KEY_ID is not set, and %s does not exist", path)
	}
	if err != nil {
		return c, "", bad(hint, "read the credentials for S3: %w", err)
	}
	keys := section(string(raw), profile)
	c = credentials{keys["aws_access_key_id"], keys["aws_secret_access_key"], keys["aws_session_token"]}
	if c.id == "" || c.secret == "" {
		return c, "", bad(hint, "profile %s in %s has no aws_access_key_id with aws_secret_access_key", profile, path)
	}
	return c, keys["region"], nil
}

// section returns the keys of a section of an INI file.
func section(text, name string) map[string]string {
	out := map[string]string{}
	in := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			in = strings.TrimSpace(strings.Trim(line, "[]")) == name
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if in && ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			out[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
		}
	}
	return out
}
