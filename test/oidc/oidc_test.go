package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/stretchr/testify/require"
)

// The client that kube-apiserver uses discovers the issuer and verifies its tokens.
func TestIssuer(t *testing.T) {
	issuer, other := Start(t, "127.0.0.1"), Start(t, "::1")
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(issuer.CA))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	ctx := oidc.ClientContext(context.Background(), &http.Client{Transport: transport})

	_, err := oidc.NewProvider(ctx, other.URL)
	require.ErrorContains(t, err, "certificate signed by unknown authority")
	provider, err := oidc.NewProvider(ctx, issuer.URL)
	require.NoError(t, err)
	verifier := provider.VerifierContext(ctx, &oidc.Config{ClientID: ClientID})

	token, err := verifier.Verify(ctx, issuer.Token(t, "alice", map[string]any{"groups": []string{"team"}}))
	require.NoError(t, err)
	var claims struct{ Groups []string }
	require.NoError(t, token.Claims(&claims))
	require.Equal(t, "alice", token.Subject)
	require.Equal(t, []string{"team"}, claims.Groups)

	for name, bad := range map[string]string{
		"of another issuer":   other.Token(t, "alice", map[string]any{"iss": issuer.URL}),
		"for another client":  issuer.Token(t, "alice", map[string]any{"aud": "other"}),
		"that has expired":    issuer.Token(t, "alice", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		"with another issuer": issuer.Token(t, "alice", map[string]any{"iss": other.URL}),
	} {
		_, err := verifier.Verify(ctx, bad)
		require.Error(t, err, "a token %s", name)
	}
}
