package render_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/version"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// rendered renders a setup with a new PKI.
func rendered(t testing.TB, text string) (*topology.Topology, *pki.State, []render.Object) {
	t.Helper()
	top := topologytest.Build(t, text)
	res, err := pki.Ensure(top, &pki.State{Installation: pki.Installation{ID: "demo-x7k2m9qd", EtcdPrefix: "/demo-x7k2m9qd"}}, pki.Options{Now: now})
	require.NoError(t, err)
	objects, err := render.Objects(top, res.State)
	require.NoError(t, err)
	return top, res.State, objects
}

func example(t testing.TB, name string) string {
	t.Helper()
	text, err := examples.Read(name)
	require.NoError(t, err)
	return string(text)
}

// Every example renders to one golden file per component, with its objects as they are rendered. A placeholder stands
// for what differs in each PKI.
func TestGolden(t *testing.T) {
	for _, name := range examples.Names() {
		t.Run(name, func(t *testing.T) {
			_, _, objects := rendered(t, example(t, name))
			got := map[string]string{}
			for _, o := range objects {
				require.NoError(t, render.Strict(o), "%s %s", o.GetKind(), o.GetName())
				got[topology.FileName(string(o.Component))+".yaml"] += masked(t, o)
			}
			testutil.GoldenTree(t, filepath.Join("golden", name), got)
		})
	}
}

// masked returns an object as text, with placeholders for what mask replaces and for the version of this build.
func masked(t *testing.T, o render.Object) string {
	t.Helper()
	mask(o)
	text, err := o.YAML()
	require.NoError(t, err)
	const image = "image: ghcr.io/kcpctl/kcpctl:"
	return "---\n" + strings.ReplaceAll(string(text), image+version.Get().Version, image+"VERSION")
}

// mask replaces certificates, keys and checksums by placeholders, and shows other Secrets as text.
func mask(o render.Object) {
	shown := map[string]any{}
	values, _ := o.Object["data"].(map[string]any)
	for k, v := range values {
		text := fmt.Sprint(v)
		if o.GetKind() == "Secret" {
			raw, _ := base64.StdEncoding.DecodeString(text)
			text = string(raw)
		}
		if strings.Contains(text, "-----BEGIN") || strings.Contains(text, "certificate-authority-data") || strings.Contains(text, "client-key-data") {
			text = "<" + k + ">"
		}
		shown[k] = text
	}
	if len(values) > 0 {
		o.Object["data"] = shown
	}
	if spec, ok := o.Object["spec"].(map[string]any); ok {
		if pod, ok := spec["template"].(map[string]any); ok {
			pod["metadata"].(map[string]any)["annotations"].(map[string]any)[topology.AnnotationChecksum] = "<checksum>"
		}
	}
}

func TestSameInputSameBytes(t *testing.T) {
	top, state, first := rendered(t, example(t, "sharded"))
	second, err := render.Objects(top, state)
	require.NoError(t, err)
	require.Equal(t, text(t, first), text(t, second))
}

func text(t *testing.T, objects []render.Object) string {
	t.Helper()
	var b strings.Builder
	for _, o := range objects {
		y, err := o.YAML()
		require.NoError(t, err)
		b.Write(y)
	}
	return b.String()
}

// What a security reviewer asks for, in every example.
func TestPodsAreRestricted(t *testing.T) {
	for _, name := range examples.Names() {
		top, _, objects := rendered(t, example(t, name))
		pods := 0
		for _, o := range objects {
			pod, ok := podOf(t, o)
			if !ok {
				continue
			}
			pods++
			c := pod.Spec.Containers[0]
			where := name + " " + o.GetName()
			require.True(t, *pod.Spec.SecurityContext.RunAsNonRoot, where)
			require.EqualValues(t, 65532, *pod.Spec.SecurityContext.RunAsUser, where)
			require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.Spec.SecurityContext.SeccompProfile.Type, where)
			require.Equal(t, top.Component(o.Component).Kind == topology.Agent, *pod.Spec.AutomountServiceAccountToken, where)
			require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, where)
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, where)
			require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, where)
			require.NotNil(t, c.StartupProbe, where)
			require.NotNil(t, c.ReadinessProbe, where)
			require.NotNil(t, c.LivenessProbe, where)
			require.NotEmpty(t, c.Resources.Requests, where)
			for _, v := range pod.Spec.Volumes {
				require.Nil(t, v.Secret, "%s: a volume of a whole Secret", where)
				if v.Projected == nil {
					continue
				}
				for _, s := range v.Projected.Sources {
					require.True(t, s.Secret == nil || len(s.Secret.Items) > 0, "%s: Secret without items", where)
					require.True(t, s.ConfigMap == nil || len(s.ConfigMap.Items) > 0, "%s: ConfigMap without items", where)
				}
			}
		}
		require.Equal(t, len(top.Components)-len(top.OfKind(topology.Base, topology.Kubeconfig, topology.Monitoring, topology.Workspace, topology.Physical)), pods, name)
	}
}

func podOf(t *testing.T, o render.Object) (corev1.PodTemplateSpec, bool) {
	t.Helper()
	spec, _ := o.Object["spec"].(map[string]any)
	tmpl, ok := spec["template"].(map[string]any)
	var pod corev1.PodTemplateSpec
	if ok {
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(tmpl, &pod))
	}
	return pod, ok
}

// The keys of authorities are in no object at all.
func TestNoObjectHoldsAnAuthoritysKey(t *testing.T) {
	_, state, objects := rendered(t, example(t, "ha"))
	require.NotEmpty(t, state.CAs)
	for ca, a := range state.CAs {
		require.NotEmpty(t, a.Key)
		for _, o := range objects {
			values, _ := o.Object["data"].(map[string]any)
			for k, v := range values {
				require.NotEqual(t, base64.StdEncoding.EncodeToString(a.Key), v, "%s key in %s[%s]", ca, o.GetName(), k)
				require.NotContains(t, fmt.Sprint(v), string(a.Key), "%s key in %s[%s]", ca, o.GetName(), k)
			}
		}
	}
}

// The longest names that validation lets pass still make valid objects, all different.
func TestNames(t *testing.T) {
	_, _, objects := rendered(t, example(t, "ha"))
	seen := map[string]bool{}
	for _, o := range objects {
		ref := o.Ref().String()
		require.False(t, seen[ref], "two objects %s", ref)
		seen[ref] = true
		require.LessOrEqual(t, len(o.GetName()), 63, ref)
		for k, v := range o.GetLabels() {
			require.Empty(t, validation.IsValidLabelValue(v), "%s: label %s=%s", ref, k, v)
		}
	}
}

func argsOf(t *testing.T, objects []render.Object, name string) []string {
	t.Helper()
	for _, o := range objects {
		if pod, ok := podOf(t, o); ok && o.GetName() == name {
			return pod.Spec.Containers[0].Args
		}
	}
	t.Fatalf("no workload %s", name)
	return nil
}

// Flags that end the process in a release that does not know them, and flags without which it does not work.
func TestFlagsByRelease(t *testing.T) {
	for v, want := range map[string]struct{ mountProxy, cacheCA, externalHostname, vwURL, vwAdmin bool }{
		"v0.28.0": {false, false, true, true, false},
		"v0.29.1": {false, false, true, true, false},
		"v0.29.2": {false, true, true, true, false},
		"v0.30.1": {false, false, true, true, false},
		"v0.30.2": {false, true, true, true, false},
		"v0.31.1": {false, true, false, false, false},
		"v0.31.2": {false, true, false, false, true},
		"v0.31.6": {true, true, false, false, true},
		"v0.32.2": {false, true, false, false, true},
		"v0.32.3": {true, true, false, false, true},
	} {
		t.Run(v, func(t *testing.T) {
			_, _, objects := rendered(t, `spec: {version: `+v+`,
featureGates: {WorkspaceMounts: true}, cacheServer: {}, shards: [{name: alpha}], virtualWorkspaces: [{name: vw}]}`)
			for _, shard := range []string{"demo-root", "demo-shard-alpha"} {
				require.Equal(t, want.mountProxy, has(argsOf(t, objects, shard), "--mount-proxy-client-cert-file="), shard)
				require.Equal(t, want.externalHostname, has(argsOf(t, objects, shard), "--external-hostname="), shard)
				require.True(t, has(argsOf(t, objects, shard), "--cache-kubeconfig="), shard)
			}
			require.Equal(t, want.mountProxy, has(argsOf(t, objects, "demo-front-proxy-main"), "--requestheader-client-ca-file="))
			require.Equal(t, want.cacheCA, has(argsOf(t, objects, "demo-cache"), "--client-ca-file="))
			vw := argsOf(t, objects, "demo-vw-vw")
			require.Equal(t, want.vwURL, has(vw, "--shard-external-url="))
			require.Equal(t, want.vwAdmin, has(vw, "--external-logical-cluster-admin-kubeconfig="))
		})
	}
}

// A shard that owns its Shard object has its labels in a flag, and no flag without labels.
func TestLabelsOfShardsByRelease(t *testing.T) {
	for v, want := range map[string][]string{"v0.32.3": nil, "v0.33.0": {"--shard-labels=region=eu,zone=a"}} {
		_, _, objects := rendered(t, `spec: {version: `+v+`, clusters: [{name: default, region: eu}], cacheServer: {},
  rootShard: {labels: {zone: a}}, shards: [{name: alpha, labels: {zone: a}}]}`)
		for name, want := range map[string][]string{
			"demo-root": want, "demo-shard-alpha": want, "demo-front-proxy-main": nil, "demo-cache": nil,
		} {
			var got []string
			for _, arg := range argsOf(t, objects, name) {
				if strings.HasPrefix(arg, "--shard-labels") {
					got = append(got, arg)
				}
			}
			require.Equal(t, want, got, "%s of %s", name, v)
		}
	}
	_, _, objects := rendered(t, "spec: {version: v0.33.0}")
	require.False(t, has(argsOf(t, objects, "demo-root"), "--shard-labels"))
}

func has(args []string, prefix string) bool {
	for _, a := range args {
		if strings.HasPrefix(a, prefix) {
			return true
		}
	}
	return false
}

func TestExtraArgsReplace(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  defaults: {extraArgs: ["--v=4", "--log-flush-frequency=9s"]}
  rootShard: {extraArgs: ["--v=6", "--feature-gates=CacheAPIs=true"]}
`)
	root := strings.Join(argsOf(t, objects, "demo-root"), " ")
	require.Equal(t, 1, strings.Count(root, "--v="))
	require.Contains(t, root, "--v=6")
	require.Contains(t, root, "--log-flush-frequency=9s")
	require.Contains(t, root, "--feature-gates=CacheAPIs=true")
	require.Contains(t, strings.Join(argsOf(t, objects, "demo-front-proxy-main"), " "), "--v=4")
}

// Mounts of workspaces have flags and certificates only on request.
func TestMounts(t *testing.T) {
	mounts := func(spec string) (found []string) {
		_, _, objects := rendered(t, "spec: {"+spec+"}")
		for _, name := range []string{"demo-root", "demo-front-proxy-main"} {
			for _, arg := range argsOf(t, objects, name) {
				if strings.Contains(arg, "mount") || strings.Contains(arg, "feature-gates") {
					found = append(found, arg)
				}
			}
		}
		for _, o := range objects {
			if strings.Contains(o.GetName(), "mounts-proxy") {
				found = append(found, o.GetName())
			}
		}
		return found
	}
	require.Empty(t, mounts(""))
	require.Equal(t, []string{"--feature-gates=CacheAPIs=false", "--feature-gates=CacheAPIs=false"}, mounts("featureGates: {CacheAPIs: false}"))
	require.Equal(t, []string{
		"--mount-proxy-client-cert-file=/etc/kcp/pki/mounts-proxy/tls.crt", "--mount-proxy-client-key-file=/etc/kcp/pki/mounts-proxy/tls.key",
		"--feature-gates=CacheAPIs=true,WorkspaceMounts=true", "--requestheader-allowed-names=kcp-front-proxy,kcp-mounts-proxy",
		"--feature-gates=CacheAPIs=true,WorkspaceMounts=true", "demo-root-mounts-proxy",
	}, mounts("featureGates: {WorkspaceMounts: true, CacheAPIs: true}"))
	require.Equal(t, []string{"--feature-gates=CacheAPIs=true"}, mounts("version: v0.28.0, featureGates: {CacheAPIs: true}"), "of the shard")
}

func TestOverlays(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  defaults:
    podTemplate:
      metadata: {labels: {team: platform}}
      spec: {priorityClassName: high, nodeSelector: {Example.com/Zone: A}}
  frontProxies:
  - name: main
    service: {type: LoadBalancer, loadBalancerClass: example.com/lb, metadata: {annotations: {example.com/pool: public}}}
    podTemplate:
      spec:
        containers:
        - {name: kcp, env: [{name: GOMAXPROCS, value: "2"}]}
        - {name: sidecar, image: example.com/sidecar:v1}
        - {name: absent, $patch: delete}
        affinity: {$patch: replace, nodeAffinity: {}}
`)
	for _, o := range objects {
		pod, ok := podOf(t, o)
		switch {
		case ok && o.GetName() == "demo-front-proxy-main":
			require.Len(t, pod.Spec.Containers, 2)
			require.Equal(t, "high", pod.Spec.PriorityClassName)
			require.Equal(t, map[string]string{"Example.com/Zone": "A"}, pod.Spec.NodeSelector)
			require.Equal(t, "platform", pod.Labels["team"])
			for _, c := range pod.Spec.Containers {
				if c.Name == "kcp" {
					require.Equal(t, []corev1.EnvVar{{Name: "GOMAXPROCS", Value: "2"}}, c.Env)
					require.NotEmpty(t, c.Args)
				}
			}
		case ok && o.GetName() == "demo-etcd-root":
			require.Empty(t, pod.Spec.PriorityClassName, "spec.defaults is not for etcd")
		case o.GetKind() == "Service" && o.GetName() == "demo-front-proxy-main":
			spec := o.Object["spec"].(map[string]any)
			require.Equal(t, "LoadBalancer", spec["type"])
			require.Equal(t, "example.com/lb", spec["loadBalancerClass"])
			require.NotEmpty(t, spec["selector"])
			require.Equal(t, "public", o.GetAnnotations()["example.com/pool"])
		}
	}
}

// kube-apiserver stores a quantity in its own way, also one that is a number in the setup file. As part of an atomic object
// it would differ in each plan.
func TestQuantitiesAreWrittenAsTheServerDoes(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  frontProxies:
  - name: main
    podTemplate:
      spec:
        containers:
        - name: kcp
          resources: {requests: {cpu: 0.5, memory: 1024Mi}, limits: {cpu: 2000m}}
          env:
          - {name: CORES, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1}}}
          - {name: SHARE, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 0.001}}}
        volumes: [{name: scratch, emptyDir: {sizeLimit: 1073741824}}]
`)
	i := slices.IndexFunc(objects, func(o render.Object) bool {
		return o.GetKind() == "Deployment" && o.GetName() == "demo-front-proxy-main"
	})
	require.Positive(t, i)
	raw, err := json.Marshal(objects[i].Object)
	require.NoError(t, err)
	for _, want := range []string{
		`"cpu":"500m"`, `"memory":"1Gi"`, `"cpu":"2"`, `"divisor":"1"`, `"divisor":"1m"`, `"sizeLimit":"1073741824"`,
	} {
		require.Contains(t, string(raw), want)
	}
}

// An additional Service has no type: an existing one keeps its own. Clients that use it trust the certificate.
func TestAliases(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  external: {hostname: kcp.example.com, port: 8443}
  frontProxies: [{name: main, service: {type: LoadBalancer}, aliases: [old-front-proxy]}]
`)
	services := map[string]map[string]any{}
	for _, o := range objects {
		if o.GetKind() == "Service" {
			services[o.GetName()] = o.Object["spec"].(map[string]any)
		}
		if o.GetName() == "demo-front-proxy-main-server" {
			data, err := base64.StdEncoding.DecodeString(o.Object["data"].(map[string]any)["tls.crt"].(string))
			require.NoError(t, err)
			info, err := pki.Inspect(data)
			require.NoError(t, err)
			require.Subset(t, info.SANs, []string{"old-front-proxy", "old-front-proxy.kcp.svc", "old-front-proxy.kcp.svc.cluster.local"})
		}
	}
	old, ours := services["old-front-proxy"], services["demo-front-proxy-main"]
	require.NotContains(t, old, "type")
	for _, same := range []string{"selector", "ports"} {
		require.Equal(t, ours[same], old[same])
	}
}

// Just the pods that use a certificate roll when it changes.
// Pods start again if their files change, except processes that read a new certificate themselves.
func TestChecksumFollowsContent(t *testing.T) {
	for _, tc := range []struct {
		example, secret string
		rolled          []string
	}{
		{"sharded", "demo-shard-alpha-server", []string{"demo-shard-alpha"}},
		{"agent", "agent-agent-widgets-client", nil},
	} {
		t.Run(tc.secret, func(t *testing.T) {
			top, state, before := rendered(t, example(t, tc.example))
			renewed := 0
			for key := range state.Leaves {
				if key.Secret == tc.secret {
					other, err := pki.Mint(state, pki.MintSpec{CN: "x", Algorithm: "ECDSA-P256", Validity: time.Hour}, now)
					require.NoError(t, err)
					state.Leaves[key] = other
					renewed++
				}
			}
			require.Equal(t, 1, renewed)
			after, err := render.Objects(top, state)
			require.NoError(t, err)
			var rolled []string
			for i := range before {
				b, ok := podOf(t, before[i])
				a, _ := podOf(t, after[i])
				if ok && a.Annotations[topology.AnnotationChecksum] != b.Annotations[topology.AnnotationChecksum] {
					rolled = append(rolled, before[i].GetName())
				}
			}
			require.Equal(t, tc.rolled, rolled)
		})
	}
}

func BenchmarkRender(b *testing.B) {
	for _, shards := range []int{3, 100, 1000} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			text := manyShards(shards)
			b.ReportAllocs()
			for b.Loop() {
				rendered(b, text)
			}
		})
	}
}

func manyShards(n int) string {
	var text strings.Builder
	text.WriteString("spec: {cacheServer: {}, shards: [")
	for i := range n {
		fmt.Fprintf(&text, "{name: s%d},", i)
	}
	text.WriteString("]}")
	return text.String()
}
