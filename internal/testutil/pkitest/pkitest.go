// Package pkitest issues certificates for tests.
package pkitest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Issue returns a new PKI for a topology, with certificates that are valid from a time on.
func Issue(t testing.TB, top *topology.Topology, at time.Time) *pki.State {
	t.Helper()
	res, err := pki.Ensure(top, &pki.State{}, pki.Options{Now: at})
	require.NoError(t, err)
	return res.State
}
