package framework

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

const threeMembers = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %s}
spec:
  external: {hostname: kcp.example.test}
  etcd: {managed: {replicas: 3, ephemeral: %t}}
  frontProxies:
    - {name: main, service: {type: LoadBalancer}}
  kubeconfigs:
    - {name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}
`

func TestLostMember(t *testing.T, s *Setup, ephemeral bool) {
	s.Text = fmt.Sprintf(threeMembers, s.Name, ephemeral)
	s.Write(t, s.Text)
	s.Up(t)
	pod := s.Name + "-etcd-root-1"
	before := s.allHealthy(t)
	Step(t, "a healthy member is not replaced", func(t *testing.T) {
		s.etcd(t, "replace-member", pod, "--yes").Refused(t, 1, pod, "kcpctl etcd members")
	})
	w := startWriter(t, s)
	Step(t, "nothing changes", func(t *testing.T) {
		time.Sleep(5 * time.Second)
		w.report(t)
	})
	Step(t, "a member loses its data", func(t *testing.T) {
		c := s.Runtime.(*Cluster)
		if !ephemeral {
			c.Kubectl("delete", "pvc", "data-"+pod, "--namespace", c.Setup, "--wait=false").Run(t.Context(), t).OK(t)
		}
		c.Kubectl("delete", "pod", pod, "--namespace", c.Setup).Run(t.Context(), t).OK(t)
		Eventually(t.Context(), t, func() error {
			return c.Crashes(t, pod)
		})
		Eventually(t.Context(), t, func() error {
			lost, err := s.tryEtcdMembers(t)
			if err == nil && (lost[1].Healthy || !lost[0].Healthy || !lost[2].Healthy) {
				err = fmt.Errorf("not only %s is unhealthy: %v", pod, lost)
			}
			return err
		})
		w.report(t)
	})
	Step(t, "it is replaced", func(t *testing.T) {
		t.Log(s.etcd(t, "replace-member", pod, "--yes").OK(t).Quiet(t).Stderr)
		after := s.allHealthy(t)
		for i, m := range after {
			require.Equal(t, i == 1, m.ID != before[i].ID, "only the replaced member has another ID: %v", after)
		}
		w.report(t)
	})
	Step(t, "another member can fail now", func(t *testing.T) {
		c := s.Runtime.(*Cluster)
		if ephemeral {
			return // it would lose its data
		}
		c.Kubectl("delete", "pod", s.Name+"-etcd-root-0", "--namespace", c.Setup).Run(t.Context(), t).OK(t)
		s.allHealthy(t)
	})
	w.stop()
	w.report(t)
	t.Logf("%d of %d requests failed in all", w.failed, w.requests)
	Step(t, "no acknowledged write is lost", func(t *testing.T) { w.verify(t) })
	Step(t, "nothing is left to do", func(t *testing.T) { s.Kcpctl(t, "diff").OK(t) })
	Step(t, "down --purge leaves nothing", func(t *testing.T) { LeavesNothing(t, s) })
}

// TestReplacedAuthorities loses the PKI of a setup with an etcd of three members, and replaces the authorities.
func TestReplacedAuthorities(t *testing.T, s *Setup) {
	s.Text = fmt.Sprintf(threeMembers, s.Name, false)
	s.Write(t, s.Text)
	s.Up(t)
	before := s.allHealthy(t)
	Step(t, "the PKI is lost", func(t *testing.T) {
		c := s.Runtime.(*Cluster)
		c.Kubectl("delete", "secret", s.Name+"-pki", "--namespace", c.Setup).Run(t.Context(), t).OK(t)
		s.Kcpctl(t, "up").Refused(t, 1, "is empty", "--replace-authorities")
	})
	Step(t, "authorities are replaced", func(t *testing.T) {
		r := s.Kcpctl(t, "up", "--replace-authorities").OK(t)
		require.Contains(t, r.Stderr, "all members restart together")
		for i, m := range s.allHealthy(t) {
			require.Equal(t, before[i].ID, m.ID, "the members keep their data")
		}
	})
	Step(t, "nothing is left to do", func(t *testing.T) { s.Kcpctl(t, "diff").OK(t) })
	Step(t, "down --purge leaves nothing", func(t *testing.T) { LeavesNothing(t, s) })
}

// etcd runs a command of kcpctl etcd.
func (s *Setup) etcd(t *testing.T, name string, args ...string) Result {
	t.Helper()
	c := s.Command(name)
	c.Args = append(append([]string{"etcd", name, "--file", s.File}, s.Flags("")...), args...)
	return c.Run(t.Context(), t)
}

type etcdMember struct {
	Pod, ID, Reason string
	Healthy         bool
}

func (s *Setup) tryEtcdMembers(t *testing.T) ([]etcdMember, error) {
	t.Helper()
	var out struct{ Items []etcdMember }
	err := s.etcd(t, "members", "root", "--output", "json").Decode(&out)
	if err == nil && len(out.Items) != 3 {
		err = fmt.Errorf("not three members: %v", out.Items)
	}
	return out.Items, err
}

// allHealthy waits until all members are healthy. One that does not answer in time is not.
func (s *Setup) allHealthy(t *testing.T) (all []etcdMember) {
	t.Helper()
	Eventually(t.Context(), t, func() (err error) {
		all, err = s.tryEtcdMembers(t)
		for _, m := range all {
			if err == nil && !m.Healthy {
				err = fmt.Errorf("%s: %s", m.Pod, m.Reason)
			}
		}
		return err
	})
	return all
}

// Crashes returns an error unless a pod is in a crash loop. It does not exist for a moment after it was deleted.
func (c *Cluster) Crashes(t *testing.T, pod string) error {
	t.Helper()
	get := c.Kubectl("get", "pod", pod, "--namespace", c.Namespace, "--ignore-not-found", "--output",
		"jsonpath={.status.containerStatuses[0].state.waiting.reason}")
	reason, err := get.Run(t.Context(), t).Output()
	if err == nil && reason != "CrashLoopBackOff" {
		err = fmt.Errorf("%s is not in a crash loop: %q", pod, reason)
	}
	return err
}

// writer creates objects continuously, and keeps the names of those whose creation was acknowledged.
type writer struct {
	load   *Load
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	names []string

	requests, failed int
}

func startWriter(t *testing.T, s *Setup) *writer {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	c := s.Command("kubeconfig")
	c.Args = append([]string{"kubeconfig", "admin", "--file", s.File, "--output", kubeconfig}, s.Flags("")...)
	c.Run(t.Context(), t).OK(t)
	w := &writer{load: &Load{Kubeconfig: kubeconfig, Dial: s.Dialer(t), Now: Tally{Failures: map[string]*Failure{}}}}
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel
	for i := range 2 {
		w.done.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				w.create(ctx, fmt.Sprintf("write-%d-%d", i, n))
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	t.Cleanup(func() { w.stop() })
	return w
}

func (w *writer) create(ctx context.Context, name string) {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
		"data": map[string]any{"of": strings.Repeat(name, 20)},
	}}
	err := w.load.Request(ctx, "create", "root", nil, func(ctx context.Context, c dynamic.Interface) error {
		_, err := c.Resource(ConfigMaps()).Namespace("default").Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.names = append(w.names, name)
	}
}

func (w *writer) stop() {
	w.cancel()
	w.done.Wait()
}

// report logs the requests since the last report.
func (w *writer) report(t *testing.T) {
	t.Helper()
	n := w.load.Take()
	t.Log(n)
	w.requests, w.failed = w.requests+n.Requests, w.failed+n.Failed
}

// verify requires every acknowledged object.
func (w *writer) verify(t *testing.T) {
	t.Helper()
	client, err := w.load.Connect("root")
	require.NoError(t, err)
	var list *unstructured.UnstructuredList
	Eventually(t.Context(), t, func() (err error) {
		list, err = client.Resource(ConfigMaps()).Namespace("default").List(t.Context(), metav1.ListOptions{})
		return err
	})
	stored := map[string]string{}
	for _, o := range list.Items {
		stored[o.GetName()], _, _ = unstructured.NestedString(o.Object, "data", "of")
	}
	require.NotEmpty(t, w.names)
	t.Logf("%d objects were acknowledged, %d exist", len(w.names), len(stored))
	for _, name := range w.names {
		require.Equal(t, strings.Repeat(name, 20), stored[name], name)
	}
}
