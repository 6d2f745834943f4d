package main

import (
	"fmt"
	"slices"
	"strings"
)

// buildSet is a group of binaries that the module in build/<name> pins and builds.
type buildSet struct {
	name     string
	version  string
	binaries []binary
	stamps   []string // package variables with the version of the binaries: import/path.name=value
	tags     string   // build tags
	patched  bool     // needs the patched virtual-workspace-framework
	onDemand bool     // only long tests need it, so "up" and "build" do not build it unasked
}

type binary struct {
	name, pkg string
}

// sets returns all build sets in the order of a cold build.
func sets() []buildSet {
	return []buildSet{
		kcpSet("v0.32.3"), etcdSet(), kubernetesSet(), containerdSet(), coreDNSSet(), pauseSet(), olderKcpSet(),
		agentSet(), webSet(), prometheusSet(), kubeRouterSet(), dialSet(),
	}
}

func etcdSet() buildSet {
	return buildSet{
		name: "etcd", version: "v3.6.16",
		binaries: []binary{
			{"etcd", "go.etcd.io/etcd/server/v3"},
			{"etcdctl", "go.etcd.io/etcd/etcdctl/v3"},
		},
	}
}

func kubernetesSet() buildSet {
	return buildSet{
		name: "kubernetes", version: "v1.36.3",
		binaries: commands("k8s.io/kubernetes/cmd/",
			"kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"),
		stamps: kubernetesVersion("v1.36.3"),
	}
}

func containerdSet() buildSet {
	return buildSet{
		name: "containerd", version: "v2.2.9",
		binaries: commands("github.com/containerd/containerd/v2/cmd/", "containerd", "containerd-shim-runc-v2", "ctr"),
		stamps:   []string{"github.com/containerd/containerd/v2/version.Version=2.2.9"},
	}
}

func coreDNSSet() buildSet {
	return buildSet{name: "coredns", version: "v1.14.7", binaries: []binary{{"coredns", "."}}}
}

func pauseSet() buildSet {
	return buildSet{name: "pause", version: "v1", binaries: []binary{{"pause", "."}}}
}

// webSet is the HTTP server of webImages. A change of its source needs another version.
func webSet() buildSet {
	return buildSet{name: "web", version: "v1", binaries: []binary{{"web", "."}}, onDemand: true}
}

// prometheusSet is a Prometheus without its pages and with only one service discovery: each of the others adds modules
// of a cloud.
func prometheusSet() buildSet {
	return buildSet{
		name: "prometheus", version: "v0.313.1",
		binaries: commands("github.com/prometheus/prometheus/cmd/", "prometheus"),
		stamps:   []string{"github.com/prometheus/common/version.Version=3.13.1"},
		tags:     "remove_all_sd,enable_kubernetes_sd", onDemand: true,
	}
}

// kubeRouterSet is what enforces NetworkPolicies.
func kubeRouterSet() buildSet {
	return buildSet{name: "kube-router", version: "v2.1.0", binaries: []binary{{"kube-router", "."}}, onDemand: true}
}

// dialSet is the client of dialImage.
func dialSet() buildSet {
	return buildSet{name: "dial", version: "v1", binaries: []binary{{"dial", "."}}, onDemand: true}
}

func kcpSet(version string) buildSet {
	return buildSet{
		name: "kcp-" + version, version: version,
		binaries: commands("github.com/kcp-dev/kcp/cmd/",
			"kcp", "kcp-front-proxy", "cache-server", "virtual-workspaces", "sharded-test-server"),
		stamps:  kubernetesVersion("v1.36.0+kcp-" + version), // the upstream format: the version of Kubernetes, then that of kcp
		patched: true,
	}
}

// olderKcpSet is the release from which tests upgrade.
func olderKcpSet() buildSet {
	s := kcpSet("v0.32.2")
	s.onDemand = true
	return s
}

func agentSet() buildSet {
	const version = "v0.7.0"
	return buildSet{
		name: "api-syncagent", version: version,
		binaries: commands("github.com/kcp-dev/api-syncagent/cmd/", "api-syncagent"),
		stamps:   []string{"github.com/kcp-dev/api-syncagent/internal/version.gitVersion=" + version},
		patched:  true, onDemand: true,
	}
}

// commands returns binaries with the names of their packages.
func commands(prefix string, names ...string) []binary {
	var bs []binary
	for _, n := range names {
		bs = append(bs, binary{n, prefix + n})
	}
	return bs
}

// kubernetesVersion returns the stamps that set the version of Kubernetes libraries.
func kubernetesVersion(version string) []string {
	var stamps []string
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/client-go/pkg/version", "k8s.io/component-base/version"} {
		stamps = append(stamps, pkg+".gitVersion="+version, pkg+".gitMajor="+parts[0], pkg+".gitMinor="+parts[1])
	}
	return stamps
}

func setNamed(name string) (buildSet, error) {
	all := sets()
	if i := slices.IndexFunc(all, func(s buildSet) bool { return s.name == name }); i >= 0 {
		return all[i], nil
	}
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	return buildSet{}, fmt.Errorf("unknown set %q; the sets are %s", name, strings.Join(names, ", "))
}

// key is the name of the set in the cache.
func (s buildSet) key() string {
	if strings.HasSuffix(s.name, s.version) {
		return s.name
	}
	return s.name + "-" + s.version
}

func (s buildSet) names() []string {
	var ns []string
	for _, b := range s.binaries {
		ns = append(ns, b.name)
	}
	return ns
}
