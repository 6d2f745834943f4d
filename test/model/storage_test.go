package model_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// What happens to storage behind the back of kcpctl. The workspaces on lost volumes stay known: no command may bring
// their shards up without them, unless its flags allow that.

// build makes a cluster new and empty, at its address. Its UID begins with another number each time.
func (w *world) build(c *cluster) {
	c.objects, c.gone = map[key]*unstructured.Unstructured{}, map[types.UID]time.Time{}
	w.builds++
	c.uid = types.UID(fmt.Sprintf("%08d-%s", w.builds, c.name))
	system := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	system.SetName("kube-system")
	system.SetUID(c.uid)
	system.SetResourceVersion("1")
	c.objects[key{namespaces, "", "kube-system"}] = system
}

// rebuild replaces a cluster by an empty one at the same address.
func (w *world) rebuild(c *cluster) {
	w.build(c)
	w.swept()
}

// deleteNamespace deletes a namespace with everything in it, also its volumes.
func (w *world) deleteNamespace(c *cluster, name string) {
	for k := range c.objects {
		if k.namespace == name || k == (key{namespaces, "", name}) {
			delete(c.objects, k)
		}
	}
	w.swept()
}

// deleteClaim deletes a claim. While pods use it, it waits.
func (w *world) deleteClaim(c *cluster, k key) {
	w.condemn(c, c.objects[k], time.Now())
	w.pass(c)
	w.swept()
}

// swept forgets volumes without a claim and owners of places in which nothing is left, and lets the world react.
func (w *world) swept() {
	w.actor = nil
	maps.DeleteFunc(w.owners, func(at place, _ *installation) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Keys(w.cluster(at.cluster).objects)), func(k key) bool { return k.namespace == at.namespace })
	})
	exists := map[types.UID]bool{}
	for _, c := range w.clusters {
		for _, k := range c.sorted(claims, "") {
			exists[c.objects[k].GetUID()] = true
		}
	}
	for uid := range w.volumes {
		if !exists[uid] {
			delete(w.volumes, uid)
		}
	}
	w.settle()
}

// rebuildCluster rebuilds a cluster other than those of root shards.
func (g *game) rebuildCluster(*operator) {
	c := g.cluster(g.anyCluster())
	if g.isHome(c) {
		return
	}
	g.logf("cluster %s is created again", c.name)
	g.clean.who = nil
	g.rebuild(c)
}

// loseNamespace deletes a namespace by hand, other than those of root shards.
func (g *game) loseNamespace(*operator) {
	c := g.cluster(g.anyCluster())
	if g.isHome(c) {
		return
	}
	g.logf("namespace kcp of %s is deleted", c.name)
	g.clean.who = nil
	g.deleteNamespace(c, "kcp")
}

// loseClaim deletes a volume by hand.
func (g *game) loseClaim(*operator) {
	c := g.cluster(g.anyCluster())
	all := slices.DeleteFunc(c.sorted(claims, ""), func(k key) bool { return c.objects[k].GetDeletionTimestamp() != nil })
	if len(all) == 0 {
		return
	}
	k := all[0]
	g.logf("%s of %s is deleted", k, c.name)
	g.clean.who = nil
	g.deleteClaim(c, k)
}

func (g *game) isHome(c *cluster) bool {
	for home := range g.installations {
		if home.cluster == c.name {
			return true
		}
	}
	return false
}

// acceptLoss are flags that accept what has happened to storage.
func (g *game) acceptLoss() []string {
	out := []string{"--allow=other-cluster"}
	for _, id := range []topology.ID{"root-shard", "cache-server", "shard/alpha", "shard/beta"} {
		out = append(out, "--allow=data-change="+string(id), "--allow=data-change="+etcdID(string(id)))
	}
	return out
}
