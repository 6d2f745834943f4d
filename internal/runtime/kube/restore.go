package kube

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/etcd/transfer"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/facts"
)

// restorer places restored data in the volumes of components.
type restorer struct {
	topology     *topology.Topology
	clusters     *clusters
	installation *installation
	applier      *applier
	members      *etcdMembers
	pods         *restorerPods
}

// PrepareRestore creates the namespaces that do not exist.
func (r *restorer) PrepareRestore(ctx context.Context) error {
	return r.clusters.each(ctx, func(ctx context.Context, cl *cluster.Client) error {
		ns, err := cl.ReadNamespace(ctx)
		if err != nil || ns != nil {
			return err
		}
		o, err := render.Namespace(r.topology, cl.Cluster)
		if err != nil {
			return err
		}
		return r.applier.Apply(ctx, []plan.Item{{
			Ref: o.Ref(), Component: o.Component, Action: plan.Create, Want: o.Unstructured,
		}}, run.PlanOptions{})
	})
}

// WasHere reports whether data was certainly in one of the setup's namespaces.
func (r *restorer) WasHere(ctx context.Context, d record.Data) (bool, error) {
	if err := r.clusters.connect(ctx); err != nil {
		return false, err
	}
	return slices.ContainsFunc(r.clusters.current, func(cl *cluster.Client) bool {
		return cl.UID != "" && d.ClusterUID == string(cl.UID) && d.Namespace == cl.Namespace
	}), nil
}

// Placeable refuses components whose data cannot be replaced: because it is not in volumes that kcpctl creates, or
// because the user or the cluster does not allow it.
func (r *restorer) Placeable(ctx context.Context, all []*topology.Component) error {
	if err := r.clusters.connect(ctx); err != nil {
		return err
	}
	home, err := r.installation.inventories.Read(ctx, r.clusters.home)
	if err != nil {
		return err
	}
	if _, err := r.installation.verify(ctx, home); err != nil {
		return err
	}
	var errs []error
	asked := map[*cluster.Client]bool{}
	for _, c := range all {
		v, err := r.volumesOf(c)
		if err != nil {
			errs = append(errs, err)
		}
		if v == nil || len(v.Claims) == 0 {
			continue
		}
		cl, err := r.clusters.ofComponent(ctx, v.Component)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !asked[cl] {
			asked[cl] = true
			errs = append(errs, facts.MayRestore(ctx, cl))
		}
		errs = append(errs, r.pods.admitted(ctx, cl, v))
	}
	return errors.Join(errs...)
}

// volumesOf returns the volumes of a component. It is nil for a component whose data needs no restore, and that has no
// volumes. It refuses shards without volumes that kcpctl creates.
func (r *restorer) volumesOf(c *topology.Component) (*render.Volumes, error) {
	s := c.Storage
	if s == nil || s.Etcd == "" && !s.Embedded {
		if !c.IsShard() {
			return nil, nil
		}
		return nil, clierr.New(clierr.Failed,
			"ask the owner of the etcd to restore the snapshot in the backup, with etcdutl snapshot restore; or "+
				"choose other shards with --shard",
			"%s stores its data in an external etcd, %s, which kcpctl does not replace", c.ID(),
			strings.Join(s.Servers, ","))
	}
	owner := c
	if s.Etcd != "" {
		owner = r.topology.Component(s.Etcd)
	}
	v, err := render.VolumesOf(r.topology, owner)
	if err == nil && len(v.Claims) == 0 && c.IsShard() {
		err = clierr.New(clierr.Failed,
			"give its etcd a PersistentVolumeClaim in the setup file, or choose other shards with --shard",
			"%s has no volume to restore its data to: %s has it on %s", c.ID(), owner.ID(), v.Data.Volume)
	}
	return v, err
}

// open returns the volumes of a component, and their cluster.
func (r *restorer) open(ctx context.Context, c *topology.Component) (*render.Volumes, *cluster.Client, error) {
	v, err := r.volumesOf(c)
	if v == nil || err != nil {
		return nil, nil, err
	}
	cl, err := r.clusters.ofComponent(ctx, v.Component)
	return v, cl, err
}

// PlaceData makes a database the data of a component: in the volumes of all members of its etcd, or in its own volume.
func (r *restorer) PlaceData(
	ctx context.Context, c *topology.Component, data run.Restored,
) (out run.Placed, err error) {
	v, cl, err := r.open(ctx, c)
	if err != nil {
		return out, err
	}
	if v.Component.Kind == topology.Etcd { // what an interrupted replacement of a member has left
		if err := r.members.SetMemberStart(ctx, v.Component, nil); err != nil {
			return out, err
		}
	}
	for _, claim := range v.Claims {
		if err := r.ensureClaim(ctx, cl, v, claim, data.Report); err != nil {
			return out, err
		}
	}
	out.Aside, err = r.inPods(ctx, cl, v, v.Claims, data,
		func(ctx context.Context, to *transfer.Client, report transfer.Progress) (string, error) {
			return to.Place(ctx, data.File, data.Suffix, report)
		})
	if err != nil {
		return out, err
	}
	out.Data, err = r.recorded(ctx, c, v, cl)
	return out, err
}

// SetAside moves the data of a component aside, in all its volumes that exist.
func (r *restorer) SetAside(
	ctx context.Context, c *topology.Component, data run.Restored,
) (out run.Placed, err error) {
	v, cl, err := r.open(ctx, c)
	if v == nil || err != nil {
		return out, err
	}
	var exist []*unstructured.Unstructured
	for _, claim := range v.Claims {
		live, err := cl.Get(ctx, kind.PersistentVolumeClaim, claim.GetName())
		if err != nil {
			return out, err
		}
		if live != nil {
			exist = append(exist, live)
		}
	}
	if len(exist) == 0 {
		return out, nil
	}
	out.Aside, err = r.inPods(ctx, cl, v, exist, data,
		func(ctx context.Context, to *transfer.Client, _ transfer.Progress) (string, error) {
			return to.SetAside(ctx, data.Suffix)
		})
	if err != nil {
		return out, err
	}
	out.Data, err = r.recorded(ctx, c, v, cl)
	return out, err
}

// inPods calls do with a client of each pod that has one of some volumes. It returns where previous data is.
func (r *restorer) inPods(
	ctx context.Context, cl *cluster.Client, v *render.Volumes, claims []*unstructured.Unstructured, data run.Restored,
	do func(context.Context, *transfer.Client, transfer.Progress) (string, error),
) ([]string, error) {
	all := make([]*volume, len(claims))
	for i, claim := range claims {
		all[i] = &volume{
			client: transfer.Client{Volume: claimRef(claim)}, do: do,
			restorer: render.Restorer{Volumes: v, Image: r.pods.image, Claim: claim.GetName(),
				Command: []string{transfer.Command, "--" + transfer.FlagDirectory + "=" + v.Directory}},
		}
	}
	if err := r.pods.run(ctx, cl, all, newProgress(data, len(all))); err != nil {
		return nil, err
	}
	var aside []string
	for _, at := range all {
		if at.aside != "" {
			aside = append(aside, path.Base(at.aside)+" on "+at.client.Volume)
		}
	}
	return aside, nil
}

// claimRef names a claim in messages.
func claimRef(claim *unstructured.Unstructured) string {
	return fmt.Sprintf("PersistentVolumeClaim/%s/%s", claim.GetNamespace(), claim.GetName())
}

// ensureClaim creates a claim that does not exist. It waits until one that is being deleted is gone.
func (r *restorer) ensureClaim(ctx context.Context, cl *cluster.Client, v *render.Volumes,
	claim *unstructured.Unstructured, report func(string),
) error {
	live, err := cl.Get(ctx, kind.PersistentVolumeClaim, claim.GetName())
	if err != nil || live != nil && live.GetDeletionTimestamp() == nil {
		return err
	}
	if live != nil {
		report("waiting for " + claimRef(claim) + " to be gone: it is being deleted")
		ctx, cancel := limited(ctx)
		defer cancel()
		if err := cl.WaitGone(ctx, kind.PersistentVolumeClaim, live); err != nil {
			return err
		}
	}
	if v.Component.Kind != topology.Etcd { // the setup applies it
		_, err := cl.Apply(ctx, claim, object.ApplyOptions{})
		return cl.Explain(err, "apply %s", claimRef(claim))
	}
	_, err = cl.For(kind.PersistentVolumeClaim).Create(ctx, claim,
		metav1.CreateOptions{FieldManager: object.FieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return cl.Explain(err, "create %s", claimRef(claim))
}

// recorded describes for the record where a component and its etcd hold their data.
func (r *restorer) recorded(
	ctx context.Context, c *topology.Component, v *render.Volumes, cl *cluster.Client,
) (map[topology.ID]record.Data, error) {
	id := v.Component.ID()
	found, err := volumesOn(ctx, cl, map[topology.ID]record.Data{id: v.Data})
	if err != nil {
		return nil, err
	}
	at := found[id]
	at.ClusterUID = string(cl.UID)
	out := map[topology.ID]record.Data{id: v.Data.On(at)}
	if c == v.Component {
		return out, nil
	}
	server, err := render.VolumesOf(r.topology, c)
	if err != nil {
		return nil, err
	}
	on, err := r.clusters.ofComponent(ctx, c)
	if err != nil {
		return nil, err
	}
	out[c.ID()] = server.Data.On(record.Storage{ClusterUID: string(on.UID)})
	return out, nil
}
