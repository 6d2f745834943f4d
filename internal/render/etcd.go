package render

import (
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// The variables with which a member without data starts. One with data ignores them, so they can be changed while others run.
const (
	EnvInitialCluster      = "ETCD_INITIAL_CLUSTER"
	EnvInitialClusterState = "ETCD_INITIAL_CLUSTER_STATE"
)

// setEtcd is what a managed etcd's pods have that no other component has.
func (w *workload) setEtcd(c *topology.Component) {
	w.Container = containerEtcd
	w.Ports = []dict{
		{"name": portClient, "containerPort": c.Port},
		{"name": portPeer, "containerPort": c.Storage.PeerPort},
	}
	w.ServicePorts = []dict{{"name": portClient, "port": c.ServicePort, "targetPort": portClient}}
	w.PeerService = c.Object(topology.PeerService)
	w.PeerPorts = []dict{{"name": portPeer, "port": c.Storage.PeerPort, "targetPort": portPeer}}
	// Of two sources of a variable the later counts.
	w.EnvFrom = []dict{
		{"configMapRef": dict{"name": c.Object(topology.MembersConfig)}},
		{"configMapRef": dict{"name": c.Object(topology.JoinConfig), "optional": true}},
	}
	w.Env = []dict{
		{"name": "POD_NAME", "valueFrom": dict{"fieldRef": dict{"fieldPath": "metadata.name"}}},
		// For probes, and for people with kubectl exec.
		{"name": "ETCDCTL_ENDPOINTS", "value": fmt.Sprintf("https://localhost:%d", c.Port)},
		{"name": "ETCDCTL_CACERT", "value": c.Path(files.CA(string(pki.EtcdCA)))},
		{"name": "ETCDCTL_CERT", "value": c.Path(files.Cert(pki.CertServer))},
		{"name": "ETCDCTL_KEY", "value": c.Path(files.Key(pki.CertServer))},
	}
	w.setEtcdProbes()
}

// setEtcdProbes lets etcdctl of the image ask, because the kubelet has no certificate, and a port without one would tell
// everything in the pod network. A member lives as long as it reads what it has: none restarts because the others are away.
// It is ready while it reads what a majority knows; that is refused by a learner, and by a member whose data is corrupt.
func (w *workload) setEtcdProbes() {
	probe := func(consistency string, period, timeout, failures int) dict {
		return dict{
			"exec": dict{"command": []string{
				// It gives up before the kubelet does, and says why.
				"etcdctl", "get", "health", "--consistency=" + consistency, fmt.Sprintf("--command-timeout=%ds", timeout-1),
			}},
			"periodSeconds": period, "timeoutSeconds": timeout, "failureThreshold": failures,
		}
	}
	const local, agreed = "s", "l"
	w.StartupProbe = probe(local, 1, 5, 600)
	w.ReadinessProbe = probe(agreed, 5, 5, 3)
	w.LivenessProbe = probe(local, 20, 10, 3)
}

// MemberClaim is the name of the claim of a member's volume: StatefulSets call it after its template and its pod.
func MemberClaim(pod string) string { return volumeData + "-" + pod }

// initialCluster names the members of a new etcd and where they find each other.
func initialCluster(c *topology.Component) string {
	var members []string
	for i := range c.Replicas {
		members = append(members, c.Member(i)+"="+c.PeerURL(i))
	}
	return strings.Join(members, ",")
}
