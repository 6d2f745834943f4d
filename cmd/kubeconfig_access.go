package cmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func (o *kubeconfigOptions) newAccess(s *session) (topology.Access, error) {
	k := v1alpha1.Kubeconfig{
		Name: o.user, User: o.user, Groups: o.groups, Workspace: cmp.Or(o.workspace, topology.RootShardName),
		ClusterRoles: o.clusterRoles, Validity: metav1.Duration{Duration: o.expiresIn},
	}
	if len(o.clusterRoles) > 0 {
		k.Groups = append(slices.Clone(k.Groups), mintedGroup(o.user))
	}
	target, err := o.mintingTarget(s)
	switch {
	case err != nil:
		return topology.Access{}, err
	case target.IsShard():
		k.Target.Shard = target.ShardName()
	default:
		k.Target.FrontProxy = target.Name
	}
	return s.topology.Access(k), nil
}

// notePath says when a shard does not find the workspace of a kubeconfig: it only knows its own workspaces.
func (o *kubeconfigOptions) notePath(a topology.Access) {
	if a.Target.Kind() == topology.FrontProxy || !strings.Contains(a.Workspace, ":") {
		return
	}
	o.env.note(fmt.Sprintf("%s finds %s only if it holds this workspace and all workspaces above it; otherwise "+
		"use the ID of its logical cluster as --workspace (spec.cluster of the Workspace)", a.Target, a.Workspace))
}

func (o *kubeconfigOptions) mintingTarget(s *session) (*topology.Component, error) {
	target, err := o.findTarget(s, s.topology.OwnFrontProxy())
	if err == nil && !target.AcceptsClientCertificates() {
		err = clierr.New(clierr.BadInput,
			"choose another --target, or print a kubeconfig for users of its OpenID Connect issuer with --oidc",
			"%s refuses client certificates (authentication.clientCertificates)", target.ID())
	}
	return target, err
}

// findTarget returns the front-proxy or shard that --target names, or the default.
func (o *kubeconfigOptions) findTarget(s *session, byDefault *topology.Component) (*topology.Component, error) {
	if o.target == "" {
		return byDefault, nil
	}
	for _, c := range s.topology.OfKind(topology.FrontProxy, topology.RootShard, topology.Shard) {
		if o.target == string(c.ID()) ||
			c.IsShard() && o.target == string(topology.IDOf(topology.Shard, c.ShardName())) {
			return c, nil
		}
	}
	return nil, unknownName("target", o.target, targetIDs(s))
}

// syncerAccess returns the access that the kubeconfig gives to a syncer that the user starts: to the objects that are
// scheduled to its cluster. The PKI has the user, which handOver adds.
func (o *kubeconfigOptions) syncerAccess(s *session) (topology.Access, error) {
	c := s.topology.Component(topology.IDOf(topology.Physical, o.syncer))
	switch {
	case c == nil:
		return topology.Access{}, unknownName("cluster", o.syncer, manualClusters(s))
	case c.Physical.SyncMode != v1alpha1.SyncModeNone:
		return topology.Access{}, clierr.New(clierr.BadInput, "omit --syncer, or set syncMode of the cluster to None",
			"the syncMode of cluster %q is %s: its syncer has its own credentials", o.syncer, c.Physical.SyncMode)
	}
	if !o.lasts {
		o.expiresIn = s.file.Setup.Spec.PKI.CertificateValidity.Duration // a syncer runs on when the command has ended
	}
	proxy, err := o.mintingTarget(s)
	switch {
	case err != nil:
		return topology.Access{}, err
	case proxy.Kind != topology.FrontProxy:
		return topology.Access{}, clierr.New(clierr.BadInput, "choose a front-proxy",
			"--target %s: a syncer needs all shards", o.target)
	}
	return s.topology.Access(v1alpha1.Kubeconfig{
		Name: o.syncer, Workspace: c.ComputeWorkspace(),
		Target:   v1alpha1.Target{FrontProxy: proxy.Name},
		Validity: metav1.Duration{Duration: o.expiresIn},
	}), nil
}

// manualClusters are the names of the physical clusters whose syncers users start.
func manualClusters(s *session) []string {
	return slices.DeleteFunc(physicalNames(s), func(name string) bool {
		return s.topology.Component(topology.IDOf(topology.Physical, name)).Physical.SyncMode != v1alpha1.SyncModeNone
	})
}
