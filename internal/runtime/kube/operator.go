package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/adopt"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/facts"
)

// OpenOperator finds the installations of kcp-operator in the namespace of a cluster. It sends no request.
func OpenOperator(c topology.Cluster, o Options) (*adopt.Installation, error) {
	return adopt.Open(c, o.single())
}

// UsedAtHome returns the Secrets and ConfigMaps that pods on the home cluster use, and that the setup does not make
// itself.
func UsedAtHome(t *topology.Topology, objects []render.Object) ([]adopt.Use, error) {
	var uses []adopt.Use
	home := slices.DeleteFunc(slices.Clone(objects), func(o render.Object) bool {
		return o.Workspace != "" ||
			o.Cluster != t.Home.Name
	})
	err := facts.Referenced(home, func(k kind.Kind, name, user string) {
		uses = append(uses, adopt.Use{Kind: k, Name: name, By: user})
	})
	return uses, err
}

// Belong fails if one of these live objects, which the setup takes over from kcp-operator, belongs to another
// installation than that from which the setup was imported.
func (r *Runtime) Belong(ctx context.Context, live []plan.Item) error {
	origin, err := operator.OriginOf(r.topology)
	if err != nil {
		return err
	}
	members, err := r.operator().Members(ctx, origin)
	if err != nil {
		return err
	}
	var problems []error
	for _, it := range live {
		of, known := operator.MadeFor(it.Live)
		if !known || !members.Only(of, origin.Name) {
			problems = append(problems, fmt.Errorf("%s is that of %s", it.Ref, operator.Describe(of, members[of])))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, "remove it from aliases, or correct spec.takeOver.rootShard",
		"the setup takes over RootShard %s, and nothing else of kcp-operator; nothing was "+
			"changed:\n%w", origin.Name, errors.Join(problems...))
}

// Inherited returns the authorities and the keys of the installation of kcp-operator from which the setup was imported.
func (r *Runtime) Inherited(ctx context.Context) (*pki.State, error) {
	origin, err := operator.OriginOf(r.topology)
	if err != nil {
		return nil, err
	}
	return r.operator().PKI(ctx, origin)
}

// InheritedRelease returns the release of kcp that the servers behind a Service of kcp-operator run. It is empty if
// they do not exist, or if their image does not say.
func (r *Runtime) InheritedRelease(ctx context.Context, service plan.Item) (string, error) {
	cl, err := r.clusters.of(ctx, service.Ref)
	if err != nil {
		return "", err
	}
	return adopt.Tag(ctx, cl, service.Name)
}

// operator returns the installations of kcp-operator in the home namespace.
func (r *Runtime) operator() *adopt.Installation { return adopt.Of(r.clusters.home, r.now) }
