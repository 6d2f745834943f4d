package roots

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// settleFor is how long a cluster is ready, and syncs an API, until the status of its leaves counts: what its syncer
// has not written yet is from before.
const settleFor = 30 * time.Second

func settled(c *api.Cluster, now time.Time) bool {
	r := meta.FindStatusCondition(c.Status.Conditions, api.ConditionReady)
	return r != nil && r.Status == metav1.ConditionTrue && now.Sub(r.LastTransitionTime.Time) >= settleFor
}

// serving is the time at which each API began to be served, by cluster. It is zero for APIs that were served when the
// controller first saw the cluster.
type serving map[types.UID]map[schema.GroupResource]time.Time

func (s serving) next(clusters []*api.Cluster, now time.Time) serving {
	out := serving{}
	for _, c := range clusters {
		before, known := s[c.UID]
		all := map[schema.GroupResource]time.Time{}
		for _, a := range c.Status.APIs {
			if !a.State.Serves() {
				continue
			}
			since, served := before[a.GroupResource()]
			if known && !served {
				since = now
			}
			all[a.GroupResource()] = since
		}
		out[c.UID] = all
	}
	return out
}

// recent returns the APIs whose status on a cluster is not current yet, as text.
func (s serving) recent(c *api.Cluster, now time.Time) string {
	out := ""
	for _, a := range c.Status.APIs {
		if since, ok := s[c.UID][a.GroupResource()]; ok && now.Sub(since) < settleFor {
			out += fmt.Sprint(a.GroupResource(), " ")
		}
	}
	return out
}

// current reports whether a cluster syncs an API, and has done so for so long that the status of its leaves is current.
func (s serving) current(c *api.Cluster, gr schema.GroupResource, now time.Time) bool {
	return c.API(gr).State.Serves() && now.Sub(s[c.UID][gr]) >= settleFor
}
