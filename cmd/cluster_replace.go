package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// replaceFlags are the flags of cluster add that describe a new cluster. A cluster that is replaced is in the setup
// file.
func replaceFlags() []string {
	return []string{"context", "kubeconfig", "server", "mode", "label", "accept-schema"}
}

// completeNames completes the names of clusters for --replace. A new cluster has a new name.
func (o *clusterAddOptions) completeNames(c *cobra.Command, args []string,
	typed string) ([]string, cobra.ShellCompDirective) {
	if !o.replaces {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeArgs(1, o.setup.names(o.env, physicalNames))(c, args, typed)
}

// replace accepts the physical cluster of the setup file for a Cluster that was another one.
func (o *clusterAddOptions) replace(ctx context.Context) error {
	if err := checkDryRun(o.edit.dryRun); err != nil {
		return err
	}
	s, c, err := openCompute(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	return o.accepts(ctx, s, c, func(ctx context.Context, w v1alpha1.WorkloadCluster) (string, error) {
		at := topology.Cluster{Name: w.Name}
		at.Context, at.Kubeconfig = topology.ConnectionOf(s.file.Setup.Spec.Clusters, w)
		client, err := s.openPhysical(at, w.Server)
		if err != nil {
			return "", err
		}
		return client.Identity(ctx)
	})
}

// identity returns the UID of a physical cluster.
type identity func(context.Context, v1alpha1.WorkloadCluster) (string, error)

// accepts compares the physical cluster with the one that the Cluster was, asks, and records the answer for the
// controller.
func (o *clusterAddOptions) accepts(ctx context.Context, s *session, c *compute, identify identity) error {
	live, all, err := o.registered(ctx, s, c)
	if err != nil {
		return err
	}
	uid, err := identify(ctx, physicalClusters(s)[slices.Index(physicalNames(s), o.name)])
	switch {
	case err != nil:
		return clierr.New(clierr.Failed, "correct the context and the kubeconfig of the cluster in "+s.file.Name,
			"cluster %q: which cluster it is: %w", o.name, err)
	case uid == "":
		return clierr.New(clierr.Failed, "let the user of its kubeconfig get the namespace kube-system",
			"cluster %q: which cluster it is, is not known", o.name)
	}
	if done, err := o.nothingToReplace(live, all, types.UID(uid)); done || err != nil {
		return err
	}
	if o.edit.dryRun != dryRunNone {
		fmt.Fprintf(o.env.Streams.Err, "cluster %q would be replaced: the physical cluster %s instead of %s.\n", o.name,
			uid, live.Status.UID)
		return nil
	}
	if !o.yes {
		yes, err := o.env.Streams.Confirm(ctx, replaceQuestion(live, uid))
		if err != nil || !yes {
			return err
		}
	}
	patch := map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{api.AnnotationAcceptCluster: uid}, "resourceVersion": live.ResourceVersion,
		"uid": string(live.UID),
	}}
	if err := c.patch(ctx, o.name, patch); err != nil {
		return err
	}
	fmt.Fprintf(o.env.Streams.Err,
		"cluster %q may be the physical cluster %s instead of %s. Create the account of its syncer there:\n  %s\n",
		o.name, uid, live.Status.UID, o.setup.command("up"))
	return nil
}

// registered returns the Cluster, which must be in the setup file as well, and all Clusters.
func (o *clusterAddOptions) registered(ctx context.Context, s *session,
	c *compute) (*api.Cluster, []*api.Cluster, error) {
	all, err := c.clusters(ctx)
	if err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(all, func(cl *api.Cluster) bool { return cl.Name == o.name })
	switch {
	case at < 0:
		return nil, nil, c.unknownCluster(ctx, s.flags, physicalNames(s), o.name)
	case !slices.Contains(physicalNames(s), o.name):
		return nil, nil, clierr.New(clierr.BadInput,
			"set the annotation "+api.AnnotationAcceptCluster+" of its Cluster in workspace "+
				c.workspace+" with kubectl",
			"cluster %q is not in %s, so kcpctl does not manage it", o.name, s.file.Name)
	}
	return all[at], all, nil
}

// nothingToReplace reports whether a Cluster is a physical cluster already, and refuses one that another Cluster is.
func (o *clusterAddOptions) nothingToReplace(live *api.Cluster, all []*api.Cluster, uid types.UID) (bool, error) {
	for _, other := range all {
		if other.Name != o.name && other.Status.UID == uid {
			return false, clierr.New(clierr.Conflict,
				"correct the context of cluster "+o.name+" in the setup file, or remove cluster "+other.Name,
				"cluster %q is the physical cluster %s, which Cluster %s is already", o.name, uid, other.Name)
		}
	}
	switch live.Status.UID {
	case "":
		fmt.Fprintf(o.env.Streams.Err,
			"nothing to replace: the controller has not seen cluster %q yet, and takes the one that answers.\n", o.name)
	case uid:
		fmt.Fprintf(o.env.Streams.Err, "nothing to replace: cluster %q is the physical cluster %s.\n", o.name, uid)
	default:
		return false, nil
	}
	return true, nil
}

// replaceQuestion says what happens to the objects that are scheduled to a Cluster.
func replaceQuestion(live *api.Cluster, uid string) string {
	scheduled := "What is scheduled to it"
	if n := live.Status.Leaves; n != nil {
		scheduled = fmt.Sprintf("The %s scheduled to it", plural(int(*n), "object", "objects"))
	}
	return fmt.Sprintf("Replace the physical cluster of Cluster %q, %s, by %s? %s will be created in the new one, "+
		"without the data of volumes. What runs in the previous cluster stays there, and is not updated any more.",
		live.Name, live.Status.UID, uid, scheduled)
}
