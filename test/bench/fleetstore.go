package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// fleetKey identifies an object of a simulated kcp. The resource is as in a path: apis/apps/v1/deployments.
type fleetKey struct{ resource, workspace, namespace, name string }

// fleetObject is an object, as JSON.
type fleetObject struct {
	raw     []byte
	version int64
	// leaf is the cluster that it is a leaf of. created is when a root was created whose latency is measured, and crowd
	// who created it.
	leaf, crowd string
	created     time.Time
}

// fleetEvent is a change.
type fleetEvent struct {
	kind, workspace string
	raw             []byte
	version         int64
}

// anyWorkspace is all workspaces, but not the compute workspace, which does not bind the APIs.
const anyWorkspace = "*"

func isIn(workspace, selected string) bool {
	return workspace == selected || selected == anyWorkspace && workspace != fleetCompute
}

// fleetWatch is a watch of a resource in a workspace, or in all.
type fleetWatch struct {
	in     string
	mu     sync.Mutex
	events []fleetEvent
	wake   chan struct{}
}

func (w *fleetWatch) send(e fleetEvent) {
	if !isIn(e.workspace, w.in) {
		return
	}
	w.mu.Lock()
	w.events = append(w.events, e)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *fleetWatch) take() []fleetEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.events
	w.events = nil
	return out
}

// historyLimit is how many changes of a resource are kept for watches that start later.
const historyLimit = 200_000

// fleetStore has the objects of a simulated kcp: just enough of one that a scheduler cannot tell the difference.
type fleetStore struct {
	mu      sync.Mutex
	version int64
	objects map[string]map[fleetKey]*fleetObject
	watches map[string]map[*fleetWatch]bool
	history map[string][]fleetEvent
	lists   map[string][]fleetKey
	// leaves, deployments and others are how many objects there are in workspaces: leaves, Deployments, and all others
	// but APIBindings.
	leaves, deployments, others int
	// leafChanged is called with leaves that have changed.
	leafChanged func(cluster string, k fleetKey)
	// written is called with what was created or changed, by resource.
	written map[string]func(k fleetKey, created bool)
}

func newFleetStore() *fleetStore {
	return &fleetStore{
		objects: map[string]map[fleetKey]*fleetObject{}, watches: map[string]map[*fleetWatch]bool{},
		history: map[string][]fleetEvent{}, lists: map[string][]fleetKey{},
	}
}

// get returns an object as JSON, or nil.
func (s *fleetStore) get(k fleetKey) *fleetObject {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[k.resource][k]
}

// change creates or changes an object. The function changes what is decoded; create permits that there is none. It
// returns the object as JSON, or nil if there is none.
func (s *fleetStore) change(k fleetKey, create bool, crowd string, f func(o map[string]any)) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.objects[k.resource][k]
	if was == nil && !create {
		return nil, nil
	}
	o := map[string]any{}
	var spec []byte
	if was != nil {
		if err := json.Unmarshal(was.raw, &o); err != nil {
			return nil, err
		}
		spec, _ = json.Marshal(o["spec"])
	}
	f(o)
	meta := within(o, "metadata")
	if was == nil {
		s.identify(k, o, meta)
	}
	if next, _ := json.Marshal(o["spec"]); was != nil && !bytes.Equal(spec, next) {
		n, _ := meta["generation"].(float64)
		meta["generation"] = n + 1
	}
	raw, err := json.Marshal(o)
	if err != nil || was != nil && bytes.Equal(raw, was.raw) {
		return raw, err
	}
	s.version++
	meta["resourceVersion"] = strconv.FormatInt(s.version, 10)
	if raw, err = json.Marshal(o); err != nil {
		return nil, err
	}
	finalizers, _ := meta["finalizers"].([]any)
	if meta["deletionTimestamp"] != nil && len(finalizers) == 0 {
		delete(s.objects[k.resource], k)
		s.count(k, was.leaf, -1)
		s.notify(k, "DELETED", raw)
		return raw, nil
	}
	labels, _ := meta["labels"].(map[string]any)
	leaf, _ := labels[api.LabelCluster].(string)
	next := &fleetObject{raw: raw, version: s.version, leaf: leaf, crowd: crowd}
	kind := "MODIFIED"
	if was == nil {
		kind = "ADDED"
		s.count(k, leaf, 1)
		if crowd != "" {
			next.created = time.Now()
		}
	} else {
		next.created, next.crowd = was.created, was.crowd
	}
	if s.objects[k.resource] == nil {
		s.objects[k.resource] = map[fleetKey]*fleetObject{}
	}
	s.objects[k.resource][k] = next
	s.notify(k, kind, raw)
	if leaf != "" {
		s.leafChanged(leaf, k)
	}
	if on := s.written[k.resource]; on != nil {
		on(k, was == nil)
	}
	return raw, nil
}

// count counts an object n times. The store is locked.
func (s *fleetStore) count(k fleetKey, leaf string, n int) {
	switch {
	case k.resource == fleetBindings || k.workspace == fleetCompute:
	case leaf != "":
		s.leaves += n
	case k.resource == fleetDeployments:
		s.deployments += n
	default:
		s.others += n
	}
}

// identify gives a new object what an API server does. The store is locked.
func (s *fleetStore) identify(k fleetKey, o, meta map[string]any) {
	meta["name"], meta["uid"], meta["generation"] = k.name, fmt.Sprintf("%08x-7b6e-4c1d-9f27-%012x", s.version, s.version*7919), 1.0
	meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	if k.namespace != "" {
		meta["namespace"] = k.namespace
	}
	annotations := within(meta, "annotations")
	annotations["kcp.io/cluster"] = k.workspace
	o["metadata"] = meta
}

// remove deletes an object, or marks it for deletion if it has finalizers. It reports whether it existed.
func (s *fleetStore) remove(k fleetKey) (bool, error) {
	raw, err := s.change(k, false, "", func(o map[string]any) {
		if meta := within(o, "metadata"); meta["deletionTimestamp"] == nil {
			meta["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		}
	})
	return raw != nil, err
}

// notify tells the watches. The store is locked.
func (s *fleetStore) notify(k fleetKey, kind string, raw []byte) {
	e := fleetEvent{kind, k.workspace, raw, s.version}
	h := append(s.history[k.resource], e)
	if len(h) > 2*historyLimit {
		h = slices.Clone(h[historyLimit:])
	}
	s.history[k.resource] = h
	for w := range s.watches[k.resource] {
		w.send(e)
	}
}

// watch starts a watch after a version, or returns nil if what has changed since is not known.
func (s *fleetStore) watch(resource, workspace string, since int64) *fleetWatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.history[resource]
	if len(h) >= historyLimit && h[0].version > since+1 {
		return nil
	}
	w := &fleetWatch{in: workspace, wake: make(chan struct{}, 1)}
	from, _ := slices.BinarySearchFunc(h, since+1, func(e fleetEvent, v int64) int { return int(e.version - v) })
	for _, e := range h[from:] {
		w.send(e)
	}
	if s.watches[resource] == nil {
		s.watches[resource] = map[*fleetWatch]bool{}
	}
	s.watches[resource][w] = true
	return w
}

// watched reports whether a resource is watched in all workspaces. The store is locked.
func (s *fleetStore) watched(resource string) bool {
	for w := range s.watches[resource] {
		if w.in == anyWorkspace {
			return true
		}
	}
	return false
}

func (s *fleetStore) unwatch(resource string, w *fleetWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches[resource], w)
}

// list returns a page of the objects of a resource.
func (s *fleetStore) list(resource, workspace string, limit int, token string) (raws [][]byte, next string, version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, ok := s.lists[token]
	if delete(s.lists, token); !ok {
		keys = slices.DeleteFunc(slices.Collect(maps.Keys(s.objects[resource])), func(k fleetKey) bool { return !isIn(k.workspace, workspace) })
	}
	n := len(keys)
	if limit > 0 && limit < n {
		n = limit
		next = fmt.Sprint(resource, "-", s.version, "-", len(keys))
		s.lists[next] = keys[n:]
	}
	for _, k := range keys[:n] {
		if o := s.objects[resource][k]; o != nil {
			raws = append(raws, o.raw)
		}
	}
	return raws, next, s.version
}

// within returns a map in a map, which it makes if there is none.
func within(o map[string]any, name string) map[string]any {
	m, ok := o[name].(map[string]any)
	if !ok {
		m = map[string]any{}
		o[name] = m
	}
	return m
}
