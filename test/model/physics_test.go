package model_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// store is the data of an etcd cluster. Its identity is the pointer, not the name.
type store struct {
	number int
	// ephemeral stores end with their pods, as their users expect.
	ephemeral bool
	// shards are the registered shards, in the store of a root shard.
	shards map[string]*registration
	// gone means that no volume or process has the store any more.
	gone bool
}

func (s *store) String() string {
	if s == nil {
		return "no store"
	}
	return fmt.Sprintf("store %d", s.number)
}

// registration is a Shard object.
type registration struct {
	url      string
	cordoned bool
}

// volume is the content of a PersistentVolumeClaim: a member of an etcd cluster, and the number of members.
type volume struct {
	store   *store
	members int
}

// process is the running part of a workload: an etcd, or a kcp server.
type process struct {
	place   key // of the workload
	cluster *cluster
	id      topology.ID
	owner   *installation
	// uid and shape change when its pods are replaced.
	uid         types.UID
	shape, seen string
	from        *source
	// store is the store to which it writes, or nil.
	store *store
	// registered means that it has registered at the root shard.
	registered bool
	encryption encryption
}

// workspace is data of users in kcp. It also stands for the root workspace, and for the content of a cache server.
type workspace struct {
	name  string
	owner *installation
	of    topology.ID // the shard
	store *store
	// sealed is the name of the key that has encrypted its Secret, or empty.
	sealed string
}

// ownerOf returns the component that has its data in a managed etcd.
func ownerOf(id topology.ID) topology.ID {
	switch {
	case id.Kind() != topology.Etcd:
		return id
	case id.Name() == topology.RootShardName:
		return topology.ID(topology.RootShard)
	case id.Name() == topology.CacheName:
		return topology.ID(topology.CacheServer)
	}
	return topology.IDOf(topology.Shard, id.Name())
}

func replicasOf(o *unstructured.Unstructured) int64 {
	n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		return 1
	}
	return n
}

func podOf(o *unstructured.Unstructured) corev1.PodSpec {
	var pod corev1.PodSpec
	spec, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod); err != nil {
		panic(err)
	}
	return pod
}

func argOf(pod corev1.PodSpec, name string) string {
	for _, a := range pod.Containers[0].Args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}

// claimOf returns the name of the claim of a pod of a StatefulSet, or nothing.
func claimOf(o *unstructured.Unstructured, pod int64) string {
	templates, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	if len(templates) == 0 {
		return ""
	}
	name, _, _ := unstructured.NestedString(templates[0].(map[string]any), "metadata", "name")
	return fmt.Sprintf("%s-%s-%d", name, o.GetName(), pod)
}

// source is the etcd of a kcp server.
type source struct {
	embedded bool
	claim    string // of an embedded etcd; empty means an emptyDir
	servers  string
	prefix   string
}

func sourceOf(o *unstructured.Unstructured) source {
	pod := podOf(o)
	dir := argOf(pod, "embedded-etcd-directory")
	if dir == "" {
		return source{servers: argOf(pod, "etcd-servers"), prefix: argOf(pod, "etcd-prefix")}
	}
	out := source{embedded: true}
	for _, m := range pod.Containers[0].VolumeMounts {
		for _, v := range pod.Volumes {
			if strings.HasPrefix(dir, m.MountPath) && v.Name == m.Name && v.PersistentVolumeClaim != nil {
				out.claim = v.PersistentVolumeClaim.ClaimName
			}
		}
	}
	return out
}

func (w *world) newStore(ephemeral bool) *store {
	w.stores++
	return &store{number: w.stores, ephemeral: ephemeral, shards: map[string]*registration{}}
}

// settle simulates the reactions of controllers, etcds and servers to changed objects.
func (w *world) settle() {
	for _, c := range w.clusters {
		w.settleEtcds(c)
	}
	for _, c := range w.clusters {
		w.settleServers(c)
	}
	for _, p := range w.sortedServers() {
		w.register(p)
	}
	for _, p := range w.sortedServers() {
		w.checkData(p)
		w.checkReadable(p)
	}
}

// alive drops processes without a workload, and returns the process of a workload. fresh means that its pods are new.
func (w *world) alive(all map[key]*process, c *cluster, k key, o *unstructured.Unstructured) (p *process, fresh bool) {
	at := key{c.name + " " + k.resource, k.namespace, k.name}
	p = all[at]
	if p != nil && p.seen == o.GetResourceVersion() {
		return p, false
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	shape := jsonOf(spec)
	if p != nil && p.uid == o.GetUID() && p.shape == shape {
		p.seen = o.GetResourceVersion()
		return p, false
	}
	next := &process{seen: o.GetResourceVersion(), place: k, cluster: c, id: topology.IDFromLabels(o.GetLabels()), uid: o.GetUID(), shape: shape}
	next.owner = w.owners[place{c.name, k.namespace}]
	all[at] = next
	return next, true
}

func drop(all map[key]*process, c *cluster) {
	for at, p := range all {
		if p.cluster == c && c.objects[p.place] == nil {
			delete(all, at)
		}
	}
}

func (w *world) settleEtcds(c *cluster) {
	drop(w.etcds, c)
	for _, k := range c.sorted(statefulSets, "") {
		o := c.objects[k]
		p, fresh := w.alive(w.etcds, c, k, o)
		if !fresh {
			continue
		}
		n := replicasOf(o)
		if claimOf(o, 0) == "" {
			p.store = w.newStore(true)
			continue
		}
		var volumes []*volume
		var with []*volume
		for i := range n {
			v := w.claim(c, k.namespace, claimOf(o, i), o)
			volumes = append(volumes, v)
			if v.store != nil {
				with = append(with, v)
			}
		}
		switch {
		case len(with) == 0:
			p.store = w.newStore(false)
			for _, v := range volumes {
				v.store, v.members = p.store, int(n)
			}
		case slices.ContainsFunc(with, func(v *volume) bool { return v.store != with[0].store || v.members != int(n) }):
			// Members with data stay in their cluster, empty ones form another. Clients reach one of the two.
			w.violate("split brain: %s has %d members, and its volumes are those of a cluster of %d", p.id, n, with[0].members)
			p.store = w.newStore(false)
		default:
			p.store = with[0].store
		}
	}
}

// claim returns the content of a claim, and creates it if it does not exist.
func (w *world) claim(c *cluster, namespace, name string, of *unstructured.Unstructured) *volume {
	k := key{claims, namespace, name}
	o := c.objects[k]
	if o == nil {
		o = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim"}}
		o.SetName(name)
		match, _, _ := unstructured.NestedStringMap(of.Object, "spec", "selector", "matchLabels")
		o.SetLabels(match)
		w.stamp(k, o, nil)
		o.SetResourceVersion(w.next())
		c.objects[k] = o
	}
	if w.volumes[o.GetUID()] == nil {
		w.volumes[o.GetUID()] = &volume{}
	}
	return w.volumes[o.GetUID()]
}

func (w *world) settleServers(c *cluster) {
	drop(w.servers, c)
	for _, k := range c.sorted(deployments, "") {
		o := c.objects[k]
		id := topology.IDFromLabels(o.GetLabels())
		if kind := id.Kind(); kind != topology.RootShard && kind != topology.Shard && kind != topology.CacheServer {
			continue
		}
		p, fresh := w.alive(w.servers, c, k, o)
		if fresh {
			from := sourceOf(o)
			p.from = &from
			p.encryption = encryptionOf(c, k.namespace, o)
		}
		switch from := *p.from; {
		case from.embedded && from.claim == "":
			if fresh {
				p.store = w.newStore(true)
			}
		case from.embedded:
			at := key{claims, k.namespace, from.claim}
			if c.objects[at] == nil {
				p.store = nil // its pod is pending
				continue
			}
			v := w.claim(c, k.namespace, from.claim, o)
			if v.store == nil {
				v.store = w.newStore(false)
			}
			p.store = v.store
		default:
			p.store = w.reached(c, k, from)
		}
	}
}

// reached returns the store that a server reaches in an etcd outside its pod.
func (w *world) reached(c *cluster, k key, from source) *store {
	if u, err := url.Parse(from.servers); err == nil && from.prefix == "" {
		name, _, _ := strings.Cut(u.Hostname(), ".")
		if e := w.etcds[key{c.name + " " + statefulSets, k.namespace, name}]; e != nil {
			return e.store
		}
		return nil
	}
	at := from.servers + " " + from.prefix
	if w.external[at] == nil {
		w.external[at] = w.newStore(false)
	}
	return w.external[at]
}

func (w *world) sortedServers() []*process {
	var out []*process
	for _, p := range w.servers {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *process) int {
		return strings.Compare(a.cluster.name+a.place.String(), b.cluster.name+b.place.String())
	})
	return out
}

// root returns the process of the root shard of an installation.
func (w *world) root(i *installation) *process {
	for _, p := range w.sortedServers() {
		if p.owner == i && p.id.Kind() == topology.RootShard && p.store != nil {
			return p
		}
	}
	return nil
}

// register registers a started shard at the root shard, and creates the data besides workspaces that can be lost.
func (w *world) register(p *process) {
	if p.store == nil {
		return
	}
	if p.id.Kind() != topology.Shard && len(w.of(p.owner, p.id)) == 0 {
		w.spaces = append(w.spaces, &workspace{name: "content of " + string(p.id), owner: p.owner, of: p.id, store: p.store,
			sealed: p.encryption.key})
	}
	root := w.root(p.owner)
	if p.registered || root == nil || p.id.Kind() == topology.CacheServer {
		return
	}
	p.registered = true
	pod := podOf(p.cluster.objects[p.place])
	name := argOf(pod, "shard-name")
	if root.store.shards[name] == nil {
		root.store.shards[name] = &registration{}
	}
	root.store.shards[name].url = argOf(pod, "shard-base-url")
}

// of returns the workspaces of a shard.
func (w *world) of(i *installation, id topology.ID) []*workspace {
	return slices.DeleteFunc(slices.Clone(w.spaces), func(s *workspace) bool { return s.owner != i || s.of != id })
}

// checkData reports workspaces that a server has lost.
func (w *world) checkData(p *process) {
	if p.store == nil {
		return
	}
	for _, s := range w.of(p.owner, p.id) {
		elsewhere := slices.ContainsFunc(w.sortedServers(), func(q *process) bool {
			return q.owner == p.owner && q.id == p.id && q.store == s.store
		})
		switch {
		case s.store == p.store:
		case elsewhere: // the component was moved, and this is its previous place
		case s.store.ephemeral, p.owner.leaving[p.id], w.actor != nil && w.actor.mayLose(p.id):
			w.forget(s)
		default:
			w.violate("%s runs on %s, and %s is in %s", p.id, p.store, s.name, s.store)
		}
	}
}

func (w *world) forget(s *workspace) {
	w.spaces = slices.DeleteFunc(w.spaces, func(o *workspace) bool { return o == s })
}

// holding returns the workspaces in a store.
func (w *world) holding(s *store) []*workspace {
	return slices.DeleteFunc(slices.Clone(w.spaces), func(o *workspace) bool { return o.store != s || s == nil })
}

// emptied deletes the pods of a server, and with them an emptyDir.
func (w *world) emptied(p *process) {
	p.shape, p.seen = "", ""
	w.settle()
}

// reachable reports the workspaces of an installation that no server serves.
func (w *world) unreachable(i *installation) []string {
	var out []string
	for _, s := range w.spaces {
		served := slices.ContainsFunc(w.sortedServers(), func(p *process) bool {
			return p.owner == i && p.id == s.of && p.store == s.store
		})
		if s.owner == i && !served {
			out = append(out, fmt.Sprintf("%s of %s in %s", s.name, s.of, s.store))
		}
	}
	return out
}
