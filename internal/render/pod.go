package render

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

type dict = map[string]any

// The names within a pod.
const (
	containerKCP     = "kcp" // the container of every kcp server, so that one podTemplate fits all
	containerEtcd    = "etcd"
	portHTTPS        = "https"
	portClient       = "client"
	portPeer         = "peer"
	volumeConfig     = "config"
	volumeData       = "data"
	volumeTmp        = "tmp"
	configFileMode   = 0o440 // the pod's group reads
	requiredReplicas = 1
)

// How a server ends, in seconds, so that clients do not notice: it goes on to serve for as long as it takes until nobody is
// sent to it any more, then ends watches, and answers what it was asked before.
const (
	leaveSeconds = 5
	// Front-proxies keep a connection to a pod for as long as they have requests for it, and a shard that is told to end
	// fails them until it closes the connection (kcp: pkg/server/filters/perclustercontext.go). So pods that have others in
	// their place serve on until kcpctl has given front-proxies new connections (run.Up.reconnect). Nodes do not let a pod end
	// before it has slept as long as it wants.
	proxiedLeaveSeconds = 60
	watchSeconds        = 5
	graceSeconds        = 30
	// A shard that is told to end cancels requests at once and watches within watchSeconds, and would then wait a minute for
	// those who watch its virtual workspaces or its cache, to which nobody says that it ends, while no controller works. Its
	// embedded etcd is not told to end at all (kcp: cmd/kcp/kcp.go): nothing is lost that waiting would keep.
	shardGraceSeconds = 10
	// A cache server has no flag to end the watches of shards, which is all that they do there, and would wait to be killed.
	cacheGraceSeconds = 5
)

// workload is what the templates of a component's workload and Service print.
type workload struct {
	Name, Namespace  string
	Labels, Selector map[string]string
	PodAnnotations   map[string]string
	Replicas         int32
	Strategy         dict
	GracePeriod      int
	PullSecrets      []dict
	Affinity         dict
	Spread           []dict
	Container        string
	Image            string
	PullPolicy       any
	Command, Args    []string
	Env, EnvFrom     []dict
	Ports            []dict
	Resources        any
	StartupProbe     dict
	ReadinessProbe   dict
	LivenessProbe    dict
	Lifecycle        dict
	Volumes, Mounts  []dict
	ServicePorts     []dict
	PeerService      string
	PeerPorts        []dict
	Claim            string
	ClaimSpec        dict
	ClaimTemplates   []dict
}

func newWorkload(t *topology.Topology, i pki.Installation, c *topology.Component, srcs []source) workload {
	w := workload{
		Name: c.Object(), Namespace: c.Cluster.Namespace, Labels: c.Labels(), Selector: c.Selector(),
		PodAnnotations: map[string]string{topology.AnnotationChecksum: checksum(srcs)},
		Replicas:       c.Replicas, GracePeriod: graceSeconds,
		Container: containerKCP, Image: c.Image, PullPolicy: c.PullPolicy,
		Command: command(c), Args: args(t, i, c), Resources: c.Resources,
	}
	for _, s := range c.PullSecrets {
		w.PullSecrets = append(w.PullSecrets, dict{"name": s})
	}
	if c.Replicas > requiredReplicas {
		w.Affinity, w.Spread = spread(c.Selector())
	}
	w.setProbesAndPorts(c)
	w.setVolumes(c, srcs)
	w.setReplacement(c)
	return w
}

// setReplacement says how pods are replaced by others.
func (w *workload) setReplacement(c *topology.Component) {
	switch {
	case c.IsShard():
		w.GracePeriod = shardGraceSeconds
	case c.Kind == topology.CacheServer:
		w.GracePeriod = cacheGraceSeconds
	}
	if c.Storage != nil && c.Storage.Embedded {
		// Two processes cannot share one data directory.
		w.Strategy = dict{"type": "Recreate"}
		return
	}
	w.Strategy = dict{"type": "RollingUpdate", "rollingUpdate": dict{"maxSurge": 1, "maxUnavailable": 0}}
	if c.Kind != topology.Etcd {
		// The next pod serves by now. Servers stop to listen as soon as they are told to end, and it takes nodes a moment to
		// learn that they shall send nobody there any more. Images have no shell to sleep in, but the kubelet has.
		leave := leaveSeconds
		if c.Proxied() && c.Replicas > 1 {
			leave = proxiedLeaveSeconds
		}
		w.Lifecycle = dict{"preStop": dict{"sleep": dict{"seconds": leave}}}
		w.GracePeriod += leave
	}
}

// spread keeps replicas apart where the cluster has room, without keeping them from running where it has none.
func spread(selector map[string]string) (affinity dict, constraints []dict) {
	sel := dict{"matchLabels": selector}
	affinity = dict{"podAntiAffinity": dict{"preferredDuringSchedulingIgnoredDuringExecution": []dict{
		{"weight": 100, "podAffinityTerm": dict{"topologyKey": "kubernetes.io/hostname", "labelSelector": sel}},
	}}}
	for _, key := range []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone"} {
		constraints = append(constraints, dict{
			"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": sel,
		})
	}
	return affinity, constraints
}

func (w *workload) setProbesAndPorts(c *topology.Component) {
	w.Ports = []dict{{"name": portHTTPS, "containerPort": c.Port}}
	w.ServicePorts = []dict{{"name": portHTTPS, "port": c.ServicePort, "targetPort": portHTTPS, "appProtocol": "https"}}
	if c.Kind == topology.Etcd {
		w.setEtcd(c)
		return
	}
	probe := func(path string, period, timeout, failures int) dict {
		return dict{
			"httpGet":       dict{"path": path, "port": portHTTPS, "scheme": "HTTPS"},
			"periodSeconds": period, "timeoutSeconds": timeout, "failureThreshold": failures,
		}
	}
	// The startup probe looks every second, so that a start is noticed at once; it leaves ten minutes, because a shard
	// waits for the root shard and a front-proxy does not even listen before it has found it.
	w.StartupProbe = probe("/readyz", 1, 5, 600)
	w.ReadinessProbe = probe("/readyz", 5, 5, 3)
	w.LivenessProbe = probe("/livez", 10, 10, 6)
	if c.Kind == topology.FrontProxy {
		// It says that it is ready once it knows the shards, and then learns which workspaces they have (kcp:
		// pkg/proxy/server.go). The second look leaves it the time.
		w.ReadinessProbe = probe("/readyz", 2, 5, 5)
		w.ReadinessProbe["successThreshold"] = 2
	}
}

func (w *workload) setVolumes(c *topology.Component, srcs []source) {
	var projected []dict
	for _, s := range srcs {
		projected = append(projected, s.projection())
	}
	w.Volumes = []dict{
		{"name": volumeConfig, "projected": dict{"defaultMode": configFileMode, "sources": projected}},
		{"name": volumeTmp, "emptyDir": dict{}},
	}
	w.Mounts = []dict{
		{"name": volumeConfig, "mountPath": c.ConfigDir, "readOnly": true},
		{"name": volumeTmp, "mountPath": "/tmp"},
	}
	s := c.Storage
	if s == nil || (c.Kind != topology.Etcd && !s.Embedded) {
		return
	}
	w.Mounts = append(w.Mounts, dict{"name": volumeData, "mountPath": c.DataDir})
	spec := dict{"accessModes": []string{"ReadWriteOnce"}, "resources": dict{"requests": dict{"storage": s.Size}}}
	if s.Class != "" {
		spec["storageClassName"] = s.Class
	}
	switch {
	case s.Ephemeral || c.Cluster.Namespace == "":
		w.Volumes = append(w.Volumes, dict{"name": volumeData, "emptyDir": dict{}})
	case c.Kind == topology.Etcd:
		w.ClaimTemplates = []dict{{"metadata": dict{"name": volumeData, "labels": c.Selector()}, "spec": spec}}
	default:
		w.Claim, w.ClaimSpec = c.Object(volumeData), spec
		w.Volumes = append(w.Volumes, dict{"name": volumeData, "persistentVolumeClaim": dict{"claimName": w.Claim}})
	}
}

// A source is a Secret or ConfigMap of which a pod mounts some items.
type source struct {
	secret    string
	configMap string
	items     []item
}

// An item is a key of a source and the path, below the configuration folder, where it is found. Its content is unknown if
// the object is not ours.
type item struct {
	key, path string
	content   []byte
}

func (s source) projection() dict {
	var items []dict
	for _, i := range s.items {
		items = append(items, dict{"key": i.key, "path": i.path})
	}
	if s.secret != "" {
		return dict{"secret": dict{"name": s.secret, "items": items}}
	}
	return dict{"configMap": dict{"name": s.configMap, "items": items}}
}

// checksum changes whenever the content of a mounted file does, and only then.
func checksum(srcs []source) string {
	h := sha256.New()
	for _, s := range srcs {
		for _, i := range s.items {
			fmt.Fprintf(h, "%s %d\n", i.path, len(i.content))
			h.Write(i.content)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}
