package standin

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// Site is a namespace whose pods run, with a kcp that answers while they do.
type Site struct {
	Namespace string
	Kcp       *fakekcp.Kcp

	admin dynamic.Interface
	token string // of its kubeconfig

	mu       sync.Mutex
	pods     map[string]Pod
	problems []string
}

// Pod is a running pod.
type Pod struct {
	*corev1.Pod
	Component topology.ID
	// Files are those that it has read at its start, by path.
	Files map[string][]byte

	owner string
}

func newSite(admin dynamic.Interface, namespace string, kcp *fakekcp.Kcp) *Site {
	return &Site{Namespace: namespace, Kcp: kcp, admin: admin, token: rand.Text(), pods: map[string]Pod{}}
}

// Problem records a violation.
func (s *Site) Problem(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// Problems returns the violations so far.
func (s *Site) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

// Running returns the running pods, by name.
func (s *Site) Running() map[string]Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.pods)
}

// End stops a pod.
func (s *Site) End(pod string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, pod)
}

// start starts a pod with its files: it serves, and a shard registers itself.
func (s *Site) start(owner string, pod *corev1.Pod, files map[string][]byte) {
	id := topology.IDFromLabels(pod.Labels)
	s.mu.Lock()
	s.pods[pod.Name] = Pod{pod, id, files, owner}
	s.mu.Unlock()
	if id.Kind() == topology.Etcd {
		return
	}
	var f topology.Files
	s.Kcp.Serve(string(id), pki.Pair{Cert: files[f.Cert(topology.CertServer)], Key: files[f.Key(topology.CertServer)]},
		slices.Concat(files[f.CA(topology.ClientCA)], files[f.CA(topology.RequestHeaderCA)]))
	if id.Kind() == topology.RootShard || id.Kind() == topology.Shard {
		s.join(string(id), pod)
	}
}

// join registers a shard that starts. The first of its replicas becomes the leader.
func (s *Site) join(id string, pod *corev1.Pod) {
	flags := map[string]string{}
	for _, a := range pod.Spec.Containers[0].Args {
		name, value, _ := strings.Cut(a, "=")
		flags[name] = value
	}
	s.Kcp.Register(kcp.Shard{
		Name: flags["--shard-name"], BaseURL: flags["--shard-base-url"], ExternalURL: flags["--shard-external-url"],
		VirtualWorkspaceURL: flags["--shard-virtual-workspace-url"],
	})
	leader := s.Kcp.Leader(id)
	if leader == "" {
		leader = pod.Name
	}
	s.Kcp.Lead(id, leader, pod.Name)
}

// dial connects to the server in a pod.
func (s *Site) dial(ctx context.Context, pod string) (net.Conn, error) {
	s.mu.Lock()
	p, ok := s.pods[pod]
	s.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("pod %s does not run", pod)
	}
	return s.Kcp.Dial(ctx, string(p.Component))
}
