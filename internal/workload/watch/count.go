package watch

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Usage is what a logical cluster has in a set.
type Usage struct {
	// Objects is how many there are, and Bytes about their size as JSON, as far as the set keeps them.
	Objects, Bytes int
}

// counts has what the objects of a set sum up to. It is kept with each change, so that nobody has to go through all objects.
type counts struct {
	mu sync.RWMutex
	// classes has the number of objects by resource and class.
	classes map[schema.GroupVersionResource]map[string]int
	// usage is by logical cluster.
	usage map[string]Usage
}

func newCounts() *counts {
	return &counts{classes: map[schema.GroupVersionResource]map[string]int{}, usage: map[string]Usage{}}
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
	u := c.usage[cluster]
	u.Objects += n
	u.Bytes += n * int(h.bytes)
	if c.usage[cluster] = u; u.Objects == 0 {
		delete(c.usage, cluster)
	}
}

// Classes returns the number of objects of a resource by class (see Options.Class). It does not go through the objects.
func (s *Set) Classes(r schema.GroupVersionResource) map[string]int {
	s.counts.mu.RLock()
	defer s.counts.mu.RUnlock()
	return maps.Clone(s.counts.classes[r])
}

// Usage returns what a logical cluster has in the set. It does not go through the objects.
func (s *Set) Usage(cluster string) Usage {
	s.counts.mu.RLock()
	defer s.counts.mu.RUnlock()
	return s.counts.usage[cluster]
}
