package facts

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

func addressesOf(names ...string) []check.ProbeAddress {
	var out []check.ProbeAddress
	for _, n := range names {
		out = append(out, check.ProbeAddress{Address: n, CA: []byte("a bundle")})
	}
	return out
}

// template is a pod of a component with everything that a probe takes, and with some things that it does not take.
func template() corev1.PodTemplateSpec {
	var t corev1.PodTemplateSpec
	must(yaml.UnmarshalStrict([]byte(`
metadata:
  labels: {kcpctl.dev/setup: demo, kcpctl.dev/component: shard, kcpctl.dev/name: alpha, team: infra}
  annotations: {kcpctl.dev/config-checksum: abc, sidecar.istio.io/inject: "true"}
spec:
  nodeSelector: {zone: a}
  tolerations: [{key: dedicated, operator: Exists}]
  affinity:
    nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: Exists}]}]}}
    podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}
  hostAliases: [{ip: 192.0.2.1, hostnames: [kcp.example.com]}]
  dnsConfig: {options: [{name: ndots, value: "1"}]}
  imagePullSecrets: [{name: registry}]
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  volumes: [{name: config, secret: {secretName: demo-secret}}]
  containers:
  - name: kcp
    image: ghcr.io/kcp-dev/kcp:v0.32.3
    args: [start]
    env: [{name: HTTPS_PROXY, value: "http://proxy.example.com"}, {name: TOKEN, value: secret}]
    resources: {requests: {cpu: "8"}}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: config, mountPath: /etc/kcp}]
`), &t))
	return t
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// The golden is the review of the pod.
func TestProbePod(t *testing.T) {
	pod, err := probePod("demo-reachability-abcde", check.Probe{
		Pod: template(), Addresses: append(addressesOf("root.example.com:6443"), check.ProbeAddress{Address: "[2001:db8::1]:2379"}),
	})
	require.NoError(t, err)
	raw, err := yaml.Marshal(pod)
	require.NoError(t, err)
	testutil.Golden(t, "probe.yaml", raw)

	withSidecar := template()
	withSidecar.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "proxy:v9"}}, withSidecar.Spec.Containers...)
	withSidecar.Labels["app.kubernetes.io/component"] = "shard"
	again, err := probePod("demo-reachability-abcde", check.Probe{Pod: withSidecar, Addresses: addressesOf("root.example.com:6443")})
	require.NoError(t, err)
	require.Equal(t, pod.Spec.Containers[0].Image, again.Spec.Containers[0].Image)
	require.Equal(t, pod.Labels, again.Labels)

	_, err = probePod("x", check.Probe{})
	require.EqualError(t, err, "the template for pod x has no container of kcpctl")
}

func line(message string) string {
	return "E1122 16:01:21.095844   14763 oidc.go:433] oidc authenticator: initializing plugin: " + message
}

func get(i, message string) string {
	return line(`Get "https://x:6443/kcpctl-reachability-` + i + `/.well-known/openid-configuration": ` + message)
}

func TestProbeLog(t *testing.T) {
	yes := check.Answer{Reach: check.Answers}
	for name, tc := range map[string]struct {
		addresses []check.ProbeAddress
		log       []string
		late      bool
		want      []check.Answer
	}{
		"a server that repeats the path": {
			addressesOf("a"), []string{line(`403 Forbidden: {"message":"cannot get path \"/kcpctl-reachability-0/.well-known/openid-configuration\""}`)}, false, []check.Answer{yes},
		},
		"servers that say nothing about it": {
			addressesOf("a", "b"), []string{line("401 Unauthorized: "), line("404 Not Found: 404 page not found")}, false, []check.Answer{yes, yes},
		},
		"one of each": {
			addressesOf("a", "b", "c"),
			[]string{"I1122 OIDC: No x509 certificates provided", get("2", "dial tcp 192.0.2.1:6443: connect: connection refused"), line("401 Unauthorized: "),
				get("0", "dial tcp: lookup x on 10.0.0.10:53: no such host")},
			false, []check.Answer{
				{Reach: check.NoSuchName, Detail: "dial tcp: lookup x on 10.0.0.10:53: no such host"}, yes,
				{Reach: check.Refused, Detail: "dial tcp 192.0.2.1:6443: connect: connection refused"},
			},
		},
		"a structured log": {
			addressesOf("a"), []string{`E1122 "oidc authenticator: initializing plugin" err="Get \"https://x/kcpctl-reachability-0/.well-known/openid-configuration\": EOF"`},
			false, []check.Answer{{Reach: check.NotReachable, Detail: "EOF"}},
		},
		"the certificate of another server": {
			addressesOf("a"), []string{get("0", "tls: failed to verify certificate: x509: certificate signed by unknown authority")}, false,
			[]check.Answer{{Reach: check.OtherServer, Detail: "tls: failed to verify certificate: x509: certificate signed by unknown authority"}},
		},
		"a certificate that does not matter": {
			[]check.ProbeAddress{{Address: "etcd"}}, []string{get("0", "tls: failed to verify certificate: x509: certificate signed by unknown authority")}, false, []check.Answer{yes},
		},
		"an etcd that requires a certificate": {
			addressesOf("etcd"), []string{get("0", "remote error: tls: certificate required")}, false, []check.Answer{yes},
		},
		"attempts are repeated": {
			addressesOf("a", "b"), []string{get("0", "EOF"), get("0", "connection refused"), get("7", "EOF"), get("1", "EOF")}, false,
			[]check.Answer{{Reach: check.NotReachable, Detail: "EOF"}, {Reach: check.NotReachable, Detail: "EOF"}},
		},
		"silence":      {addressesOf("a"), []string{"I1122 starting"}, true, []check.Answer{{Reach: check.NoAnswer, Detail: "no answer within 35s"}}},
		"unknown flag": {addressesOf("a"), []string{"unknown flag: --x"}, false, []check.Answer{{Reach: check.NotAsked, Detail: "the probe ended: unknown flag: --x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			if tc.late {
				cancel(errors.New("no answer within 35s"))
			}
			defer cancel(nil)
			l := newProbeLog(tc.addresses)
			l.read(strings.NewReader(strings.Join(tc.log, "\n") + "\n"))
			require.Equal(t, tc.want, l.result(ctx))
		})
	}
}

func TestNotStarted(t *testing.T) {
	pod := func(w *corev1.ContainerStateWaiting, conditions ...corev1.PodCondition) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Conditions: conditions}}
		p.Namespace, p.Name = "kcp", "x"
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: w}}}
		return p
	}
	what, err := notStarted(pod(nil))
	require.NoError(t, err)
	require.Empty(t, what)
	what, err = notStarted(pod(&corev1.ContainerStateWaiting{Reason: "ContainerCreating"}))
	require.NoError(t, err)
	require.Equal(t, "Pod/kcp/x to start", what)
	what, err = notStarted(pod(&corev1.ContainerStateWaiting{Reason: "ContainerCreating"},
		corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}))
	require.NoError(t, err)
	require.Equal(t, "Pod/kcp/x to start: 0/1 nodes are available", what)
	for _, reason := range []string{"ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError", "InvalidImageName"} {
		_, err = notStarted(pod(&corev1.ContainerStateWaiting{Reason: reason, Message: "no such image"}))
		require.ErrorIs(t, err, check.ErrUnknown)
		require.ErrorContains(t, err, "Pod/kcp/x does not start: "+reason+": no such image")
	}
}
