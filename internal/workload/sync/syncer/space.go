package syncer

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// space is a namespace of a logical cluster.
type space struct{ cluster, namespace string }

// spaceIndex finds the leaves of an event of the physical cluster.
type spaceIndex struct {
	*view

	mu sync.Mutex
	// known are the namespaces of logical clusters, by namespace of the physical cluster.
	known map[string]space
}

// learn remembers for which namespace a namespace of the physical cluster stands. A hash has no way back.
func (s *spaceIndex) learn(leaf watch.Key) {
	at := api.DownstreamNamespace(s.Setup, leaf.Cluster, leaf.Namespace)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.known[at]; !known {
		s.known[at] = space{leaf.Cluster, leaf.Namespace}
	}
}

// spaceOf returns the namespace that a namespace of the physical cluster stands for, if it is known.
func (s *spaceIndex) spaceOf(namespace string) (space, bool) {
	if ns, ok := s.down.Get(namespaces, watch.Key{Name: namespace}); ok {
		return space{ns.GetLabels()[api.LabelWorkspace], ns.GetLabels()[api.LabelNamespace]}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.known[namespace]
	return of, ok
}

// forget forgets the namespaces without leaves. A leaf that comes now is learned afterwards, because the set has it
// before learn is called.
func (s *spaceIndex) forget() {
	apis := s.apis()
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.usedNamespaces(apis)
	maps.DeleteFunc(s.known, func(namespace string, _ space) bool { return !used[namespace] })
}

// leavesIn returns the keys of the leaves that have their objects in a namespace of the physical cluster.
func (s *spaceIndex) leavesIn(r schema.GroupVersionResource, namespace string) []watch.Key {
	var all []watch.Key
	if of, ok := s.spaceOf(namespace); ok {
		for _, leaf := range s.up.In(r, of.cluster, of.namespace) {
			all = append(all, watch.KeyOf(leaf.Unstructured))
		}
	}
	return all
}

// leavesOf returns the keys of the leaves that an object of the physical cluster can stand for: by its annotation, and,
// because a user can have changed that, or because the object is gone, by its namespace and its name.
func (s *spaceIndex) leavesOf(r schema.GroupVersionResource, k watch.Key) []watch.Key {
	var all []watch.Key
	if live, ok := s.down.Get(r, k); ok {
		if leaf, ok := parseLeaf(live.GetAnnotations()[annotationLeaf]); ok {
			all = append(all, leaf)
		}
	}
	of, ok := s.spaceOf(k.Namespace)
	if !ok {
		return all
	}
	leaf := watch.Key{Cluster: of.cluster, Namespace: of.namespace}
	for _, leaf.Name = range []string{k.Name, api.LeafName(k.Name, s.Cluster)} {
		if _, ok := s.up.Get(r, leaf); ok && !slices.Contains(all, leaf) {
			all = append(all, leaf)
		}
	}
	return all
}

// clusters returns the logical clusters of the namespaces that are known.
func (s *spaceIndex) clusters() map[string]bool {
	out := map[string]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.known {
		out[at.cluster] = true
	}
	return out
}
