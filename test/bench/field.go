package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

var (
	deploymentGVR = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	secretGVR     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// startFor is how long API servers and shards that have just started are left alone: clusters that users register have
// run for some time.
const startFor = 20 * time.Second

// fieldLimit is the time limit of everything that a field waits for.
const fieldLimit = 5 * time.Minute

// field is a kcp with a controller, and two physical clusters.
type field struct {
	dir, kcpctl string
	// admin is the path of the kubeconfig of kcp, and physical are those of the clusters, by name.
	admin    string
	physical map[string]string
	kcp      *rest.Config
	servers  []*apiserver.Server
	syncer   *exec.Cmd
	// image and replicas are those of Deployments, and spread is in how many clusters each of them is.
	image    string
	replicas int64
	spread   int
	// arrived reports whether a Deployment in a cluster is as it should be. Nil: it exists.
	arrived func(*unstructured.Unstructured) bool
	// probes are the addresses of the controller and of the syncer.
	probes  []string
	created int // Deployments in each workspace

	mu sync.Mutex
	// seen has when a Deployment had arrived in a cluster, by name and cluster.
	seen map[string]map[string]time.Time
}

// inField brings up a kcp on this machine, calls a function, and removes everything.
func (b *bench) inField(ctx context.Context, do func(*field) error) (err error) {
	bin, err := testbed(ctx, "kcp-bin-dir")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kcpctl-bench-")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "kcp.yaml")
	if err := os.WriteFile(file, []byte(workloadsSetup), 0o600); err != nil {
		return err
	}
	env := []string{"XDG_STATE_HOME=" + dir, "KCPCTL_KCP_BIN_DIR=" + bin}
	args := []string{"--local", "-f", file}
	defer func() {
		err = errors.Join(err, b.down(ctx, env, args...), killAll(dir), os.RemoveAll(dir))
	}()
	if _, err := b.up(ctx, env, args...); err != nil {
		return err
	}
	f := &field{dir: dir, kcpctl: b.kcpctl, admin: filepath.Join(dir, "admin.kubeconfig"),
		physical: map[string]string{}, seen: map[string]map[string]time.Time{}}
	text, err := command{name: b.kcpctl, args: append([]string{"kubeconfig", "admin"}, args...), env: env}.output(ctx)
	if err == nil {
		err = os.WriteFile(f.admin, []byte(text), 0o600)
	}
	if err != nil {
		return err
	}
	if f.kcp, err = connect.KCP(f.admin, ""); err != nil {
		return err
	}
	f.kcp.QPS = -1
	if f.probes, err = addressesOfProbes(dir); err != nil {
		return err
	}
	return errors.Join(do(f), f.stop())
}

// startServers starts two physical clusters without nodes.
func (f *field) startServers(ctx context.Context) error {
	for _, name := range []string{"c1", "c2"} {
		s, err := apiserver.Start(ctx)
		if err != nil {
			return err
		}
		f.servers = append(f.servers, s)
		if f.physical[name], err = s.Kubeconfig(apiserver.Admin); err != nil {
			return err
		}
	}
	time.Sleep(startFor)
	return ctx.Err()
}

func (f *field) stop() error {
	var errs []error
	if f.syncer != nil {
		errs = append(errs, f.syncer.Process.Kill())
		_ = f.syncer.Wait() // it was killed
	}
	for _, s := range f.servers {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}

func (f *field) in(workspace string) (dynamic.Interface, error) {
	return dynamic.NewForConfig(connect.Workspace(f.kcp, workspace))
}

// wait calls a function until it returns true.
func wait(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, fieldLimit)
	defer cancel()
	for {
		ok, err := done()
		if ok && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// register registers a cluster, and returns the time until it is ready and can be used.
func (f *field) register(ctx context.Context, name string, mode v1alpha1.SyncMode) (time.Duration, error) {
	kubeconfig := f.physical[name]
	if err := f.follow(ctx, name, kubeconfig); err != nil {
		return 0, err
	}
	compute, err := f.in("root:compute")
	if err != nil {
		return 0, err
	}
	spec := map[string]any{"syncMode": string(mode)}
	if mode == v1alpha1.SyncModePush {
		raw, err := os.ReadFile(kubeconfig)
		if err != nil {
			return 0, err
		}
		secret := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name},
			"stringData": map[string]any{"kubeconfig": string(raw)},
		}}
		if _, err := compute.Resource(secretGVR).Namespace("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return 0, err
		}
		spec["kubeconfigSecretRef"] = map[string]any{"namespace": "default", "name": name}
	}
	began := time.Now()
	cluster := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name},
		"spec": spec}}
	cluster.SetGroupVersionKind(api.ClusterGVK())
	if _, err := compute.Resource(api.ClusterGVR()).Create(ctx, cluster, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	if mode == v1alpha1.SyncModeNone {
		if err := f.startSyncer(name, kubeconfig); err != nil {
			return 0, err
		}
	}
	err = wait(ctx, "Cluster "+name+" is not ready", func() (bool, error) {
		live, err := compute.Resource(api.ClusterGVR()).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		c, err := api.ClusterOf(live)
		return err == nil && usable(c), err
	})
	return time.Since(began), err
}

// usable reports whether a cluster is ready and can serve an API.
func usable(c *api.Cluster) bool {
	return slices.ContainsFunc(c.Status.Conditions,
		func(x metav1.Condition) bool { return x.Type == api.ConditionReady && x.Status == metav1.ConditionTrue }) &&
		slices.ContainsFunc(c.Status.APIs, func(a api.APIStatus) bool { return a.State.Serves() })
}

func (f *field) startSyncer(cluster, kubeconfig string) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(f.dir, "syncer.log"))
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the process has it
	f.syncer = exec.Command(f.kcpctl, "syncer", "--cluster-name", cluster, "--kcp-kubeconfig", f.admin, "--kubeconfig",
		kubeconfig, "--health-probe-bind-address", address)
	f.syncer.Stdout, f.syncer.Stderr = log, log
	f.probes = append(f.probes, address)
	return f.syncer.Start()
}

// follow records when Deployments arrive in a cluster.
func (f *field) follow(ctx context.Context, name, kubeconfig string) error {
	cfg, err := connect.File(kubeconfig, "")
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	w, err := client.Resource(deploymentGVR).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	go func() {
		for e := range w.ResultChan() {
			if o, ok := e.Object.(*unstructured.Unstructured); ok && (f.arrived == nil || f.arrived(o)) {
				f.see(o.GetName(), name)
			}
		}
	}()
	return nil
}

func (f *field) see(deployment, cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[deployment] == nil {
		f.seen[deployment] = map[string]time.Time{}
	}
	if f.seen[deployment][cluster].IsZero() {
		f.seen[deployment][cluster] = time.Now()
	}
}

// workspaces creates the workspaces from one number to another, over the shards in turn.
func (f *field) workspaces(ctx context.Context, from, to int) error {
	root, err := f.in("root")
	if err != nil {
		return err
	}
	client := root.Resource(kcpapi.Workspace.GVR())
	for i := from; i < to; i++ {
		w := kcpapi.Workspace.New(fmt.Sprintf("team-%d", i))
		w.Object["spec"] = map[string]any{
			"type": map[string]any{"path": "root:compute", "name": "workload"},
			"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"name": []string{"root",
				"alpha", "beta"}[i%3]}}},
		}
		// The type was published a moment ago.
		if err := wait(ctx, "Workspace "+w.GetName()+" cannot be created", func() (bool, error) {
			_, err := client.Create(ctx, w, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return true, nil
			}
			return true, err
		}); err != nil {
			return err
		}
	}
	return wait(ctx, "workspaces are not ready", func() (bool, error) {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		n := 0
		for _, w := range list.Items {
			if phase, _, _ := unstructured.NestedString(w.Object, "status", "phase"); phase == "Ready" &&
				strings.HasPrefix(w.GetName(), "team-") {
				n++
			}
		}
		return n == to, nil
	})
}
