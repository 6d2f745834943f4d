package render

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// The environment variables with which a member without data starts. A member with data ignores them, so they can be
// changed while other members run.
const (
	EnvInitialCluster      = "ETCD_INITIAL_CLUSTER"
	EnvInitialClusterState = "ETCD_INITIAL_CLUSTER_STATE"
)

// setEtcd sets the fields that only pods of a managed etcd have.
func (w *workload) setEtcd(c *topology.Component) {
	w.Ports = []dict{
		{"name": portClient, "containerPort": c.Port},
		{"name": portPeer, "containerPort": c.Storage.PeerPort},
	}
	if c.Monitored {
		w.Ports = append(w.Ports, dict{"name": portMetrics, "containerPort": c.MetricsPort()})
	}
	w.ServiceType = corev1.ServiceTypeClusterIP
	w.ServicePorts = []dict{tlsPort(portClient, c.ServicePort)}
	w.PeerService = c.Object(topology.PeerService)
	w.PeerPorts = []dict{tlsPort(portPeer, c.Storage.PeerPort)}
	// If two sources set a variable, the last one wins.
	w.EnvFrom = []dict{
		{"configMapRef": dict{"name": c.Object(topology.MembersConfig)}},
		{"configMapRef": dict{"name": c.Object(topology.JoinConfig), "optional": true}},
	}
	w.Env = []dict{
		{"name": "POD_NAME", "valueFrom": dict{"fieldRef": dict{"fieldPath": "metadata.name"}}},
		// For the probes, and for kubectl exec.
		{"name": "ETCDCTL_ENDPOINTS", "value": fmt.Sprintf("https://localhost:%d", c.Port)},
		{"name": "ETCDCTL_CACERT", "value": c.Path(files.CA(topology.EtcdCA))},
		{"name": "ETCDCTL_CERT", "value": c.Path(files.Cert(topology.CertServer))},
		{"name": "ETCDCTL_KEY", "value": c.Path(files.Key(topology.CertServer))},
	}
	w.setEtcdProbes()
	w.setReplacement(c)
}

// keepEnvFrom lets the sources of variables that kcpctl renders come last, whatever a podTemplate has: it replaces this
// list as a whole. A member that starts without data and without these variables would form its own cluster.
func keepEnvFrom(kind topology.Kind, workload map[string]any, sources []dict) error {
	own, err := plain(sources)
	if err != nil {
		return err
	}
	containers, _ := part(workload, "spec", "template", "spec")["containers"].([]any)
	names := make([]string, len(containers))
	for i := range containers {
		names[i], _ = containers[i].(map[string]any)["name"].(string)
	}
	i := kind.OwnContainer(names)
	if i < 0 {
		return nil
	}
	container := containers[i].(map[string]any)
	all, _ := container["envFrom"].([]any)
	all = slices.DeleteFunc(all, func(theirs any) bool {
		return slices.ContainsFunc(own.([]any), func(ours any) bool { return reflect.DeepEqual(theirs, ours) })
	})
	container["envFrom"] = append(all, own.([]any)...)
	return nil
}

// setEtcdProbes sets probes that run the etcdctl of the image: the kubelet has no client certificate, and a port
// without one would expose the metrics to the whole pod network. A member is alive while it can read its own data, so
// that it does not restart because others are down. It is ready while linearizable reads work, which learners refuse.
func (w *workload) setEtcdProbes() {
	probe := func(consistency string, period, timeout, failures int) dict {
		return dict{
			"exec": dict{"command": []string{
				// It times out before the kubelet does, so that the event contains the reason.
				"etcdctl", "get", "health", "--consistency=" + consistency,
				fmt.Sprintf("--command-timeout=%ds", timeout-1),
			}},
			"periodSeconds": period, "timeoutSeconds": timeout, "failureThreshold": failures,
		}
	}
	const serializable, linearizable = "s", "l"
	w.StartupProbe = probe(serializable, 1, 5, 600)
	w.ReadinessProbe = probe(linearizable, 5, 5, 3)
	w.LivenessProbe = probe(serializable, 20, 10, 3)
}

// MemberClaim returns the name of the PersistentVolumeClaim of a member, as the StatefulSet names it.
func MemberClaim(pod string) string { return volumeData + "-" + pod }

// initialCluster returns the names and the peer URLs of the members of a new etcd.
func initialCluster(c *topology.Component) string {
	var members []string
	for i := range c.Replicas {
		members = append(members, c.Member(i)+"="+c.PeerURL(i))
	}
	return strings.Join(members, ",")
}
