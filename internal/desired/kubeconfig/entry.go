package kubeconfig

import (
	"errors"
	"fmt"
	"os"
	"reflect"

	"k8s.io/client-go/tools/clientcmd/api"
)

// ErrAnyServer means that a kubeconfig accepts any server.
var ErrAnyServer = errors.New("it accepts any server (insecure-skip-tls-verify)")

// Portable returns a copy of the entry of a cluster for a kubeconfig that others use elsewhere. It keeps every field,
// such as the proxy and the name that the certificate is verified with, and has the certificates of the authority
// instead of the path of their file. It fails for a cluster whose servers are not verified: any server at its address
// would get the credential.
func Portable(of *api.Cluster) (*api.Cluster, error) {
	if of.InsecureSkipTLSVerify {
		return nil, ErrAnyServer
	}
	out := entryOf(of)
	if out.CertificateAuthority == "" {
		return out, nil
	}
	// As in client-go, the certificates in the kubeconfig take precedence over the file.
	if len(out.CertificateAuthorityData) == 0 {
		var err error
		if out.CertificateAuthorityData, err = os.ReadFile(out.CertificateAuthority); err != nil {
			return nil, fmt.Errorf("read its certificate authority: %w", err)
		}
	}
	out.CertificateAuthority = ""
	return out, nil
}

// SameCluster reports whether two entries lead to the same cluster in the same way.
func SameCluster(a, b *api.Cluster) bool { return reflect.DeepEqual(entryOf(a), entryOf(b)) }

// entryOf returns a copy of an entry without what says where it comes from.
func entryOf(c *api.Cluster) *api.Cluster {
	out := c.DeepCopy()
	out.LocationOfOrigin = ""
	out.Extensions = nil
	return out
}
