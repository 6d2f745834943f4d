package main

import (
	"os"
	"path/filepath"
)

// component is a process of a node, with the steps that it needs.
type component struct {
	process

	needs    []string // steps of up
	onDemand bool     // up does not start it
}

// components returns the processes of a node in the order in which they start. down stops them in reverse.
func (t *testbed) components(n node) []component {
	kubernetes, etcd, containerd := t.binDir(kubernetesSet()), t.binDir(etcdSet()), t.binDir(containerdSet())
	ready := []string{"kube-apiserver"}
	return []component{
		n.component(containerd, "containerd", "unix://"+n.socket(), []string{"network", "files"}, n.containerdArgs()),
		n.component(etcd, "etcd", "http://"+n.address+":2381/readyz", []string{"network", "files"}, n.etcdArgs()),
		n.component(kubernetes, "kube-apiserver", n.url()+"/readyz", []string{"etcd"}, n.apiserverArgs()),
		n.component(kubernetes, "kube-controller-manager", "https://"+n.address+":10257/healthz", ready, n.controllerManagerArgs()),
		n.component(kubernetes, "kube-scheduler", "https://"+n.address+":10259/readyz", ready, n.schedulerArgs()),
		n.component(kubernetes, "kube-proxy", "http://"+n.address+":10256/livez", ready, n.proxyArgs()),
		n.component(kubernetes, "kubelet", "http://"+n.address+":10248/healthz", []string{"kube-apiserver", "containerd", "image pause"}, n.kubeletArgs()),
		n.provisioner(),
		onDemand(n.component(t.binDir(kubeRouterSet()), firewall, "http://"+n.address+":20244/healthz", ready, n.firewallArgs())),
	}
}

func onDemand(c component) component {
	c.onDemand = true
	return c
}

// component returns a process that runs in the network namespace of the node by nsenter: ip netns exec would mount
// another /sys, without cgroups.
func (n node) component(bin, name, health string, needs, args []string) component {
	enter := []string{"nsenter", "--net=/run/netns/" + n.id, "--", filepath.Join(bin, name)}
	path := bin + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin" // for the shim of containerd, and iptables
	return component{process: process{name: name, argv: append(enter, args...), path: path, health: health}, needs: needs}
}

// provisioner returns the process of the provisioner, which is a copy of this program.
func (n node) provisioner() component {
	argv := []string{n.stateFile("testbed"), "provision", "--node", n.name}
	return component{process: process{name: "provisioner", argv: argv}, needs: []string{"kube-apiserver"}}
}

func (n node) containerdArgs() []string {
	return []string{"--config", n.stateFile("containerd.toml")}
}

func (n node) etcdArgs() []string {
	return []string{
		"--data-dir", n.stateFile("etcd"),
		"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380",
		"--listen-metrics-urls", "http://" + n.address + ":2381", // health only: clients need no certificate
		"--unsafe-no-fsync", // the data does not outlive the node
		"--log-level", "warn",
	}
}

func (n node) apiserverArgs() []string {
	return append(n.serving(),
		"--bind-address="+n.address, "--advertise-address="+n.address, "--secure-port="+apiPort,
		"--etcd-servers=http://127.0.0.1:2379",
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file="+n.stateFile("pki", "ca.crt"),
		"--service-cluster-ip-range="+n.serviceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+n.stateFile("pki", "service-account.key"),
		"--service-account-signing-key-file="+n.stateFile("pki", "service-account.key"),
		"--kubelet-certificate-authority="+n.stateFile("pki", "ca.crt"),
		"--kubelet-client-certificate="+n.stateFile("pki", "apiserver-kubelet.crt"),
		"--kubelet-client-key="+n.stateFile("pki", "apiserver-kubelet.key"),
		"--kubelet-preferred-address-types=InternalIP", // the name of the node does not resolve
		"--profiling=false",
	)
}

func (n node) controllerManagerArgs() []string {
	return append(n.serving(),
		"--kubeconfig="+n.kubeconfig("kube-controller-manager"), "--bind-address="+n.address, "--leader-elect=false",
		"--allocate-node-cidrs=true", "--cluster-cidr="+n.podCIDR, "--node-cidr-mask-size=20",
		"--service-cluster-ip-range="+n.serviceCIDR,
		"--root-ca-file="+n.stateFile("pki", "ca.crt"),
		"--flex-volume-plugin-dir="+n.stateFile("volume-plugins"), // the default is in /usr
		"--cluster-signing-cert-file="+n.stateFile("pki", "ca.crt"), "--cluster-signing-key-file="+n.stateFile("pki", "ca.key"),
		"--service-account-private-key-file="+n.stateFile("pki", "service-account.key"),
		"--use-service-account-credentials=true",
		"--kube-api-qps=500", "--kube-api-burst=500", // controllers request their tokens one after the other
	)
}

func (n node) schedulerArgs() []string {
	return append(n.serving(),
		"--kubeconfig="+n.kubeconfig("kube-scheduler"), "--bind-address="+n.address, "--leader-elect=false",
		"--kube-api-qps=500", "--kube-api-burst=500")
}

func (n node) proxyArgs() []string {
	return []string{
		"--kubeconfig=" + n.kubeconfig("kube-proxy"), "--hostname-override=" + n.hostname,
		"--proxy-mode=iptables", "--cluster-cidr=" + n.podCIDR, "--iptables-localhost-nodeports=false",
		"--iptables-min-sync-period=100ms",
		"--bind-address=" + n.address, "--healthz-bind-address=" + n.address + ":10256",
		"--conntrack-max-per-core=0", "--oom-score-adj=0", // do not change these on the machine
	}
}

func (n node) kubeletArgs() []string {
	return []string{
		"--config=" + n.stateFile("kubelet.yaml"), "--kubeconfig=" + n.kubeconfig("kubelet"),
		"--root-dir=" + n.stateFile("kubelet"), "--cert-dir=" + n.stateFile("kubelet", "pki"),
		"--hostname-override=" + n.hostname, "--node-ip=" + n.address,
	}
}

// serving returns the flags for the serving certificate that all servers of the node share.
func (n node) serving() []string {
	return []string{
		"--tls-cert-file=" + n.stateFile("pki", "serving.crt"), "--tls-private-key-file=" + n.stateFile("pki", "serving.key"),
	}
}
