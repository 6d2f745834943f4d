package kubeconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/kit/atomicfile"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// How long edit waits for another program that writes the file.
const (
	lockTries = 20
	lockPause = 100 * time.Millisecond
)

// Server returns the URL of the server of the current context of a kubeconfig, and the certificates in it that verify
// the server, in PEM format. Both are empty if the kubeconfig is not valid.
func Server(raw []byte) (rawURL, ca string) {
	cfg, err := clientcmd.Load(raw)
	if err != nil {
		return "", ""
	}
	if c := cfg.Contexts[cfg.CurrentContext]; c != nil {
		if cluster := cfg.Clusters[c.Cluster]; cluster != nil {
			return cluster.Server, string(cluster.CertificateAuthorityData)
		}
	}
	return "", ""
}

// Bundle returns the file with which a kubeconfig verifies servers, or the certificates in it in PEM format. Both are
// empty if it uses the authorities of the system. It fails if clusters of the kubeconfig differ in it.
func Bundle(raw []byte) (file string, data []byte, err error) {
	var cfg struct {
		Clusters []struct {
			Cluster struct {
				File string `json:"certificate-authority"`
				Data []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(raw, &cfg); err != nil || len(cfg.Clusters) == 0 {
		return "", nil, errors.Join(errors.New("it is not a kubeconfig with a cluster"), err)
	}
	first := cfg.Clusters[0].Cluster
	for _, c := range cfg.Clusters[1:] {
		if c.Cluster.File != first.File || !bytes.Equal(c.Cluster.Data, first.Data) {
			return "", nil, errors.New("its clusters have different authorities")
		}
	}
	return first.File, first.Data, nil
}

// edit changes a user's kubeconfig. It takes the lock that kubectl takes, and replaces the file atomically. If the path
// is a symbolic link, it replaces the target.
func edit(ctx context.Context, link string, change func(*api.Config) error) error {
	path, err := follow(link)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // as client-go creates ~/.kube
		return fmt.Errorf("write %s: %w", path, err)
	}
	unlock, err := lock(ctx, link)
	if err != nil {
		return err
	}
	defer unlock()

	cfg, err := load(path)
	if err != nil {
		return err
	}
	before := encode(cfg)
	if err := change(cfg); err != nil {
		return err
	}
	data := encode(cfg)
	if bytes.Equal(before, data) {
		return nil
	}
	return atomicfile.Write(path, data, 0o600)
}

// load reads a kubeconfig. It is empty if the file does not exist.
func load(path string) (*api.Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	cfg, err := clientcmd.Load(raw)
	if err != nil { // the cause could contain a key
		return nil, clierr.New(clierr.BadInput, "fix the file or specify another one", "%s is not a valid kubeconfig",
			path)
	}
	return cfg, nil
}

// follow resolves symbolic links. The target does not have to exist.
func follow(path string) (string, error) {
	for range 40 { // as many as Linux follows
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil // not a link; errors show up when the file is read
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return "", fmt.Errorf("read %s: too many links", path)
}

// lock takes the lock of client-go (tools/clientcmd/config.go, lockFile): a second file that exists during a write.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	name := path + ".lock"
	for try := 1; ; try++ {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0)
		if err == nil {
			return func() { _ = errors.Join(f.Close(), os.Remove(name)) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if try == lockTries || !pause(ctx, lockPause) {
			return nil, clierr.New(clierr.Conflict, "if no other program is writing the file, delete "+name,
				"%s is locked by another program", path)
		}
	}
}

// pause waits for d, and reports whether ctx is still active.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

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
