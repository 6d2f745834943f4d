package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// credential is a certificate of a node with its key.
type credential struct {
	name   string // of the files
	user   string
	groups []string
	hosts  []string // of a server certificate
}

// credentials returns the certificates of a node. Client certificates, except those of the API server, also get a
// kubeconfig.
func (n node) credentials() []credential {
	return []credential{
		{name: "serving", user: n.hostname, hosts: []string{
			n.address, n.apiService, "127.0.0.1", "localhost", n.hostname,
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}},
		{name: "apiserver-kubelet", user: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}},
		{name: "admin", user: "kubernetes-admin", groups: []string{"system:masters"}},
		{name: "kube-controller-manager", user: "system:kube-controller-manager"},
		{name: "kube-scheduler", user: "system:kube-scheduler"},
		{name: "kube-proxy", user: "system:kube-proxy"},
		{name: "kubelet", user: "system:node:" + n.hostname, groups: []string{"system:nodes"}},
	}
}

// kubeconfig returns the path of the kubeconfig of a credential.
func (n node) kubeconfig(name string) string { return n.stateFile("kubeconfigs", name+".kubeconfig") }

// authority signs the certificates of a node.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// issueAll creates the missing authority, keys, certificates and kubeconfigs of the node.
func (n node) issueAll() error {
	ca, err := n.authority()
	if err != nil {
		return err
	}
	if err := n.serviceAccountKey(); err != nil {
		return err
	}
	for _, c := range n.credentials() {
		if err := n.issue(ca, c); err != nil {
			return fmt.Errorf("issue the certificate %s: %w", c.name, err)
		}
	}
	return nil
}

// authority returns the CA of the node, and creates it if it is missing.
func (n node) authority() (authority, error) {
	cert, key := n.stateFile("pki", "ca.crt"), n.stateFile("pki", "ca.key")
	if exists(cert) && exists(key) {
		return loadAuthority(cert, key)
	}
	template := x509.Certificate{
		Subject: pkix.Name{CommonName: n.id + "-ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if err := writeCertificate(cert, key, &template, nil); err != nil {
		return authority{}, fmt.Errorf("create the CA: %w", err)
	}
	return loadAuthority(cert, key)
}

func loadAuthority(certFile, keyFile string) (authority, error) {
	cert, err := readPEM(certFile)
	if err != nil {
		return authority{}, err
	}
	key, err := readPEM(keyFile)
	if err != nil {
		return authority{}, err
	}
	var a authority
	if a.cert, err = x509.ParseCertificate(cert); err != nil {
		return authority{}, fmt.Errorf("read %s: %w", certFile, err)
	}
	if a.key, err = x509.ParseECPrivateKey(key); err != nil {
		return authority{}, fmt.Errorf("read %s: %w", keyFile, err)
	}
	return a, nil
}

// issue writes the certificate, key and kubeconfig of c unless they exist.
func (n node) issue(ca authority, c credential) error {
	cert, key := n.stateFile("pki", c.name+".crt"), n.stateFile("pki", c.name+".key")
	if !exists(cert) || !exists(key) {
		template := x509.Certificate{
			Subject:  pkix.Name{CommonName: c.user, Organization: c.groups},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if len(c.hosts) > 0 {
			template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}
		for _, h := range c.hosts {
			if ip := net.ParseIP(h); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else {
				template.DNSNames = append(template.DNSNames, h)
			}
		}
		if err := writeCertificate(cert, key, &template, &ca); err != nil {
			return err
		}
	}
	if len(c.hosts) > 0 || exists(n.kubeconfig(c.name)) {
		return nil
	}
	return n.writeKubeconfig(c, cert, key)
}

func (n node) writeKubeconfig(c credential, certFile, keyFile string) error {
	var contents [3][]byte
	for i, file := range []string{n.stateFile("pki", "ca.crt"), certFile, keyFile} {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		contents[i] = content
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[n.id] = &clientcmdapi.Cluster{Server: n.url(), CertificateAuthorityData: contents[0]}
	config.AuthInfos[c.user] = &clientcmdapi.AuthInfo{ClientCertificateData: contents[1], ClientKeyData: contents[2]}
	config.Contexts[n.id] = &clientcmdapi.Context{Cluster: n.id, AuthInfo: c.user}
	config.CurrentContext = n.id
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writeFile(n.kubeconfig(c.name), content, 0o600)
}

// serviceAccountKey creates the key that signs the tokens of ServiceAccounts.
func (n node) serviceAccountKey() error {
	file := n.stateFile("pki", "service-account.key")
	if exists(file) {
		return nil
	}
	_, content, err := newKey()
	if err != nil {
		return err
	}
	return writeFile(file, content, 0o600)
}

// writeCertificate completes a template with the common fields and writes the certificate, signed by ca or self-signed,
// with a new key. The key is written last, because its presence means that both are complete.
func writeCertificate(certFile, keyFile string, template *x509.Certificate, ca *authority) error {
	key, keyPEM, err := newKey()
	if err != nil {
		return err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(5, 0, 0)
	if ca == nil {
		ca = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return err
	}
	if err := writeFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return err
	}
	return writeFile(keyFile, keyPEM, 0o600)
}

func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func readPEM(file string) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", file)
	}
	return block.Bytes, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
