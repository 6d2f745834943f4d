package record

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// etcdEmbedded is Data.Etcd of a component with an etcd inside.
const etcdEmbedded = "embedded etcd"

// Of reads from a workload, rendered or live, where its component holds data. ok is false for other objects, and for
// components without data. Flags and volumes are what counts: extraArgs and podTemplate can change both.
func Of(setup string, id topology.ID, cluster string, o *unstructured.Unstructured) (d Data, ok bool) {
	pod, replicas, ok := workload(o)
	if !ok || !holdsData(id.Kind()) {
		return d, false
	}
	d = Data{Cluster: cluster, Namespace: o.GetNamespace()}
	if cluster == "" {
		d.Namespace = ""
	}
	if id.Kind() == topology.Etcd {
		d.Members, d.Volume = replicas, volumeOf(pod, flagOf(pod, "data-dir"), o)
		return d, true
	}
	if dir := flagOf(pod, "embedded-etcd-directory"); dir != "" {
		if d.Etcd = etcdEmbedded; cluster != "" { // a process of this machine has a directory, whatever the pod says
			d.Volume = volumeOf(pod, dir, o)
		}
		return d, true
	}
	d.Etcd = etcdOf(setup, id, flagOf(pod, "etcd-servers"), flagOf(pod, "etcd-prefix"))
	return d, true
}

func holdsData(k topology.Kind) bool {
	return k == topology.Etcd || k == topology.CacheServer || k == topology.RootShard || k == topology.Shard
}

func workload(o *unstructured.Unstructured) (pod corev1.PodSpec, replicas int64, ok bool) {
	if o == nil || o.GetKind() != "Deployment" && o.GetKind() != "StatefulSet" {
		return pod, 0, false
	}
	replicas, _, _ = unstructured.NestedInt64(o.Object, "spec", "replicas")
	spec, found, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil || !found || runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod) != nil {
		return pod, replicas, false
	}
	return pod, replicas, true
}

// flagOf is the value of a flag of the first container, ours.
func flagOf(pod corev1.PodSpec, name string) string {
	value := ""
	for _, c := range pod.Containers[:min(1, len(pod.Containers))] {
		for _, a := range slices.Concat(c.Command, c.Args) {
			if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
				value = v
			}
		}
	}
	return value
}

// etcdOf names the etcd that flags lead to.
func etcdOf(setup string, id topology.ID, servers, prefix string) string {
	name := id.Name()
	switch id.Kind() {
	case topology.RootShard:
		name = topology.RootShardName
	case topology.CacheServer:
		name = topology.CacheName
	}
	if u, err := url.Parse(servers); err == nil && prefix == "" {
		if host, _, _ := strings.Cut(u.Hostname(), "."); host == topology.Object(setup, topology.Etcd, name) {
			return "managed " + string(topology.IDOf(topology.Etcd, name))
		}
	}
	endpoints := strings.Split(servers, ",")
	slices.Sort(endpoints)
	out := "external " + strings.Join(endpoints, ",")
	if prefix != "" {
		out += " below " + prefix
	}
	return out
}

// volumeOf names what a directory of a pod is on.
func volumeOf(pod corev1.PodSpec, dir string, o *unstructured.Unstructured) string {
	name, longest := "", 0
	for _, c := range pod.Containers[:min(1, len(pod.Containers))] {
		for _, m := range c.VolumeMounts {
			if at := strings.TrimSuffix(m.MountPath, "/"); (dir == at || strings.HasPrefix(dir, at+"/")) && len(at) >= longest {
				name, longest = m.Name, len(at)
			}
		}
	}
	templates, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	for _, t := range templates {
		m, _ := t.(map[string]any)
		if n, _, _ := unstructured.NestedString(m, "metadata", "name"); n == name && name != "" {
			return fmt.Sprintf("PersistentVolumeClaim %s-%s-*", name, o.GetName())
		}
	}
	for _, v := range pod.Volumes {
		switch {
		case v.Name != name:
		case v.PersistentVolumeClaim != nil:
			return "PersistentVolumeClaim " + v.PersistentVolumeClaim.ClaimName
		case v.EmptyDir != nil:
			return "emptyDir"
		case v.HostPath != nil:
			return "hostPath " + v.HostPath.Path
		default:
			return "volume " + name
		}
	}
	return "directory " + dir
}
