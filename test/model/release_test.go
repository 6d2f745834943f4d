package model_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// readRelease reads a release. Each key is a new one, each certificate is signed again with the new keys, and each
// fingerprint is the one of the new certificate or key.
func readRelease(t *testing.T, name string) release {
	t.Helper()
	var tree any
	require.NoError(t, json.Unmarshal(must(os.ReadFile(filepath.Join("testdata", name+".json"))), &tree))
	r := reissue{map[string]*ecdsa.PrivateKey{}, map[string]*x509.Certificate{}, map[string]*x509.Certificate{}}
	rewrite(tree, r.find)
	var out release
	require.NoError(t, json.Unmarshal(must(json.Marshal(rewrite(tree, r.replace))), &out))
	return out
}

// rewrite replaces parts of a tree of JSON: PEM blocks, placeholders of keys, and fingerprints, also where they are
// encoded as base64.
func rewrite(tree any, replace func(part string) string) any {
	switch tree := tree.(type) {
	case string:
		return rewriteText(tree, replace)
	case []any:
		for i, v := range tree {
			tree[i] = rewrite(v, replace)
		}
	case map[string]any:
		for k, v := range tree {
			tree[k] = rewrite(v, replace)
		}
	}
	return tree
}

func rewriteText(text string, replace func(part string) string) string {
	parts := regexp.MustCompile(`-----BEGIN [^-]+-----[^-]+-----END [^-]+-----\n|(KEY )?sha256:[0-9a-f]{64}|` +
		`[A-Za-z0-9+/]{40,}=*`)
	return parts.ReplaceAllStringFunc(text, func(part string) string {
		if strings.ContainsAny(part, ":-") {
			return replace(part)
		}
		decoded, err := base64.StdEncoding.DecodeString(part)
		if err != nil || !utf8.Valid(decoded) {
			return part
		}
		return base64.StdEncoding.EncodeToString([]byte(rewriteText(string(decoded), replace)))
	})
}

// reissue has the new keys, the old certificates and the new ones, by the fingerprints of the old ones.
type reissue struct {
	keys     map[string]*ecdsa.PrivateKey
	old, new map[string]*x509.Certificate
}

// find finds the certificates and keys.
func (r reissue) find(part string) string {
	if old, ok := strings.CutPrefix(part, "KEY "); ok {
		r.keys[old] = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	}
	if block, _ := pem.Decode([]byte(part)); block != nil && block.Type == "CERTIFICATE" {
		r.old[fingerprintOf(block.Bytes)] = must(x509.ParseCertificate(block.Bytes))
	}
	return part
}

// replace returns the new certificate, key or fingerprint.
func (r reissue) replace(part string) string {
	block, _ := pem.Decode([]byte(part))
	old, private := strings.CutPrefix(part, "KEY ")
	if block != nil {
		old = fingerprintOf(block.Bytes)
	}
	var der []byte
	switch key := r.keys[old]; {
	case private:
		block = &pem.Block{Type: "PRIVATE KEY"}
		der = must(x509.MarshalPKCS8PrivateKey(key))
	case key != nil:
		der = must(x509.MarshalPKIXPublicKey(key.Public()))
	case r.old[old] != nil:
		der = r.sign(old).Raw
	default:
		panic("no certificate or key for " + old)
	}
	if block == nil {
		return fingerprintOf(der)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: der}))
}

// sign returns the new certificate for an old one, of the new certificate of its authority.
func (r reissue) sign(fingerprint string) *x509.Certificate {
	if r.new[fingerprint] != nil {
		return r.new[fingerprint]
	}
	old := r.old[fingerprint]
	template := *old
	template.SignatureAlgorithm = x509.UnknownSignatureAlgorithm
	template.SubjectKeyId = nil
	template.AuthorityKeyId = nil
	template.PublicKey = r.keyOf(old).Public()
	for name, authority := range r.old {
		if old.CheckSignatureFrom(authority) != nil {
			continue
		}
		parent := &template
		if name != fingerprint {
			parent = r.sign(name)
		}
		der := must(x509.CreateCertificate(rand.Reader, &template, parent, template.PublicKey, r.keyOf(authority)))
		r.new[fingerprint] = must(x509.ParseCertificate(der))
		return r.new[fingerprint]
	}
	panic("no authority of " + old.Subject.String())
}

func (r reissue) keyOf(old *x509.Certificate) *ecdsa.PrivateKey {
	return r.keys[fingerprintOf(old.RawSubjectPublicKeyInfo)]
}

func fingerprintOf(der []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(der)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
