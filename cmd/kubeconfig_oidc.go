package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// loginUser is the name of the user in a kubeconfig with which all users of an issuer log in.
const loginUser = "oidc"

func (o *kubeconfigOptions) runLogin(ctx context.Context, s *session) error {
	target, login, err := o.login(s)
	if err != nil {
		return err
	}
	connect := s.connectStore
	if o.portForward {
		connect = s.connect
	}
	if err := connect(ctx); err != nil {
		return err
	}
	defer s.close()
	state, err := s.loadPKI(ctx)
	if err != nil {
		return err
	}
	access := s.topology.Access(v1alpha1.Kubeconfig{
		User: loginUser, Workspace: cmp.Or(o.workspace, topology.RootShardName),
		Target: v1alpha1.Target{FrontProxy: target.Name},
	})
	if from := login.CAFrom; from != nil {
		o.env.note(fmt.Sprintf("the kubeconfig does not have the CA of %s, which is in %s: users need "+
			"it in their system's",
			login.IssuerURL, cmp.Or(from.Secret, from.ConfigMap)))
	}
	return o.deliver(ctx, s, s.owner(state), kubeconfig.ForLogin(access, state.CAs[topology.ServerCA].Trusted(), login))
}

func acceptsLogins(c *topology.Component) bool {
	return c.Authentication != nil && len(c.Authentication.Logins()) > 0
}

// login returns the front-proxy of the kubeconfig, and the issuer whose tokens it accepts.
func (o *kubeconfigOptions) login(s *session) (*topology.Component, topology.Login, error) {
	proxies := s.topology.FrontProxies()
	i := slices.IndexFunc(proxies, acceptsLogins)
	if i < 0 {
		return nil, topology.Login{}, clierr.New(clierr.BadInput,
			"set spec.authentication.oidc, or oidc of a front-proxy",
			"no front-proxy of %s accepts tokens of an OpenID Connect issuer", s.file.Name)
	}
	target, err := o.findTarget(s, proxies[i])
	switch {
	case err != nil:
		return nil, topology.Login{}, err
	case target.Kind != topology.FrontProxy || !acceptsLogins(target):
		return nil, topology.Login{}, clierr.New(clierr.BadInput, oneOf(loginIDs(s)),
			"%s does not accept tokens of an OpenID Connect issuer", target.ID())
	}
	var known []string
	for _, l := range target.Authentication.Logins() {
		if o.issuer == "" || strings.TrimSuffix(o.issuer, "/") == strings.TrimSuffix(l.IssuerURL, "/") {
			return target, l, nil
		}
		known = append(known, l.IssuerURL)
	}
	return nil, topology.Login{}, unknownName("issuer", o.issuer, known)
}
