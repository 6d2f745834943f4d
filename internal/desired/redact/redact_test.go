package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/redact"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func TestFormsOfSecrets(t *testing.T) {
	const key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\nabcd\n-----END EC PRIVATE KEY-----"
	for text, want := range map[string]string{
		"a\n" + key + "\nb": "a\n<redacted>\nb",
		`{"key":"` + strings.ReplaceAll(key, "\n", `\n`) + `"}`: `{"key":"<redacted>"}`,
		"-----BEGIN PRIVATE KEY-----\ncut":                      "<redacted>",
		"-----BEGIN CERTIFICATE-----\nMIIB\n":                   "-----BEGIN CERTIFICATE-----\nMIIB\n",
		"token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2ln x":     "token <redacted> x",
		"Authorization: Bearer abc.def":                         "Authorization: <redacted>",
		`"Authorization":["Basic dTpw"], "x"`:                   `"Authorization":["<redacted>"], "x"`,
		"got Bearer abcdef123 from":                             "got Bearer <redacted> from",
		"dial https://me:pa55@etcd.example.com:2379: refused":   "dial https://<redacted>@etcd.example.com:2379: refused",
		"https://etcd.example.com:2379/a@b":                     "https://etcd.example.com:2379/a@b",
		"    client-key-data: LS0tLS1\n    user: x":             "    client-key-data: <redacted>\n    user: x",
		"  token: abc\n":                                        "  token: <redacted>\n",
		`FLAG: --oidc-client-secret="hunter two"`:               `FLAG: --oidc-client-secret=<redacted>`,
		"--client-token abc --v=4":                              "--client-token <redacted> --v=4",
		`{"clientSecret": "a\"b", "a": "b"}`:                    `{"clientSecret": <redacted>, "a": "b"}`,
		"DB_PASSWORD=abc OTHER=d":                               "DB_PASSWORD=<redacted> OTHER=d",
		"the secret is missing":                                 "the secret is missing",
	} {
		require.Equal(t, want, string(redact.New().Text([]byte(text))))
	}
}

func TestKnownValues(t *testing.T) {
	r := redact.New()
	r.Know("first line\nsecond \"line\"\nab")
	r.Know("true")
	r.Know("https://me:pass%21word@proxy.example.com")
	require.Equal(t, "<redacted> <redacted>", string(r.Text([]byte("pass!word pass%21word"))))
	quoted, err := json.Marshal(`second "line"`)
	require.NoError(t, err)
	text := strings.Join([]string{
		"x first line y", `second "line"`, string(quoted), "ab", "true",
		base64.StdEncoding.EncodeToString([]byte("first line\nsecond \"line\"\nab")),
	}, "\n")
	require.Equal(t, "x <redacted> y\n<redacted>\n\"<redacted>\"\nab\ntrue\n<redacted>", string(r.Text([]byte(text))))
}

func TestKeysOfThePKI(t *testing.T) {
	s := pkitest.Issue(t, topologytest.Build(t, topologytest.Header), time.Now())
	r := redact.New()
	r.KnowKeys(s)
	for _, leaf := range s.Leaves {
		lines := strings.Split(strings.TrimSpace(string(leaf.Key)), "\n")
		for _, line := range lines[1 : len(lines)-1] {
			if len(line) < 6 {
				continue
			}
			require.NotContains(t, string(r.Text([]byte("torn: "+line))), line)
		}
		require.Equal(t, string(leaf.Cert), string(r.Text(leaf.Cert)), "certificates are no secrets")
	}
}
