package facts

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
)

// A probe is a front-proxy of kcp that never serves. Its authentication configuration has an OpenID Connect issuer for
// each address, and a front-proxy asks all issuers for their keys as soon as it starts. It logs each failure with the
// address and the error of Go's network library (kcp: pkg/proxy/options/authentication.go; kubernetes:
// plugin/pkg/authenticator/token/oidc). So it resolves names, connects and verifies certificates where components do,
// in the same way. Only its servers are certain to be in an image of kcp, and other images may not be available. A
// probe of the kubelet with a host would start on the node, with the node's DNS and without the NetworkPolicies of
// pods.
const (
	// maxIssuers is how many issuers an authentication configuration may have (kubernetes:
	// pkg/apis/apiserver/validation).
	maxIssuers = 64
	// probeDeadline ends a probe whose run was interrupted.
	probeDeadline = 4 * 60 // seconds

	probeContainer = "probe"
	probeDir       = "/etc/kcp/probe"
	// pathPrefix is the path of an issuer before its number, by which its messages are found.
	pathPrefix = "/kcpctl-reachability-"
)

// The files of a probe, and the annotations of its pod that have their content: so the pod needs no other object.
var probeFiles = []struct{ name, annotation string }{
	{"authentication.yaml", "kcpctl.dev/probe-authentication"},
	{"kubeconfig", "kcpctl.dev/probe-kubeconfig"},
	{"path-mapping.yaml", "kcpctl.dev/probe-path-mapping"},
}

// nowhere is the kubeconfig of a root shard that does not exist: the front-proxy waits for it as long as it runs.
const nowhere = `{"apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "x"}],
"clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
"contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}`

// issuers returns an authentication configuration with an issuer for each address.
func issuers(addresses []check.ProbeAddress) (string, error) {
	type object = map[string]any
	var jwt []any
	for i, a := range addresses {
		issuer := object{"url": fmt.Sprintf("https://%s%s%d", a.Address, pathPrefix, i),
			"audiences": []string{"kcpctl"}}
		if len(a.CA) > 0 {
			issuer["certificateAuthority"] = string(a.CA)
		}
		jwt = append(jwt, object{
			"issuer": issuer, "claimMappings": object{"username": object{"claim": "sub", "prefix": ""}},
		})
	}
	raw, err := json.Marshal(object{
		"apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration", "jwt": jwt,
	})
	return string(raw), err
}

// probePod returns the pod that tries some addresses. It has the image, the node and the network settings of another
// pod's template, and the labels that users have set, but not its component.
func probePod(name string, p check.Probe) (*corev1.Pod, error) {
	authentication, err := issuers(p.Addresses)
	if err != nil {
		return nil, err
	}
	from := p.Pod.Spec
	own := topology.Kind(p.Pod.Labels[topology.LabelComponent]).ContainerOf(&from)
	if own == nil {
		return nil, fmt.Errorf("the template for pod %s has no container of kcpctl", name)
	}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(p.Pod.Labels),
			Annotations: maps.Clone(p.Pod.Annotations)},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: new(int64(probeDeadline)),
			TerminationGracePeriodSeconds: new(int64(0)), AutomountServiceAccountToken: new(false),
			ServiceAccountName: from.ServiceAccountName, ImagePullSecrets: from.ImagePullSecrets,
			NodeSelector: from.NodeSelector, Tolerations: from.Tolerations, Affinity: nodeAffinity(from.Affinity),
			RuntimeClassName: from.RuntimeClassName, PriorityClassName: from.PriorityClassName,
			HostNetwork: from.HostNetwork, HostAliases: from.HostAliases, DNSPolicy: from.DNSPolicy,
			DNSConfig:       from.DNSConfig,
			SecurityContext: from.SecurityContext,
			Containers:      []corev1.Container{probeOf(*own)},
			Volumes:         []corev1.Volume{{Name: probeContainer}},
		},
	}
	delete(pod.Labels, topology.LabelAppComponent)
	maps.Copy(pod.Labels, topology.ProbeLabels(pod.Labels[topology.LabelSetup]))
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	delete(pod.Annotations, topology.AnnotationChecksum)
	files := &corev1.DownwardAPIVolumeSource{}
	for i, content := range []string{authentication, nowhere, "[]"} {
		f := probeFiles[i]
		pod.Annotations[f.annotation] = content
		files.Items = append(files.Items, corev1.DownwardAPIVolumeFile{
			Path: f.name, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" +
				f.annotation + "']"},
		})
	}
	pod.Spec.Volumes[0].DownwardAPI = files
	return pod, nil
}

// probeOf returns the container of a probe, with the fields that it shares with the container of a component.
func probeOf(c corev1.Container) corev1.Container {
	return corev1.Container{
		Name: probeContainer, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, SecurityContext: c.SecurityContext,
		Env: slices.DeleteFunc(slices.Clone(c.Env),
			func(e corev1.EnvVar) bool { return !strings.HasSuffix(strings.ToUpper(e.Name), "_PROXY") }),
		Command: []string{"/kcp-front-proxy"},
		Args: []string{
			"--authentication-config=" + probeDir + "/" + probeFiles[0].name,
			"--root-kubeconfig=" + probeDir + "/" + probeFiles[1].name,
			"--shards-kubeconfig=" + probeDir + "/" + probeFiles[1].name,
			"--mapping-file=" + probeDir + "/" + probeFiles[2].name,
			"--root-directory=/tmp",
			"--secure-port=0",
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("256Mi")},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: probeContainer, MountPath: probeDir, ReadOnly: true}},
	}
}

// nodeAffinity is the part of an affinity that selects nodes.
func nodeAffinity(a *corev1.Affinity) *corev1.Affinity {
	if a == nil || a.NodeAffinity == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: a.NodeAffinity}
}
