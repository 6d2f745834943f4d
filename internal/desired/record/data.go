package record

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// EtcdEmbedded is Data.Etcd of a component with an embedded etcd.
const EtcdEmbedded = "embedded etcd"

// Of reads from a workload, rendered or live, where its component holds data. ok is false for other objects, and for
// components without data. It reads flags and volumes, because extraArgs and podTemplate can change both.
func Of(setup string, id topology.ID, cluster string, o *unstructured.Unstructured) (d Data, ok bool) {
	p, replicas, ok := workload(id.Kind(), o)
	if !ok || !id.Kind().HoldsData() {
		return d, false
	}
	d = Data{Cluster: cluster, Namespace: o.GetNamespace()}
	if cluster == "" {
		d.Namespace = ""
	}
	dir := flagOf(p, directoryFlag(id))
	if id.Kind() == topology.Etcd {
		d.Members, d.Volume = replicas, volumeOf(p, dir, o)
		return d, true
	}
	if dir != "" {
		d.Etcd = EtcdEmbedded
		if cluster == "" { // the data is in a directory, and the volume of the pod is not used
			d.Directory = dir
			return d, true
		}
		d.Volume = volumeOf(p, dir, o)
		return d, true
	}
	d.Etcd = etcdOf(setup, id, flagOf(p, "etcd-servers"), flagOf(p, "etcd-prefix"))
	return d, true
}

// directoryFlag is the flag with the directory of the data of a component.
func directoryFlag(id topology.ID) string {
	if id.Kind() == topology.Etcd {
		return "data-dir"
	}
	return "embedded-etcd-directory"
}

// Mounted returns the directory in which the pods of a workload hold the data of its component, and the mount that the
// directory is on. ok is false if there is none.
func Mounted(id topology.ID, o *unstructured.Unstructured) (dir string, mount corev1.VolumeMount, ok bool) {
	p, _, ok := workload(id.Kind(), o)
	if !ok || !id.Kind().HoldsData() {
		return "", mount, false
	}
	dir = flagOf(p, directoryFlag(id))
	mount = mountOf(p, dir)
	return dir, mount, mount.Name != ""
}

// pod is the pod of a workload, and the container in it that kcpctl renders.
type pod struct {
	corev1.PodSpec
	own *corev1.Container
}

// workload returns the pod of a workload of a kind of components. ok is false for other objects, and for a pod without
// the container.
func workload(k topology.Kind, o *unstructured.Unstructured) (p pod, replicas int64, ok bool) {
	if o == nil || o.GetKind() != "Deployment" && o.GetKind() != "StatefulSet" {
		return p, 0, false
	}
	replicas, _, _ = unstructured.NestedInt64(o.Object, "spec", "replicas")
	spec, found, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil || !found || runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &p.PodSpec) != nil {
		return p, replicas, false
	}
	p.own = k.ContainerOf(&p.PodSpec)
	return p, replicas, p.own != nil
}

// Container returns the container that kcpctl renders for a workload of a kind of components, or nil.
func Container(k topology.Kind, o *unstructured.Unstructured) *corev1.Container {
	p, _, _ := workload(k, o)
	return p.own
}

// FlagOf returns the value of a flag of the container that kcpctl renders for a workload of a kind of components; ""
// for other objects.
func FlagOf(k topology.Kind, o *unstructured.Unstructured, name string) string {
	p, _, ok := workload(k, o)
	if !ok {
		return ""
	}
	return flagOf(p, name)
}

func flagOf(p pod, name string) string {
	value := ""
	for _, a := range slices.Concat(p.own.Command, p.own.Args) {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			value = v
		}
	}
	return value
}

// etcdOf describes the etcd that flags refer to.
func etcdOf(setup string, id topology.ID, servers, prefix string) string {
	if u, err := url.Parse(servers); err == nil && prefix == "" {
		host, _, _ := strings.Cut(u.Hostname(), ".")
		if etcd := id.EtcdID(); host == topology.Object(setup, etcd.Kind(), etcd.Name()) {
			return "managed " + string(etcd)
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

// mountOf returns the mount that a directory of a pod is on. It has no name if there is none.
func mountOf(p pod, dir string) (out corev1.VolumeMount) {
	longest := 0
	for _, m := range p.own.VolumeMounts {
		at := strings.TrimSuffix(m.MountPath, "/")
		if (dir == at || strings.HasPrefix(dir, at+"/")) && len(at) >= longest {
			out, longest = m, len(at)
		}
	}
	return out
}

// volumeOf describes the volume that a directory of a pod is on.
func volumeOf(p pod, dir string, o *unstructured.Unstructured) string {
	name := mountOf(p, dir).Name
	templates, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	for _, t := range templates {
		m, _ := t.(map[string]any)
		if n, _, _ := unstructured.NestedString(m, "metadata", "name"); n == name && name != "" {
			return fmt.Sprintf(claimPrefix+"%s-%s-*", name, o.GetName())
		}
	}
	for _, v := range p.Volumes {
		switch {
		case v.Name != name:
		case v.PersistentVolumeClaim != nil:
			return claimPrefix + v.PersistentVolumeClaim.ClaimName
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
