package kube

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
)

// Storage returns the UIDs of the clusters and of the volume claims of components. Pods use claims by name, so labels
// do not matter: a restored claim may lack them. It refuses clusters that do not belong to the setup, as a plan does:
// they explain why volumes are missing.
func (i *installation) Storage(
	ctx context.Context, data map[topology.ID]record.Data,
) (map[topology.ID]record.Storage, error) {
	if err := i.clusters.connect(ctx); err != nil {
		return nil, err
	}
	inv, err := i.inventories.Read(ctx, i.clusters.home)
	if err != nil {
		return nil, err
	}
	if _, err := i.verify(ctx, inv); err != nil {
		return nil, err
	}
	out := map[topology.ID]record.Storage{}
	var mu sync.Mutex
	err = i.clusters.each(ctx, func(ctx context.Context, cl *cluster.Client) error {
		volumes, err := volumesOn(ctx, cl, data)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for id, d := range data {
			if isAt(cl, d) {
				at := volumes[id]
				at.ClusterUID = string(cl.UID)
				out[id] = at
			}
		}
		return nil
	})
	return out, err
}

// Unused returns the volume claims with the labels of the setup that no component uses.
func (i *installation) Unused(
	ctx context.Context, data map[topology.ID]record.Data,
) (map[topology.ID][]record.Data, error) {
	out := map[topology.ID][]record.Data{}
	var mu sync.Mutex
	err := i.clusters.each(ctx, func(ctx context.Context, cl *cluster.Client) error {
		claims, err := cl.List(ctx, kind.PersistentVolumeClaim, selector(i.topology))
		if err != nil {
			return err
		}
		here := map[topology.ID]map[string]string{}
		for n := range claims {
			c := &claims[n]
			id := topology.IDFromLabels(c.GetLabels())
			if d := data[id]; isAt(cl, d) && d.Uses(c.GetName()) {
				continue
			}
			if here[id] == nil {
				here[id] = map[string]string{}
			}
			here[id][c.GetName()] = string(c.GetUID())
		}
		mu.Lock()
		defer mu.Unlock()
		for id, volumes := range here {
			out[id] = append(out[id], record.Data{
				Cluster: cl.Name, Namespace: cl.Namespace, ClusterUID: string(cl.UID), Volumes: volumes,
			})
		}
		return nil
	})
	for _, places := range out {
		slices.SortFunc(places, func(a, b record.Data) int { return cmp.Compare(a.Cluster, b.Cluster) })
	}
	return out, err
}

// isAt reports whether data is on a cluster and in the namespace there.
func isAt(cl *cluster.Client, d record.Data) bool {
	return d.Cluster == cl.Name && d.Namespace == cl.Namespace
}

// volumesOn returns the claims of components on a cluster.
func volumesOn(
	ctx context.Context, cl *cluster.Client, data map[topology.ID]record.Data,
) (map[topology.ID]record.Storage, error) {
	out := map[topology.ID]record.Storage{}
	users := map[string]topology.ID{} // by the name of a claim, or the prefix of names
	for id, d := range data {
		if name, prefix := d.Claim(); isAt(cl, d) && name+prefix != "" {
			users[name+prefix] = id
		}
	}
	if len(users) == 0 {
		return out, nil
	}
	claims, err := cl.List(ctx, kind.PersistentVolumeClaim, "")
	if err != nil {
		return nil, err
	}
	for n := range claims {
		c := &claims[n]
		id, ok := users[c.GetName()]
		if !ok {
			id, ok = users[memberPrefix(c.GetName())]
		}
		if !ok || !data[id].Uses(c.GetName()) {
			continue
		}
		at := out[id]
		if at.Volumes == nil {
			at.Volumes = map[string]string{}
		}
		at.Volumes[c.GetName()] = string(c.GetUID())
		if c.GetDeletionTimestamp() != nil {
			at.Deleting = append(at.Deleting, c.GetName())
		}
		out[id] = at
	}
	return out, nil
}

// Keep writes only the record of the installation.
func (w *inventoryWriter) Keep(ctx context.Context, rec *record.Record) error {
	if err := w.clusters.home.Connect(ctx); err != nil {
		return err
	}
	return w.inventories.Update(ctx, w.clusters.home, func(inv *inventory.Inventory) {
		w.installation.setOwner(w.clusters.home, inv, rec)
	})
}

// memberPrefix is the name of the claim of a member without its number.
func memberPrefix(claim string) string { return claim[:strings.LastIndex(claim, "-")+1] }
