package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/cloudflare/cfssl/helpers"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// PEM block types.
const (
	pemCertificate = "CERTIFICATE"
	pemPrivateKey  = "PRIVATE KEY"
	pemPublicKey   = "PUBLIC KEY"
)

func newKey(alg v1alpha1.KeyAlgorithm) (crypto.Signer, error) {
	switch alg {
	case v1alpha1.KeyECDSAP256:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case v1alpha1.KeyECDSAP384:
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case v1alpha1.KeyRSA2048:
		return rsa.GenerateKey(rand.Reader, 2048)
	case v1alpha1.KeyRSA4096:
		return rsa.GenerateKey(rand.Reader, 4096)
	}
	return nil, fmt.Errorf("unknown key algorithm %q", alg)
}

// algorithmOf returns the algorithm of a public key. A user-supplied key can have one that v1alpha1 does not define.
func algorithmOf(pub crypto.PublicKey) v1alpha1.KeyAlgorithm {
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		return v1alpha1.KeyAlgorithm("ECDSA-" + "P" + fmt.Sprint(k.Curve.Params().BitSize))
	case *rsa.PublicKey:
		return v1alpha1.KeyAlgorithm(fmt.Sprintf("RSA-%d", k.N.BitLen()))
	}
	return v1alpha1.KeyAlgorithm(fmt.Sprintf("%T", pub))
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivateKey, Bytes: der}), nil
}

// parseKey parses an unencrypted private key: PKCS#8, PKCS#1 or SEC 1. It does not return the cause of a failure,
// which could quote the key.
func parseKey(data []byte) (crypto.Signer, error) {
	key, err := helpers.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, errors.New("not an unencrypted PEM private key")
	}
	return key, nil
}

// newEncodedKey creates a private key.
func newEncodedKey(alg v1alpha1.KeyAlgorithm) ([]byte, error) {
	key, err := newKey(alg)
	if err != nil {
		return nil, err
	}
	return encodeKey(key)
}

// publicOf returns the public key of an encoded private key. It returns nothing for an empty one.
func publicOf(private []byte) ([]byte, error) {
	if len(private) == 0 {
		return nil, nil
	}
	key, err := parseKey(private)
	if err != nil {
		return nil, err
	}
	return encodePublicKey(key.Public())
}

func encodePublicKey(pub crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPublicKey, Bytes: der}), nil
}

// parseCerts parses PEM certificates, at least one.
func parseCerts(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, errors.New("no PEM certificate")
	}
	return certs, nil
}

// parsePair parses a certificate chain and the private key of its first certificate. It fails if they do not belong
// together.
func parsePair(p Pair) ([]*x509.Certificate, crypto.Signer, error) {
	certs, err := parseCerts(p.Cert)
	if err != nil {
		return nil, nil, err
	}
	key, err := parseKey(p.Key)
	if err != nil {
		return nil, nil, err
	}
	if !samePublicKey(certs[0].PublicKey, key.Public()) {
		return nil, nil, errors.New("the private key does not belong to the certificate")
	}
	return certs, key, nil
}

func samePublicKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}
