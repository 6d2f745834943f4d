// Package redact removes secrets from what users hand to others: from texts such as logs, and from setups.
package redact

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
)

// Mark stands for what was removed.
const Mark = "<redacted>"

// shortest is the length of the shortest value that is removed from texts. Shorter ones are parts of usual words.
const shortest = 6

// Redactor removes the secrets that it knows, and all that look like secrets. It is used by one goroutine at a time.
type Redactor struct {
	known map[string]bool
	// replacer removes what is known. It is nil if that has changed since.
	replacer *strings.Replacer
	// forms are secrets by their form. The texts of the groups are kept: one before, and one after.
	forms []*regexp.Regexp
	// harmless are values that cannot be secrets, and login is a URL with a password.
	harmless, login *regexp.Regexp
}

// New returns a Redactor that knows the forms of secrets, and no values.
func New() *Redactor {
	const secretWord = `[\w.-]*(?:token|secret|passw(?:or)?d|passphrase|credential|private-?key|api-?key|client-key)` +
		`[\w.-]*`
	r := &Redactor{
		known: map[string]bool{},
		login: regexp.MustCompile(`://[^\s/@:]*:([^\s/@]+)@`),
		// Truth values, numbers, sizes, durations, and lists of feature gates.
		harmless: regexp.MustCompile(`^(?:true|false|-?\d{1,10}(?:\.\d+)?(?:ns|us|ms|[smhd]|[kKMGT]i?B?)?|` +
			`[A-Z]\w*=(?:true|false)(?:,[A-Z]\w*=(?:true|false))*)?$`),
	}
	for _, form := range []string{
		// Private keys in PEM, also in JSON, where a line ends in \n.
		`()-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`,
		// JSON Web Tokens: of ServiceAccounts and of OpenID Connect.
		`()\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*`,
		`(?i)((?:proxy-)?authorization"?\s*[:=]\s*\[?"?)[^\r\n"\]]+`,
		`(?i)(\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}`,
		// The user and the password in a URL.
		`(\b[a-zA-Z][\w+.-]*://)[^\s/@"']+(@)`,
		// Kubeconfigs, in YAML and in JSON.
		`(?i)("?\b(?:client-key-data|id-token|refresh-token|access-token)"?\s*[:=]\s*)"?[^\s",}]+"?`,
		`(?im)(^[\s-]*(?:token|password)\s*:\s*)\S+`,
		// Flags, fields of JSON and variables whose names say that they are secret.
		`(?i)(--` + secretWord + `[= ])(?:"[^"\n]*"|'[^'\n]*'|[^\s"']+)`,
		`(?i)("` + secretWord + `"\s*:\s*)"(?:[^"\\\n]|\\.)*"`,
		`(?i)(\b` + secretWord + `=)(?:"[^"\n]*"|'[^'\n]*'|[^\s"']+)`,
	} {
		r.forms = append(r.forms, regexp.MustCompile(form))
	}
	return r
}

// Know makes a value one that is removed wherever it is: as it is, each of its lines, quoted, in base64, and the
// password if it is a URL.
func (r *Redactor) Know(value string) {
	r.replacer = nil
	for _, v := range append(strings.Split(value, "\n"), value) {
		v = strings.TrimSpace(v)
		if len(v) < shortest || r.harmless.MatchString(v) || strings.HasPrefix(v, "-----") {
			continue
		}
		r.known[v] = true
		r.known[base64.StdEncoding.EncodeToString([]byte(v))] = true
		if quoted, err := json.Marshal(v); err == nil {
			r.known[string(quoted[1:len(quoted)-1])] = true
		}
	}
	for _, m := range r.login.FindAllStringSubmatch(value, -1) {
		if plain, err := url.PathUnescape(m[1]); err == nil && len(plain) >= shortest {
			r.known[plain] = true
		}
		if len(m[1]) >= shortest {
			r.known[m[1]] = true
		}
	}
	if len(value) >= shortest {
		r.known[base64.StdEncoding.EncodeToString([]byte(value))] = true
	}
}

// KnowKeys makes the private keys of a PKI known.
func (r *Redactor) KnowKeys(s *pki.State) {
	keys := [][]byte{s.ServiceAccount.Key, s.ServiceAccount.Next}
	for _, ca := range s.CAs {
		keys = append(keys, ca.Key, ca.Next.Key)
	}
	for _, leaf := range s.Leaves {
		keys = append(keys, leaf.Key)
	}
	for _, key := range s.Encryption.Keys() {
		keys = append(keys, []byte(key))
	}
	for _, key := range keys {
		r.Know(string(key))
	}
}

// Text returns a text without secrets.
func (r *Redactor) Text(text []byte) []byte {
	if r.replacer == nil {
		// The longest first: another one may be a part of it.
		all := slices.SortedFunc(maps.Keys(r.known), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
		var pairs []string
		for _, value := range all {
			pairs = append(pairs, value, Mark)
		}
		r.replacer = strings.NewReplacer(pairs...)
	}
	out := r.replacer.Replace(string(text))
	for _, form := range r.forms {
		out = form.ReplaceAllString(out, "${1}"+Mark+"${2}")
	}
	return []byte(out)
}
