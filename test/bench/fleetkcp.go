package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// The paths of resources in the simulated kcp.
const (
	fleetDeployments = "apis/apps/v1/deployments"
	fleetConfigMaps  = "api/v1/configmaps"
	fleetSecrets     = "api/v1/secrets"
	fleetNamespaces  = "api/v1/namespaces"
	fleetBindings    = "apis/apis.kcp.io/v1alpha2/apibindings"
	fleetSlices      = "apis/apis.kcp.io/v1alpha1/apiexportendpointslices"
)

const (
	fleetCompute = "root:compute"
	// claimsAfter is the time until the simulated kcp has applied the claims of a binding: until then, a syncer sees
	// nothing in the workspace.
	claimsAfter = time.Second
	// namespacesEach is how many namespaces a workspace has.
	namespacesEach = 4
)

// fleetState is what the simulated kcp tells.
type fleetState struct {
	// Deployments is how many there are, and Decided how many of them have had a leaf. Objects are all but leaves, and
	// Leaves are those.
	Deployments, Decided, Objects, Leaves int
	// Known means that a controller has listed everything in the workspaces, and watches it.
	Known bool
	// Writes is how many requests have written to workspaces, and Own how many to the compute workspace.
	Writes, Own int64
	// Kinds has the number of writes by method, resource and subresource.
	Kinds map[string]int64
	// Latencies are the seconds from the creation of a Deployment until a syncer has seen a leaf of it, by crowd.
	Latencies map[string][]float64
}

// fleetKCP is a simulated kcp, with clusters.
type fleetKCP struct {
	fleetServer
	server   *httptest.Server
	queues   map[string]*fleetWatch
	clusters int

	state sync.Mutex
	// beats is the number of heartbeats of each cluster, and joined how many cores have joined it.
	beats, joined map[string]int
	// decided are the roots that have had a leaf, existing are the roots whose leaf a syncer has seen, and bound the
	// bindings whose claims are applied.
	decided, existing, bound map[fleetKey]bool
	latencies                map[string][]float64
	// parked are leaves that a syncer does not see yet, by binding.
	parked map[fleetKey][]fleetKey
}

// newFleetKCP returns a kcp without workspaces that serves, and starts the syncers of its clusters.
func newFleetKCP(ctx context.Context, clusters int) (*fleetKCP, error) {
	f := &fleetKCP{
		fleetServer: fleetServer{fleetStore: newFleetStore()}, queues: map[string]*fleetWatch{}, clusters: clusters,
		beats: map[string]int{}, joined: map[string]int{},
		decided: map[fleetKey]bool{}, existing: map[fleetKey]bool{}, bound: map[fleetKey]bool{}, latencies: map[string][]float64{},
		parked: map[fleetKey][]fleetKey{},
	}
	f.leafChanged = f.onLeaf
	f.written = map[string]func(fleetKey, bool){fleetBindings: f.onBinding, fleetExports: f.identify, fleetClusters: f.begin}
	for i := range clusters {
		q := &fleetWatch{wake: make(chan struct{}, 1)}
		f.queues[fleetCluster(i)] = q
		go f.sync(ctx, fleetCluster(i), q)
	}
	f.server = httptest.NewServer(f)
	context.AfterFunc(ctx, func() { f.server.CloseClientConnections(); f.server.Close() })
	if err := f.register(); err != nil {
		return nil, err
	}
	go f.beatAll(ctx)
	return f, f.publish()
}

// publish publishes the URL of the virtual workspace.
func (f *fleetKCP) publish() error {
	_, err := f.change(fleetKey{fleetSlices, fleetCompute, "", api.ExportWorkloads}, true, "", func(o map[string]any) {
		o["apiVersion"], o["kind"] = "apis.kcp.io/v1alpha1", "APIExportEndpointSlice"
		o["status"] = map[string]any{"endpoints": []any{map[string]any{"url": f.server.URL + fleetExport}}}
	})
	return err
}

func fleetCluster(i int) string   { return fmt.Sprintf("c%03d", i) }
func fleetWorkspace(i int) string { return fmt.Sprintf("w%04dx7kq2m9", i) }
func fleetNamespace(i int) string { return fmt.Sprintf("team-%d", i%namespacesEach) }

// fill creates workspaces, and in each of them the same number of objects: of ten, seven Deployments, two ConfigMaps,
// of which they need one, and a Secret.
func (f *fleetKCP) fill(workspaces, each int) error {
	for w := range workspaces {
		workspace := fleetWorkspace(w)
		if err := f.put(fleetKey{fleetBindings, workspace, "", api.ExportWorkloads}, "", fleetBinding()); err != nil {
			return err
		}
		for i := range namespacesEach {
			namespace := map[string]any{"apiVersion": "v1", "kind": "Namespace"}
			if err := f.put(fleetKey{fleetNamespaces, workspace, "", fleetNamespace(i)}, "", namespace); err != nil {
				return err
			}
		}
		for i := range each {
			name := fmt.Sprintf("app-%d", i)
			k, o := fleetKey{fleetDeployments, workspace, fleetNamespace(i), name}, fleetDeployment(i)
			switch i / namespacesEach % 10 {
			case 7, 8:
				data := map[string]any{"settings": strings.Repeat("key=value\n", 150)}
				k.resource, o = fleetConfigMaps, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": data}
			case 9:
				data := map[string]any{"token": strings.Repeat("c2Vj", 100)}
				k.resource, o = fleetSecrets, map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data}
			}
			if err := f.put(k, "", o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fleetKCP) put(k fleetKey, crowd string, object map[string]any) error {
	_, err := f.change(k, true, crowd, func(o map[string]any) { applyFleet(o, object) })
	return err
}

// create creates Deployments at a rate, in workspaces at random but the first.
func (f *fleetKCP) create(ctx context.Context, workspaces, rate, seconds int, crowd string) error {
	return paced(ctx, rate, seconds, func(i int) error {
		k := fleetKey{fleetDeployments, fleetWorkspace(1 + rand.IntN(workspaces-1)), fleetNamespace(i), fmt.Sprintf("%s-%d", crowd, i)}
		return f.put(k, crowd, fleetDeployment(i))
	})
}

// flood creates and changes Deployments of the first workspace at a rate: 300 of them, repeatedly.
func (f *fleetKCP) flood(ctx context.Context, rate, seconds int) error {
	return paced(ctx, rate, seconds, func(i int) error {
		o := fleetDeployment(i % 300)
		within(o, "spec")["minReadySeconds"] = i / 300
		return f.put(fleetKey{fleetDeployments, fleetWorkspace(0), fleetNamespace(i), fmt.Sprintf("flood-%d", i%300)}, "", o)
	})
}

// paced calls a function at a rate.
func paced(ctx context.Context, rate, seconds int, do func(i int) error) error {
	began := time.Now()
	for i := range rate * seconds {
		if wait := time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil || time.Since(began) > time.Duration(seconds)*time.Second {
			return ctx.Err()
		}
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

// tell returns the state, and forgets the latencies.
func (f *fleetKCP) tell() fleetState {
	out := fleetState{Writes: f.writes.Load(), Own: f.own.Load(), Kinds: f.kinds(), Known: true}
	f.mu.Lock()
	for _, r := range []string{fleetDeployments, fleetConfigMaps, fleetSecrets, fleetNamespaces, fleetBindings} {
		out.Known = out.Known && f.watched(r)
	}
	out.Leaves, out.Deployments, out.Objects = f.leaves, f.deployments, f.deployments+f.others
	f.mu.Unlock()
	f.state.Lock()
	defer f.state.Unlock()
	out.Decided, out.Latencies = len(f.decided), f.latencies
	f.latencies = map[string][]float64{}
	return out
}

// rootOf returns the root of a leaf.
func rootOf(k fleetKey) fleetKey {
	if i := strings.LastIndex(k.name, "--"); i > 0 {
		k.name = k.name[:i]
	}
	return k
}

// onLeaf gives a leaf to the syncer of its cluster. The store is locked.
func (f *fleetKCP) onLeaf(cluster string, k fleetKey) {
	if k.resource == fleetDeployments {
		f.state.Lock()
		f.decided[rootOf(k)] = true
		f.state.Unlock()
	}
	if q := f.queues[cluster]; q != nil {
		q.mu.Lock()
		q.events = append(q.events, fleetEvent{kind: strings.Join([]string{k.resource, k.workspace, k.namespace, k.name}, " ")})
		q.mu.Unlock()
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// onBinding applies the claims of a new binding, a moment later.
func (f *fleetKCP) onBinding(k fleetKey, created bool) {
	if !created {
		return
	}
	time.AfterFunc(claimsAfter, func() {
		var export string
		_, _ = f.change(k, false, "", func(o map[string]any) {
			export, _ = within(within(within(o, "spec"), "reference"), "export")["name"].(string)
			o["status"] = fleetApplied()
		})
		at := fleetKey{fleetBindings, k.workspace, "", export}
		f.state.Lock()
		f.bound[at] = true
		parked := f.parked[at]
		delete(f.parked, at)
		f.state.Unlock()
		for _, leaf := range parked {
			f.onLeaf(strings.TrimPrefix(export, api.ExportCluster("")), leaf)
		}
	})
}

// sync is the syncer of a cluster whose pods are ready at once.
func (f *fleetKCP) sync(ctx context.Context, cluster string, q *fleetWatch) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		for _, e := range q.take() {
			parts := strings.Split(e.kind, " ")
			f.syncOne(cluster, fleetKey{parts[0], parts[1], parts[2], parts[3]})
		}
	}
}

func (f *fleetKCP) syncOne(cluster string, k fleetKey) {
	root := f.get(rootOf(k))
	at := fleetKey{fleetBindings, k.workspace, "", api.ExportCluster(cluster)}
	f.state.Lock()
	if !f.bound[at] {
		f.parked[at] = append(f.parked[at], k)
		f.state.Unlock()
		return
	}
	if root != nil && root.crowd != "" && !f.existing[rootOf(k)] {
		f.existing[rootOf(k)] = true
		f.latencies[root.crowd] = append(f.latencies[root.crowd], time.Since(root.created).Seconds())
	}
	f.state.Unlock()
	_, _ = f.change(k, false, "", func(o map[string]any) {
		meta := within(o, "metadata")
		if meta["deletionTimestamp"] != nil {
			all, _ := meta["finalizers"].([]any)
			meta["finalizers"] = slices.DeleteFunc(slices.Clone(all), func(x any) bool { return x == api.FinalizerSyncer })
			return
		}
		if status, _ := o["status"].(map[string]any); k.resource == fleetDeployments && status["observedGeneration"] != meta["generation"] {
			n := within(o, "spec")["replicas"]
			o["status"] = map[string]any{
				"observedGeneration": meta["generation"], "replicas": n, "updatedReplicas": n, "readyReplicas": n, "availableReplicas": n,
				"conditions": []any{trueCondition("Available"), trueCondition("Synced")},
			}
		}
	})
}

func trueCondition(kind string) map[string]any {
	return map[string]any{"type": kind, "status": "True", "reason": kind, "lastTransitionTime": "2026-01-01T00:00:00Z"}
}

// fleetApplied is the status of a binding whose claims are applied.
func fleetApplied() map[string]any {
	return map[string]any{"conditions": []any{trueCondition("PermissionClaimsApplied")}}
}

// fleetBinding is the binding of a workspace to the published APIs.
func fleetBinding() map[string]any {
	return map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
		"spec": map[string]any{"reference": map[string]any{"export": map[string]any{"path": fleetCompute, "name": api.ExportWorkloads}}},
	}
}

// fleetDeployment is a Deployment of about 2 KB.
func fleetDeployment(i int) map[string]any {
	env := []any{}
	for e := range 12 {
		env = append(env, map[string]any{"name": fmt.Sprintf("SETTING_%d", e), "value": fmt.Sprintf("value-%d-of-application-%d", e, i)})
	}
	needed := fmt.Sprintf("app-%d", 7*namespacesEach+i%namespacesEach) // the first ConfigMap of its namespace
	requests, limits := map[string]any{"cpu": "100m", "memory": "128Mi"}, map[string]any{"memory": "256Mi"}
	labels := map[string]any{"app.kubernetes.io/name": fmt.Sprintf("app-%d", i), "app.kubernetes.io/part-of": "shop"}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"labels": labels, "annotations": map[string]any{"example.com/owner": fmt.Sprintf("team-%d", i%50)}},
		"spec": map[string]any{
			"replicas": 1 + i%3/2, "selector": map[string]any{"matchLabels": labels},
			"strategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": "25%", "maxUnavailable": "25%"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec": map[string]any{
					"containers": []any{map[string]any{
						"name": "app", "image": fmt.Sprintf("registry.example.com/shop/app-%d:1.2.%d", i, i%9), "env": env,
						"envFrom":   []any{map[string]any{"configMapRef": map[string]any{"name": needed}}},
						"ports":     []any{map[string]any{"containerPort": 8080, "protocol": "TCP", "name": "http"}},
						"resources": map[string]any{"requests": requests, "limits": limits},
						"readinessProbe": map[string]any{
							"httpGet": map[string]any{"path": "/healthz", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3,
						},
					}},
					"restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
				},
			},
		},
	}
}
