package render_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// restrictedRule is a rule of the level restricted of the Pod Security Standards, and a change of a pod that breaks it.
// Some are stricter than the standard: kcpctl's pods need none of what they forbid.
type restrictedRule struct {
	name   string
	holds  func(s corev1.PodSpec, c corev1.Container) bool
	breaks func(s *corev1.PodSpec)
}

// restrictedRules are all rules (kubernetes: staging/src/k8s.io/pod-security-admission/policy).
func restrictedRules() []restrictedRule {
	return slices.Concat(podLevelRules(), containerRules())
}

func podLevelRules() []restrictedRule {
	return []restrictedRule{
		{"host namespaces", func(s corev1.PodSpec, _ corev1.Container) bool { return !s.HostNetwork && !s.HostPID && !s.HostIPC },
			func(s *corev1.PodSpec) { s.HostPID = true }},
		{"types of volumes", func(s corev1.PodSpec, _ corev1.Container) bool { return !slices.ContainsFunc(s.Volumes, isForbidden) },
			func(s *corev1.PodSpec) {
				s.Volumes = append(slices.Clone(s.Volumes), corev1.Volume{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}})
			}},
		{"sysctls", func(s corev1.PodSpec, _ corev1.Container) bool { return len(s.SecurityContext.Sysctls) == 0 },
			func(s *corev1.PodSpec) { s.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "kernel.msgmax"}} }},
		{"options of the pod for SELinux, AppArmor and Windows", func(s corev1.PodSpec, _ corev1.Container) bool {
			p := s.SecurityContext
			return p.SELinuxOptions == nil && p.AppArmorProfile == nil && p.WindowsOptions == nil
		}, func(s *corev1.PodSpec) { s.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{User: "root"} }},
	}
}

func containerRules() []restrictedRule {
	return []restrictedRule{
		{"privileged", func(_ corev1.PodSpec, c corev1.Container) bool { return !isTrue(c.SecurityContext.Privileged) },
			inContainer(func(c *corev1.SecurityContext) { c.Privileged = new(true) })},
		{"escalation of privileges", func(_ corev1.PodSpec, c corev1.Container) bool {
			return c.SecurityContext.AllowPrivilegeEscalation != nil && !*c.SecurityContext.AllowPrivilegeEscalation
		}, inContainer(func(c *corev1.SecurityContext) { c.AllowPrivilegeEscalation = nil })},
		{"no root", func(s corev1.PodSpec, c corev1.Container) bool {
			return isTrue(first(c.SecurityContext.RunAsNonRoot, s.SecurityContext.RunAsNonRoot))
		}, inContainer(func(c *corev1.SecurityContext) { c.RunAsNonRoot = new(false) })},
		{"no user 0", func(s corev1.PodSpec, c corev1.Container) bool {
			user := first(c.SecurityContext.RunAsUser, s.SecurityContext.RunAsUser)
			return user == nil || *user != 0
		}, inContainer(func(c *corev1.SecurityContext) { c.RunAsUser = new(int64(0)) })},
		{"seccomp", func(s corev1.PodSpec, c corev1.Container) bool {
			profile := first(c.SecurityContext.SeccompProfile, s.SecurityContext.SeccompProfile)
			return profile != nil && profile.Type != corev1.SeccompProfileTypeUnconfined
		}, inContainer(func(c *corev1.SecurityContext) {
			c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		})},
		{"capabilities", func(_ corev1.PodSpec, c corev1.Container) bool {
			all := c.SecurityContext.Capabilities
			return all != nil && slices.Contains(all.Drop, "ALL") && len(all.Add) == 0
		}, inContainer(func(c *corev1.SecurityContext) {
			c.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"NET_RAW"}}
		})},
		{"options of the container for SELinux, AppArmor, Windows and /proc", func(_ corev1.PodSpec, c corev1.Container) bool {
			o := c.SecurityContext
			return o.SELinuxOptions == nil && o.AppArmorProfile == nil && o.WindowsOptions == nil && o.ProcMount == nil
		}, inContainer(func(c *corev1.SecurityContext) { c.ProcMount = new(corev1.UnmaskedProcMount) })},
		{"ports of the host", func(_ corev1.PodSpec, c corev1.Container) bool {
			return !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
		}, func(s *corev1.PodSpec) { s.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 6443}} }},
		{"probes of other hosts", func(_ corev1.PodSpec, c corev1.Container) bool {
			return !slices.ContainsFunc([]*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe}, func(p *corev1.Probe) bool {
				return p != nil && (p.HTTPGet != nil && p.HTTPGet.Host != "" || p.TCPSocket != nil && p.TCPSocket.Host != "")
			})
		}, func(s *corev1.PodSpec) {
			s.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "other"}}}
		}},
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// first returns the first pointer that is not nil, or nil.
func first[T any](all ...*T) *T {
	for _, p := range all {
		if p != nil {
			return p
		}
	}
	return nil
}

// isForbidden reports whether a volume has a type that is not in the list of the standard.
func isForbidden(v corev1.Volume) bool {
	return v.ConfigMap == nil && v.CSI == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Ephemeral == nil &&
		v.PersistentVolumeClaim == nil && v.Projected == nil && v.Secret == nil
}

func inContainer(change func(*corev1.SecurityContext)) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { change(s.Containers[0].SecurityContext) }
}

// broken returns the names of the rules that a pod breaks.
func broken(s corev1.PodSpec) []string {
	if s.SecurityContext == nil {
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	var out []string
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		for _, r := range restrictedRules() {
			if !r.holds(s, c) {
				out = append(out, c.Name+": "+r.name)
			}
		}
	}
	return out
}

// withPullSecret returns a setup file in which images need a Secret.
func withPullSecret(t *testing.T, text string) string {
	t.Helper()
	var file map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(topologytest.File(text)), &file))
	if file["spec"] == nil {
		file["spec"] = map[string]any{}
	}
	require.NoError(t, unstructured.SetNestedStringSlice(file, []string{"registry"}, "spec", "image", "pullSecrets"))
	out, err := yaml.Marshal(file)
	require.NoError(t, err)
	return string(out)
}

// A namespace that enforces the level restricted of the Pod Security Standards accepts all pods, and all of them can
// pull images from a registry that needs a Secret.
func TestPodsSatisfyPodSecurityStandards(t *testing.T) {
	texts := map[string]string{"syncers": pulled, "other kinds": `spec:
  cacheServer: {}
  rootShard: {etcd: {embedded: {}}}
  virtualWorkspaces: [{name: one}]
  frontProxies: [{name: main, autoscaling: {maxReplicas: 3}}]
  etcd: {managed: {ephemeral: true}}
  shards: [{name: alpha}]
  monitoring: {}
`}
	for _, name := range examples.Names() {
		texts[name] = example(t, name)
	}
	for name, text := range texts {
		top, _, objects := rendered(t, withPullSecret(t, text))
		pods := 0
		for _, o := range objects {
			if pod, ok := podOf(t, o); ok {
				pods++
				require.Empty(t, broken(pod.Spec), "%s %s", name, o.GetName())
				require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, pod.Spec.ImagePullSecrets, "%s %s", name, o.GetName())
			}
		}
		require.GreaterOrEqual(t, pods, len(top.Running()), name)
	}
}

// So are the pods that kcpctl creates besides the setup: of CronJobs, and those that place data in volumes.
func TestOtherPodsSatisfyPodSecurityStandards(t *testing.T) {
	top := topologytest.Build(t, "spec: {image: {pullSecrets: [registry]}}")
	image := v1alpha1.Image{Repository: "kcpctl", Tag: "v1", PullSecrets: []string{"registry"}}
	volumes, err := render.VolumesOf(top, top.Component("etcd/root"))
	require.NoError(t, err)
	restorer, err := render.Restorer{Volumes: volumes, Claim: volumes.Claims[0].GetName(), Command: []string{"receive"}, Image: image}.Pod()
	require.NoError(t, err)
	objects, err := render.Job{Topology: top, Name: "backup", Image: image, Claim: "backups"}.Objects()
	require.NoError(t, err)
	job := objects[len(objects)-1]
	require.Equal(t, "CronJob", job.GetKind())
	spec, _, err := unstructured.NestedMap(job.Object, "spec", "jobTemplate", "spec", "template", "spec")
	require.NoError(t, err)
	var scheduled corev1.PodSpec
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &scheduled))
	for name, s := range map[string]corev1.PodSpec{"restorer": restorer.Spec, "CronJob": scheduled} {
		require.Empty(t, broken(s), name)
		require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, s.ImagePullSecrets, name)
	}
}

// Each rule finds a pod that breaks it.
func TestRestrictedRules(t *testing.T) {
	_, _, objects := rendered(t, "spec: {}")
	i := slices.IndexFunc(objects, func(o render.Object) bool {
		return o.Component == topology.ID("front-proxy/main") && o.GetKind() == "Deployment"
	})
	for _, r := range restrictedRules() {
		pod, ok := podOf(t, objects[i])
		require.True(t, ok)
		r.breaks(&pod.Spec)
		require.True(t, slices.ContainsFunc(broken(pod.Spec), func(s string) bool { return strings.HasSuffix(s, ": "+r.name) }), r.name)
	}
	require.NotEmpty(t, broken(corev1.PodSpec{Containers: []corev1.Container{{}}}))
}

// spec.defaults.podTemplate sets the PriorityClass of servers, and podTemplate of an etcd its own. Replicas and members
// are on different nodes and in different zones if possible.
func TestSchedulingOfPods(t *testing.T) {
	top, _, objects := rendered(t, `spec:
  defaults: {replicas: 2, podTemplate: {spec: {priorityClassName: high}}}
  etcd: {managed: {replicas: 3, podTemplate: {spec: {priorityClassName: higher}}}}
  shards: [{name: alpha, replicas: 1}]
`)
	for _, o := range objects {
		pod, ok := podOf(t, o)
		if !ok {
			continue
		}
		c := top.Component(o.Component)
		want := "high"
		if c.Kind == topology.Etcd {
			want = "higher"
		}
		require.Equal(t, want, pod.Spec.PriorityClassName, o.GetName())
		if o.Component == "shard/alpha" {
			require.Nil(t, pod.Spec.Affinity)
			require.Empty(t, pod.Spec.TopologySpreadConstraints)
			continue
		}
		nodes := pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		require.Len(t, nodes, 1, o.GetName())
		require.Equal(t, corev1.LabelHostname, nodes[0].PodAffinityTerm.TopologyKey)
		require.Equal(t, c.Selector(), nodes[0].PodAffinityTerm.LabelSelector.MatchLabels)
		var keys []string
		for _, s := range pod.Spec.TopologySpreadConstraints {
			require.Equal(t, c.Selector(), s.LabelSelector.MatchLabels)
			keys = append(keys, s.TopologyKey)
		}
		require.Equal(t, []string{corev1.LabelHostname, corev1.LabelTopologyZone}, keys)
	}
}
