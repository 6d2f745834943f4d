package kubeconfig

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"slices"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
)

// RefreshOptions describe the changes of a rotation of authorities.
type RefreshOptions struct {
	Owner
	// Server and Client are the PEM certificates of these authorities.
	Server, Client Change
	// Current are the certificates of the declared kubeconfigs.
	Current []pki.Pair
}

// Change is a bundle of certificates before and after a rotation.
type Change struct{ Before, After []byte }

// Refreshed are names of contexts.
type Refreshed struct {
	// Updated are the contexts that have new certificates.
	Updated []string
	// Stale are the client certificates that the setup no longer accepts, and of which it has no new ones.
	Stale []Stale
}

// Stale is a client certificate that is no longer accepted.
type Stale struct {
	// Context is the first context that uses it.
	Context string
	User    string
	Groups  []string
}

// Refresh replaces the certificates of an installation in the file at path, after a rotation. It changes only entries
// that Merge has written for this installation, and creates no file.
func Refresh(ctx context.Context, path string, o RefreshOptions) (Refreshed, error) {
	var out Refreshed
	if _, err := os.Stat(path); o.Installation == "" || errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	err := edit(ctx, path, func(cfg *api.Config) error {
		changed := map[string]bool{}
		lost := map[string]bool{}
		for _, it := range items(cfg) {
			switch is := ownerOf(it.ext); {
			case is != o.Owner:
			case it.kind == kindCluster:
				c := cfg.Clusters[it.name]
				bundle := o.Server.apply(c.CertificateAuthorityData)
				changed[it.String()] = !bytes.Equal(bundle, c.CertificateAuthorityData)
				c.CertificateAuthorityData = bundle
			case it.kind == kindUser:
				changed[it.String()] = o.refreshUser(cfg.AuthInfos[it.name])
			}
		}
		for _, it := range items(cfg) {
			if it.kind != kindContext || ownerOf(it.ext) != o.Owner {
				continue
			}
			c := cfg.Contexts[it.name]
			cluster := item{kind: kindCluster, name: c.Cluster}
			login := item{kind: kindUser, name: c.AuthInfo}
			if changed[cluster.String()] || changed[login.String()] {
				out.Updated = append(out.Updated, it.name)
			}
			user := cfg.AuthInfos[c.AuthInfo]
			if user != nil && !lost[c.AuthInfo] && ownerOf(user.Extensions) == o.Owner && o.lost(user) {
				lost[c.AuthInfo] = true
				subject := leafOf(user.ClientCertificateData).Subject
				out.Stale = append(out.Stale, Stale{it.name, subject.CommonName, subject.Organization})
			}
		}
		return nil
	})
	return out, err
}

// refreshUser replaces the client certificate of a user by the current one for the same subject, and reports whether
// they differ.
func (o RefreshOptions) refreshUser(user *api.AuthInfo) bool {
	have := leafOf(user.ClientCertificateData)
	for _, pair := range o.Current {
		now := leafOf(pair.Cert)
		if have == nil || now == nil || !bytes.Equal(have.RawSubject, now.RawSubject) {
			continue
		}
		differs := !have.Equal(now)
		if differs {
			user.ClientCertificateData = pair.Cert
			user.ClientKeyData = pair.Key
		}
		return differs
	}
	return false
}

// lost reports whether the client certificate of a user was signed by an authority that is no longer trusted.
func (o RefreshOptions) lost(user *api.AuthInfo) bool {
	leaf := leafOf(user.ClientCertificateData)
	signed := func(by *x509.Certificate) bool { return leaf.CheckSignatureFrom(by) == nil }
	return leaf != nil && slices.ContainsFunc(certificatesIn(o.Client.Before), signed) &&
		!slices.ContainsFunc(certificatesIn(o.Client.After), signed)
}

// apply returns a bundle with the certificates after the change instead of those before it. Other certificates of the
// bundle remain. A bundle without any of them before the change is not one of the authority.
func (c Change) apply(bundle []byte) []byte {
	if !shares(bundle, c.Before) {
		return bundle
	}
	out := slices.Clone(c.After)
	for p, rest := pem.Decode(bundle); p != nil; p, rest = pem.Decode(rest) {
		block := pem.EncodeToMemory(p)
		if !shares(block, c.Before) && !shares(block, c.After) {
			out = append(out, block...)
		}
	}
	return out
}

// leafOf returns the first certificate of a PEM chain, or nil.
func leafOf(chain []byte) *x509.Certificate {
	if all := certificatesIn(chain); len(all) > 0 {
		return all[0]
	}
	return nil
}

// certificatesIn returns the certificates of a PEM bundle that can be parsed.
func certificatesIn(bundle []byte) (out []*x509.Certificate) {
	for p, rest := pem.Decode(bundle); p != nil; p, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(p.Bytes); err == nil {
			out = append(out, cert)
		}
	}
	return out
}
