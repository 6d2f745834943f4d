package controller

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// sameSetup fails if the compute workspace is another one than when the controller started, or if kcpctl up has written
// another ID of the setup since: then the controller has to start again. It asks before a Cluster is used for the first
// time, because the controller can start in a compute workspace that was created again before kcpctl up has written the
// ID, and under another ID everything would run twice.
func (c *controller) sameSetup(ctx context.Context) (known bool, _ error) {
	if !c.set.Listed() {
		c.seen.set(c.Now(), nil)
		return false, nil
	}
	unknown := func(o watch.Object) bool { return o.GetAnnotations()[api.AnnotationSetup] == "" }
	if !slices.ContainsFunc(c.set.List(api.ClusterGVR()), unknown) {
		return true, nil
	}
	crd, err := api.CRD()
	if err != nil {
		return false, err
	}
	live, err := c.client.Resource(crds).Get(ctx, crd.GetName(), metav1.GetOptions{})
	if err != nil {
		if c.seen.set(c.Now(), nil); ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot read the ID of the setup, retrying")
		}
		return false, nil
	}
	cluster, setup := live.GetAnnotations()[kcpapi.AnnotationCluster], live.GetAnnotations()[api.AnnotationSetup]
	switch {
	case cluster != c.cluster:
		return false, clierr.New(clierr.Conflict, "start it again",
			"workspace %s was created again: it is the logical cluster %s, and was %s", c.Workspace, cluster, c.cluster)
	case !c.given && setup != "" && setup != c.Setup:
		return false, clierr.New(clierr.Conflict, "start it again",
			"the ID of the setup in physical clusters is %s, and not %s: kcpctl up has recorded it", setup, c.Setup)
	}
	return true, nil
}

// loop handles changes until the context ends.
func (c *controller) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		known, err := c.sameSetup(ctx)
		if err != nil {
			return fmt.Errorf("clusters are not used: %w", err)
		}
		next := c.every(retryInterval)
		if known {
			next = c.pass(ctx)
		}
		if !c.wait(ctx, next) {
			return nil
		}
	}
	return nil
}
