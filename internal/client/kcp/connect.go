package kcp

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// selfValidity is how long the certificates are valid with which kcpctl itself calls kcp.
const selfValidity = time.Hour

// Dialer connects to the port on which a component serves.
type Dialer interface {
	Dial(ctx context.Context, c *topology.Component) (net.Conn, error)
}

// Connect returns a client of a component, as an administrator: system:masters on a shard; front-proxies strip that
// group, so there system:kcp:admin, the strongest that they let pass. It connects with the first request.
func Connect(d Dialer, c *topology.Component, s *pki.State, now time.Time) (*Client, error) {
	if c.Kind == topology.FrontProxy {
		return ConnectAs(d, c, s, now, pki.GroupAdmin)
	}
	return ConnectAs(d, c, s, now, pki.GroupMasters)
}

// ConnectAs returns a client of a component, as a member of groups.
func ConnectAs(d Dialer, c *topology.Component, s *pki.State, now time.Time, groups ...string) (*Client, error) {
	pair, err := pki.Mint(s, pki.MintSpec{
		CN: pki.CNSelf, Orgs: groups, Algorithm: v1alpha1.KeyECDSAP256, Validity: selfValidity,
	}, now)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", c.ID(), err)
	}
	return New(Options{
		URL: c.URLFrom(c.Cluster), CA: s.CAs[topology.ServerCA].Trusted(), Pair: pair,
		Dial: func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, c) },
	}), nil
}
