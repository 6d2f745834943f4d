package watch

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// counts has what the objects of a set sum up to. It is kept with each change, so that no caller has to go through all
// objects.
type counts struct {
	mu sync.RWMutex
	// classes has the number of objects by resource and class.
	classes map[schema.GroupVersionResource]map[string]int
	// clusters has the number of objects of all resources by logical cluster and class.
	clusters map[string]map[string]int
}

func newCounts() *counts {
	return &counts{classes: map[schema.GroupVersionResource]map[string]int{}, clusters: map[string]map[string]int{}}
}

// replace counts an object in the place of another one. Either may not exist.
func (c *counts) replace(r schema.GroupVersionResource, k Key, was, is held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was.exists() {
		c.add(r, k.Cluster, was, -1)
	}
	if is.exists() {
		c.add(r, k.Cluster, is, 1)
	}
}

// all counts all objects of a store n times.
func (c *counts) all(r schema.GroupVersionResource, objects store, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	objects.each(func(k Key, h held) { c.add(r, k.Cluster, h, n) })
}

// add counts an object n times. The counts are locked.
func (c *counts) add(r schema.GroupVersionResource, cluster string, h held, n int) {
	addTo(c.classes, r, h.class, n)
	addTo(c.clusters, cluster, h.class, n)
}

// addTo adds to the count of a class.
func addTo[K comparable](counts map[K]map[string]int, k K, class string, n int) {
	if counts[k] == nil {
		counts[k] = map[string]int{}
	}
	if counts[k][class] += n; counts[k][class] == 0 {
		delete(counts[k], class)
	}
	if len(counts[k]) == 0 {
		delete(counts, k)
	}
}

// Classes returns the number of objects of a resource by class (see Options.Class). It does not go through the objects.
func (s *Set) Classes(r schema.GroupVersionResource) map[string]int {
	s.counts.mu.RLock()
	defer s.counts.mu.RUnlock()
	return maps.Clone(s.counts.classes[r])
}

// ClassCount returns the number of objects of a resource that are of a class. It does not go through the objects.
func (s *Set) ClassCount(r schema.GroupVersionResource, class string) int {
	s.counts.mu.RLock()
	defer s.counts.mu.RUnlock()
	return s.counts.classes[r][class]
}

// ClassesIn returns the number of objects of all resources in a logical cluster by class. It does not go through the
// objects.
func (s *Set) ClassesIn(cluster string) map[string]int {
	s.counts.mu.RLock()
	defer s.counts.mu.RUnlock()
	return maps.Clone(s.counts.clusters[cluster])
}
