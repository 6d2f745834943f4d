package controller

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// A physical cluster is its UID. kcpctl up gives it to a new Cluster, and the status of the Cluster has it from when it
// was seen first. Another cluster is not used then: a kubeconfig or a syncer of a cluster that replaces it, or that an
// earlier Cluster of the name was for, would create everything there, although the first one may still run it.

// identities are the Clusters of a pass, and the physical clusters that they are.
type identities struct {
	clusters []*api.Cluster
	// uid returns the UID of the physical cluster that is reached, or nothing if it was not read yet.
	uid func(cluster string) types.UID
}

// uid returns the UID of the physical cluster that is reached, or nothing if it was not read yet. A syncer reports the
// UID of its cluster. It cannot claim another cluster that it does not know, because UIDs are random.
func (c *controller) uid(cluster string) types.UID { return c.reports.record(cluster).uid }

// of returns the UID of the physical cluster that a Cluster is, or nothing if it was never read.
func (i identities) of(cl *api.Cluster) types.UID {
	return cmp.Or(cl.PhysicalUID(), i.uid(cl.Name))
}

// sameAs returns the name of another Cluster that is the same physical cluster and works: the one whose status has the
// UID, or else the older one.
func (i identities) sameAs(cl *api.Cluster) string {
	uid, older := i.of(cl), true
	if uid == "" {
		return ""
	}
	for _, other := range i.clusters {
		if other.Name == cl.Name {
			older = false
			continue
		}
		first := older
		if recorded := other.Status.UID != ""; recorded != (cl.Status.UID != "") {
			first = recorded
		}
		if first && i.of(other) == uid {
			return other.Name
		}
	}
	return ""
}

// recorded returns the name of another Cluster whose status has a UID. It is empty if there is none.
func (i identities) recorded(uid types.UID, but *api.Cluster) string {
	for _, other := range i.clusters {
		if other.Name != but.Name && other.Status.UID == uid {
			return other.Name
		}
	}
	return ""
}

// replaced returns why a cluster is not used that is another one than was added. It is empty if it is the same one, or
// if that is not known.
func (i identities) replaced(cl *api.Cluster) string {
	live, was := i.uid(cl.Name), cl.PhysicalUID()
	if live == "" || was == "" || live == was {
		return ""
	}
	if cl.Status.UID == "" {
		return fmt.Sprintf("it was registered for the physical cluster with the UID %s, and another one with the "+
			"UID %s answers: stop the syncer that runs there, or correct its kubeconfig", was, live)
	}
	if other := i.recorded(live, cl); other != "" {
		return fmt.Sprintf("it was the physical cluster with the UID %s, and what answers now is that of Cluster %s: "+
			"correct its kubeconfig, or its syncer", was, other)
	}
	return fmt.Sprintf("it was the physical cluster with the UID %s, and another one with the UID %s answers now: "+
		"kcpctl cluster remove %s --force, and add it again", was, live, cl.Name)
}

// isTheOne reports whether the physical cluster of a Cluster is the one that it should be, as far as that is known.
func (i identities) isTheOne(cl *api.Cluster) bool { return i.sameAs(cl) == "" && i.replaced(cl) == "" }

// lacks reports whether the status of a Cluster lacks the UID of the physical cluster that is reached, and no other
// Cluster is that one.
func (i identities) lacks(cl *api.Cluster) bool {
	live := i.uid(cl.Name)
	return live != "" && cl.Status.UID == "" && i.isTheOne(cl) && i.recorded(live, cl) == ""
}

func (c *controller) record(ctx context.Context, d *draft, ids identities) {
	if !ids.lacks(d.Cluster) {
		return
	}
	current, err := c.members.isCurrent(ctx, d.Cluster, ids.uid(d.Name))
	if err != nil {
		d.problem = err
		return
	}
	if current {
		d.next.UID = ids.uid(d.Name)
	}
}
