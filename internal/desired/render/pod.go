package render

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

type dict = map[string]any

// Names within a pod.
const (
	portHTTPS      = "https"
	portClient     = "client"
	portPeer       = "peer"
	volumeConfig   = "config"
	volumeData     = topology.DataPart
	volumeTmp      = "tmp"
	configFileMode = 0o440 // the pod's group reads
)

// Graceful termination, in seconds: a server keeps serving until its endpoint is removed everywhere, then ends
// watches, then finishes the remaining requests.
const (
	leaveSeconds = 5
	// Front-proxies keep a connection to a pod while they have requests for it, and a shard that terminates fails these
	// requests until it closes the connection (kcp: pkg/server/filters/perclustercontext.go). So pods with replicas
	// keep serving until kcpctl has made the front-proxies reconnect (run.Up.reconnect). The kubelet waits for the
	// whole preStop sleep.
	proxiedLeaveSeconds = 60
	watchSeconds        = 5
	graceSeconds        = 30
	// A shard that terminates cancels requests immediately and watches within watchSeconds. It would then wait a minute
	// for the watches of its virtual workspaces and its cache, which it does not end, while no controller runs. kcp
	// does not stop its embedded etcd either (kcp: cmd/kcp/kcp.go): a longer wait would not save any data.
	shardGraceSeconds = 10
	// A cache server has no flag to end watches, and all its requests are watches of shards: it would wait until it is
	// killed.
	cacheGraceSeconds = 5
)

// workload holds the values of the templates of a component's workload and Service.
type workload struct {
	Name, Namespace  string
	Labels, Selector map[string]string
	PodAnnotations   map[string]string
	Replicas         any
	Strategy         dict
	GracePeriod      int
	PullSecrets      []dict
	ServiceAccount   any
	MountToken       bool
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
	ServiceType      any
	ServiceNotes     map[string]string
	ServicePorts     []dict
	IPFamilyPolicy   any
	IPFamilies       any
	PeerService      string
	PeerPorts        []dict
	Claim            string
	ClaimSpec        dict
	ClaimTemplates   []dict
}

func newWorkload(t *topology.Topology, s *pki.State, c *topology.Component, srcs []source) workload {
	p := programOf(c.Kind)
	if c.Custom != nil {
		p.command = c.Custom.Command
	}
	w := workload{
		Name: c.Object(), Namespace: c.Cluster.Namespace, Labels: c.Labels(), Selector: c.Selector(),
		PodAnnotations: map[string]string{topology.AnnotationChecksum: checksum(read(c, srcs))},
		GracePeriod:    graceSeconds,
		Container:      c.Kind.Container(), Image: c.Image, PullPolicy: c.PullPolicy,
		Command: p.command, Args: p.args(process{t, s, c}), Resources: c.Resources,
	}
	if p := c.Cluster.IPFamilyPolicy; p != "" {
		w.IPFamilyPolicy = p
	}
	w.IPFamilies = c.Cluster.IPFamilies
	for _, s := range c.PullSecrets {
		w.PullSecrets = append(w.PullSecrets, dict{"name": s})
	}
	if !c.Autoscaled {
		w.Replicas = c.Replicas
	}
	if c.Replicated() {
		w.Affinity, w.Spread = spread(c.Selector())
	}
	w.setVolumes(c, srcs)
	p.pod(&w, c)
	return w
}

// setReplacement sets how pods are replaced by new ones.
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
		// The new pod is ready by now. Servers stop listening as soon as they get the signal to terminate, but nodes
		// need a moment to remove the endpoint. The images have no shell with a sleep command, so the kubelet sleeps.
		leave := leaveSeconds
		if c.Proxied() && c.Replicated() {
			leave = proxiedLeaveSeconds
		}
		w.Lifecycle = dict{"preStop": dict{"sleep": dict{"seconds": leave}}}
		w.GracePeriod += leave
	}
}

// spread keeps replicas on different nodes and in different zones if possible.
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

// setServer sets what pods of kcp servers have.
func (w *workload) setServer(c *topology.Component) {
	w.Ports = []dict{{"name": portHTTPS, "containerPort": c.Port}}
	w.setService(c)
	// The startup probe runs every second, so that a start is noticed quickly. It allows ten minutes, because a shard
	// waits for the root shard, and a front-proxy does not listen before it has reached the root shard.
	w.StartupProbe = probe("/readyz", 1, 5, 600)
	w.ReadinessProbe = probe("/readyz", 5, 5, 3)
	w.LivenessProbe = probe("/livez", 10, 10, 6)
	w.setReplacement(c)
}

// setFrontProxy sets what pods of front-proxies have. A front-proxy reports ready once it knows the shards, and only
// then lists their workspaces (kcp: pkg/proxy/server.go). The second probe gives it the time.
func (w *workload) setFrontProxy(c *topology.Component) {
	w.setServer(c)
	w.ReadinessProbe = probe("/readyz", 2, 5, 5)
	w.ReadinessProbe["successThreshold"] = 2
}

// probe returns a probe of a kcp server: how often, for how many seconds, and how many failures.
func probe(path string, period, timeout, failures int) dict {
	return dict{
		"httpGet":       dict{"path": path, "port": portHTTPS, "scheme": "HTTPS"},
		"periodSeconds": period, "timeoutSeconds": timeout, "failureThreshold": failures,
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
	case s.Ephemeral || c.Cluster.Local:
		w.Volumes = append(w.Volumes, dict{"name": volumeData, "emptyDir": dict{}})
	case c.Kind == topology.Etcd:
		w.ClaimTemplates = []dict{{"metadata": dict{"name": volumeData, "labels": c.Selector()}, "spec": spec}}
	default:
		w.Claim, w.ClaimSpec = c.Object(topology.DataPart), spec
		w.Volumes = append(w.Volumes, dict{"name": volumeData, "persistentVolumeClaim": dict{"claimName": w.Claim}})
	}
}

// source is a Secret or ConfigMap from which a pod mounts some items.
type source struct {
	secret    string
	configMap string
	items     []item
}

// item is a key of a source, and its path below the configuration directory. The content is nil if kcpctl does not
// render the source.
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

// read returns the sources whose files the processes of a component read only when they start.
func read(c *topology.Component, srcs []source) []source {
	if !c.Kind.Reloads() {
		return srcs
	}
	return slices.DeleteFunc(slices.Clone(srcs), func(s source) bool {
		return s.secret != c.Object(topology.KubeconfigsPart)
	})
}

// checksum returns a checksum of the content of all mounted files.
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
