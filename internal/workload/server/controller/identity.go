package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// A physical cluster is its UID. The status of its Cluster has it from when it was seen first, and another cluster is
// not used then: a kubeconfig or a syncer of a cluster that replaces it would create everything there, although the
// first one may still run it.

// uid returns the UID of the physical cluster that is reached, or nothing if it was not read yet. A syncer reports the
// UID of its cluster. It cannot claim another cluster that it does not know, because UIDs are random.
func (c *controller) uid(cluster string) types.UID {
	if m := c.members[cluster]; m != nil {
		_, uid, _ := m.state()
		return uid
	}
	if r := c.reports[cluster]; r != nil {
		return r.uid
	}
	return ""
}

// identity returns the UID of the physical cluster that a Cluster is, or nothing if it was never read.
func (c *controller) identity(cl *api.Cluster) types.UID {
	if cl.Status.UID != "" {
		return cl.Status.UID
	}
	return c.uid(cl.Name)
}

// sameAs returns the name of another Cluster that is the same physical cluster and works: the one whose status has the
// UID, or else the older one.
func (c *controller) sameAs(cl *api.Cluster, clusters []*api.Cluster) string {
	uid, older := c.identity(cl), true
	if uid == "" {
		return ""
	}
	for _, other := range clusters {
		if other.Name == cl.Name {
			older = false
			continue
		}
		first := older
		if recorded := other.Status.UID != ""; recorded != (cl.Status.UID != "") {
			first = recorded
		}
		if first && c.identity(other) == uid {
			return other.Name
		}
	}
	return ""
}

// replaced returns why a cluster is not used that is another one than was added. It is empty if it is the same one, or
// if that is not known.
func (c *controller) replaced(cl *api.Cluster, clusters []*api.Cluster) string {
	live, was := c.uid(cl.Name), cl.Status.UID
	if live == "" || was == "" || live == was {
		return ""
	}
	for _, other := range clusters {
		if other.Name != cl.Name && other.Status.UID == live {
			return fmt.Sprintf(
				"it was the physical cluster with the UID %s, and what answers now is that of Cluster %s: correct "+
					"its kubeconfig, or its syncer", was, other.Name)
		}
	}
	return fmt.Sprintf("it was the physical cluster with the UID %s, and another one with the UID %s answers now: "+
		"kcpctl cluster remove %s --force, and add it again", was, live, cl.Name)
}

// isTheOne reports whether the physical cluster of a Cluster is the one that it should be, as far as that is known.
func (c *controller) isTheOne(cl *api.Cluster, clusters []*api.Cluster) bool {
	return c.sameAs(cl, clusters) == "" && c.replaced(cl, clusters) == ""
}

// confirm lets the syncer of a cluster in push mode work if the cluster is the one that it should be, and stops it if
// it no longer is.
func (c *controller) confirm(ctx context.Context, cl *api.Cluster, clusters []*api.Cluster) {
	m := c.members[cl.Name]
	switch {
	case m == nil:
	case c.uid(cl.Name) != "" && c.uid(cl.Name) == cl.Status.UID && c.isTheOne(cl, clusters):
		m.clear()
	case m.works():
		c.stopMember(cl.Name)
		if cfg, version, err := c.connect(cl); err == nil {
			c.members[cl.Name] = c.startMember(ctx, cl, cfg, version) // it looks at the cluster again
		}
	}
}

// identify sets the UID in the status if there is none.
func (c *controller) identify(d *draft, clusters []*api.Cluster) {
	live := c.uid(d.Name)
	if live == "" || d.Status.UID != "" || c.sameAs(d.Cluster, clusters) != "" {
		return
	}
	for _, other := range clusters {
		if other.Name != d.Name && other.Status.UID == live {
			return
		}
	}
	d.next.UID = live
	d.changed = true
}
