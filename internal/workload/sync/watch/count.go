package watch

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Usage is the usage of a set by a logical cluster.
type Usage struct {
	// Objects is how many there are, and Bytes about their size as JSON, as far as the set keeps them.
	Objects, Bytes int
}

// counts has what the objects of a set sum up to. It is kept with each change, so that no caller has to go through all
// objects.
type counts struct {
	mu sync.RWMutex
	// classes has the number of objects by resource and class.
	classes map[schema.GroupVersionResource]map[string]int
	// clusters is by logical cluster.
	clusters map[string]*total
}

// total has the counts of a logical cluster.
type total struct {
	Usage
	// classes has the number of objects of all resources by class.
	classes map[string]int
}

func newCounts() *counts {
	return &counts{classes: map[schema.GroupVersionResource]map[string]int{}, clusters: map[string]*total{}}
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
	classes := c.classes[r]
	if classes == nil {
		classes = map[string]int{}
		c.classes[r] = classes
	}
	if classes[h.class] += n; classes[h.class] == 0 {
		delete(classes, h.class)
	}
	t := c.clusters[cluster]
	if t == nil {
		t = &total{classes: map[string]int{}}
		c.clusters[cluster] = t
	}
	if t.classes[h.class] += n; t.classes[h.class] == 0 {
		delete(t.classes, h.class)
	}
	t.Bytes += n * int(h.bytes)
	if t.Objects += n; t.Objects == 0 {
		delete(c.clusters, cluster)
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
	if t := s.counts.clusters[cluster]; t != nil {
		return maps.Clone(t.classes)
	}
	return nil
}

// Usage returns what a logical cluster has in the set. It does not go through the objects.
func (s *Set) Usage(cluster string) Usage {
	s.counts.mu.RLock()
	defer s.counts.mu.RUnlock()
	if t := s.counts.clusters[cluster]; t != nil {
		return t.Usage
	}
	return Usage{}
}
