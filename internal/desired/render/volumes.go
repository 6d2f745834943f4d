package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Volumes are the persistent volumes of a component, and how its pods use them.
type Volumes struct {
	// Component is the etcd, or the server with an embedded etcd.
	Component *topology.Component
	// Workload is its workload. Its certificates, and the checksum of its files, are missing.
	Workload *unstructured.Unstructured
	// Claims are the PersistentVolumeClaims as they are created: by kcpctl up, or by the controller of the workload for
	// each member. There are none if the data is lost with the pods.
	Claims []*unstructured.Unstructured
	// Data describes the data for the record.
	Data record.Data
	// Directory is the directory of the data in the pods, on Mount.
	Directory string
	Mount     corev1.VolumeMount
}

// VolumesOf renders the volumes of a component. They need no PKI.
func VolumesOf(t *topology.Topology, c *topology.Component) (*Volumes, error) {
	r, err := newRenderer(t, &pki.State{})
	if err != nil {
		return nil, err
	}
	r.only = hasVolumes
	rendered, err := r.component(c)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", c.ID(), err)
	}
	v := &Volumes{Component: c}
	for _, o := range rendered {
		d, ok := record.Of(t.Name, c.ID(), o.Cluster, o.Unstructured)
		if ok {
			v.Workload = o.Unstructured
			v.Data = d
			v.Data.Release = record.ReleaseOf(c, o.Unstructured)
			v.Directory, v.Mount, _ = record.Mounted(c.ID(), o.Unstructured)
		}
	}
	if v.Workload == nil {
		return nil, fmt.Errorf("render %s: it has no workload with data", c.ID())
	}
	claim, prefix := v.Data.Claim()
	if prefix != "" {
		v.Claims, err = memberClaims(c, v.Workload)
	}
	for _, o := range rendered {
		if o.GetKind() == "PersistentVolumeClaim" && o.GetName() == claim {
			v.Claims = append(v.Claims, o.Unstructured)
		}
	}
	return v, err
}

// hasVolumes reports whether a template has a volume, or a pod that mounts it.
func hasVolumes(template string) bool {
	return slices.Contains([]string{claimTemplate, deploymentTemplate, statefulSetTemplate}, template)
}

// memberClaims returns the claims that the controller of a StatefulSet creates (kubernetes:
// pkg/controller/statefulset/stateful_set_utils.go, getPersistentVolumeClaims).
func memberClaims(c *topology.Component, set *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	match, _, err := unstructured.NestedStringMap(set.Object, "spec", "selector", "matchLabels")
	if err != nil {
		return nil, err
	}
	templates, _, err := unstructured.NestedSlice(set.Object, "spec", "volumeClaimTemplates")
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, template := range templates {
		fields, ok := template.(map[string]any)
		if !ok {
			continue
		}
		of := unstructured.Unstructured{Object: fields}
		if of.GetName() != volumeData {
			continue
		}
		for i := range c.Replicas {
			claim := of.DeepCopy()
			unstructured.RemoveNestedField(claim.Object, "status")
			claim.SetName(MemberClaim(c.Member(i)))
			claim.SetNamespace(set.GetNamespace())
			labels := maps.Clone(claim.GetLabels())
			if labels == nil {
				labels = map[string]string{}
			}
			maps.Copy(labels, match)
			claim.SetLabels(labels)
			out = append(out, claim)
		}
	}
	return out, nil
}

// Restorer is a pod of kcpctl that has a volume of a component, and runs on the nodes and as the user that the pods of
// the component run on and as. It has their labels, so that their affinities apply to it: it decides where a new volume
// is. It is never ready, so that no Service sends requests to it.
type Restorer struct {
	Volumes *Volumes
	// Image is the image of kcpctl.
	Image v1alpha1.Image
	// Claim is the name of one of the claims.
	Claim string
	// Command is the command of kcpctl that runs, with its arguments.
	Command []string
}

// readinessGate is a condition that no controller sets.
const readinessGate = v1alpha1.Group + "/never"

// Name returns the name of the pod.
func (r Restorer) Name() string { return r.Claim + "-" + topology.PurposeRestore }

// Pod returns the pod.
func (r Restorer) Pod() (*corev1.Pod, error) {
	spec, _, err := unstructured.NestedMap(r.Volumes.Workload.Object, "spec", "template")
	if err != nil {
		return nil, err
	}
	var from corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &from); err != nil {
		return nil, err
	}
	own := r.Volumes.Component.Kind.ContainerOf(&from.Spec)
	if own == nil {
		return nil, fmt.Errorf("the template for pod %s has no container of kcpctl", r.Name())
	}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: r.Name(), Namespace: r.Volumes.Workload.GetNamespace(),
			Labels: maps.Clone(from.Labels), Annotations: maps.Clone(from.Annotations)},
		Spec: from.Spec,
	}
	pod.Labels[topology.LabelPurpose] = topology.PurposeRestore
	delete(pod.Annotations, topology.AnnotationChecksum)
	s := &pod.Spec
	s.RestartPolicy = corev1.RestartPolicyNever
	s.TerminationGracePeriodSeconds = new(int64(restorerGraceSeconds))
	s.HostNetwork = false // the port is on the loopback interface, and nothing else shares it
	s.AutomountServiceAccountToken = new(false)
	s.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: readinessGate}}
	s.InitContainers = nil
	s.Containers = []corev1.Container{r.container(*own)}
	s.Volumes = []corev1.Volume{{Name: r.Volumes.Mount.Name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: r.Claim},
	}}}
	for _, name := range r.Image.PullSecrets {
		if secret := (corev1.LocalObjectReference{Name: name}); !slices.Contains(s.ImagePullSecrets, secret) {
			s.ImagePullSecrets = append(s.ImagePullSecrets, secret)
		}
	}
	return pod, nil
}

// restorerGraceSeconds is how long the pod may take to end. What it has not finished is done again.
const restorerGraceSeconds = 5

// container returns the container, with the settings that it shares with the container of the component.
func (r Restorer) container(of corev1.Container) corev1.Container {
	return corev1.Container{
		Name: topology.ContainerKcpctl, Image: topology.KcpctlRef(r.Image),
		ImagePullPolicy: cmp.Or(r.Image.PullPolicy, corev1.PullIfNotPresent),
		Command:         append([]string{"/" + topology.ManagedBy}, r.Command...),
		Env: slices.DeleteFunc(slices.Clone(of.Env),
			func(e corev1.EnvVar) bool { return !strings.HasSuffix(strings.ToUpper(e.Name), "_PROXY") }),
		SecurityContext: of.SecurityContext, Resources: of.Resources,
		VolumeMounts: []corev1.VolumeMount{r.Volumes.Mount},
	}
}
