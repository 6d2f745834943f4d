package model_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// dial connects a command to a server. Its certificate comes from its Secret, its trusted authorities from its
// ConfigMap.
func (s *command) dial(ctx context.Context, c *topology.Component) (net.Conn, error) {
	cl, err := s.who.cluster(c.Cluster)
	if err != nil {
		return nil, err
	}
	if err := s.read(ctx, cl); err != nil {
		return nil, err
	}
	w := s.world
	w.mu.Lock()
	defer w.mu.Unlock()
	refused := fmt.Errorf("connect to %s: connection refused", c.ID())
	at := key{deployments, c.Cluster.Namespace, c.Object()}
	p := w.servers[key{cl.name + " " + deployments, at.namespace, at.name}]
	if s.ended || cl.objects[at] == nil || p == nil && c.Kind != topology.FrontProxy || p != nil && p.store == nil {
		return nil, refused
	}
	config, err := serving(cl, c)
	if err != nil {
		return nil, refused
	}
	owner := w.owners[place{cl.name, c.Cluster.Namespace}]
	here, there := net.Pipe()
	srv := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.mu.Lock()
			a := w.answer(owner, p, r)
			w.mu.Unlock()
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(a.code)
			if text, ok := a.body.(string); ok {
				_, _ = io.WriteString(rw, text)
				return
			}
			_ = json.NewEncoder(rw).Encode(a.body)
		}),
	}
	l := fakekcp.NewListener()
	s.closers = append(s.closers, func() { _ = srv.Close(); _ = here.Close(); _ = there.Close() })
	go func() { _ = srv.Serve(oneConn{l, tls.Server(there, config)}.once()) }()
	return here, nil
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	net.Listener
	conn net.Conn
}

func (l oneConn) once() net.Listener {
	return &accepts{Listener: l.Listener, conn: l.conn}
}

type accepts struct {
	net.Listener
	conn net.Conn
}

func (l *accepts) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	return l.Listener.Accept()
}

// serving returns the TLS configuration of a server, from the objects of its cluster.
func serving(c *cluster, part *topology.Component) (*tls.Config, error) {
	ns := part.Cluster.Namespace
	secret, ca := c.objects[key{secrets, ns, part.Object("server")}], c.objects[key{configMaps, ns, part.Setup + "-ca"}]
	if secret == nil || ca == nil {
		return nil, fmt.Errorf("no certificate")
	}
	data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
	cert, _ := base64.StdEncoding.DecodeString(data["tls.crt"])
	private, _ := base64.StdEncoding.DecodeString(data["tls.key"])
	pair, err := tls.X509KeyPair(cert, private)
	if err != nil {
		return nil, err
	}
	trusted, _, _ := unstructured.NestedStringMap(ca.Object, "data")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(trusted["client.crt"]))
	pool.AppendCertsFromPEM([]byte(trusted["requestheader.crt"]))
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
	}, nil
}

type answer struct {
	code int
	body any
}

func refuse(code int, reason string) answer {
	return answer{code, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": reason}}
}

func listOf(apiVersion, kind string, items []any) answer {
	return answer{http.StatusOK, map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{}, "items": items}}
}

// answer handles a request to a server of an installation. p is nil for a front-proxy.
func (w *world) answer(i *installation, p *process, r *http.Request) answer {
	if r.URL.Path == "/readyz" {
		return answer{http.StatusOK, "ok"}
	}
	root := w.root(i)
	if p == nil {
		p = root
	}
	if root == nil || p == nil {
		return refuse(http.StatusServiceUnavailable, "ServiceUnavailable")
	}
	parts := strings.Split(r.URL.Path, "/") // "", clusters, root, apis, group, version, resource, name
	if len(parts) > 5 && parts[3] == "api" && slices.Contains(parts, "secrets") {
		return w.answerSecrets(p, r, parts[2])
	}
	if len(parts) < 7 || parts[1] != "clusters" {
		return refuse(http.StatusNotFound, "NotFound")
	}
	name := ""
	if len(parts) > 7 {
		name = parts[7]
	}
	switch parts[6] {
	case "shards":
		return root.store.answerShards(name, r)
	case "workspaces":
		return w.answerWorkspaces(root.store, name, r)
	case "logicalclusters":
		if name != "" {
			return answer{http.StatusOK, map[string]any{"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": name}}}
		}
		return w.answerClusters(i, p)
	case "clusterrolebindings":
		return answer{http.StatusOK, map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name}}}
	case "apiexports":
		return answer{http.StatusOK, map[string]any{
			"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport", "metadata": map[string]any{"name": name}, "status": map[string]any{"identityHash": "id"},
		}}
	}
	return refuse(http.StatusNotFound, "NotFound")
}

func (s *store) shard(name string) map[string]any {
	meta := map[string]any{"name": name}
	if s.shards[name].cordoned {
		meta["annotations"] = map[string]any{kcp.CordonAnnotation: "true"}
	}
	return map[string]any{"apiVersion": "core.kcp.io/v1alpha1", "kind": "Shard", "metadata": meta, "spec": map[string]any{"baseURL": s.shards[name].url}}
}

func (s *store) answerShards(name string, r *http.Request) answer {
	if r.Method == http.MethodPost {
		var o struct {
			Metadata struct{ Name string }
			Spec     struct{ BaseURL string }
		}
		_ = json.NewDecoder(r.Body).Decode(&o)
		if s.shards[o.Metadata.Name] != nil {
			return refuse(http.StatusConflict, "AlreadyExists")
		}
		s.shards[o.Metadata.Name] = &registration{url: o.Spec.BaseURL}
		return answer{http.StatusCreated, s.shard(o.Metadata.Name)}
	}
	if name == "" {
		items := []any{}
		var names []string
		for n := range s.shards {
			names = append(names, n)
		}
		slices.Sort(names)
		for _, n := range names {
			items = append(items, s.shard(n))
		}
		return listOf("core.kcp.io/v1alpha1", "ShardList", items)
	}
	if s.shards[name] == nil {
		return refuse(http.StatusNotFound, "NotFound")
	}
	switch r.Method {
	case http.MethodDelete:
		delete(s.shards, name)
		return answer{http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success"}}
	case http.MethodPatch:
		var patch struct {
			Metadata struct{ Annotations map[string]any }
		}
		_ = json.NewDecoder(r.Body).Decode(&patch)
		if v, ok := patch.Metadata.Annotations[kcp.CordonAnnotation]; ok {
			s.shards[name].cordoned = v != nil
		}
	}
	return answer{http.StatusOK, s.shard(name)}
}

// answerWorkspaces handles requests for the workspaces of canaries. Each is Ready at once and is not stored.
func (w *world) answerWorkspaces(_ *store, name string, r *http.Request) answer {
	if r.Method == http.MethodDelete {
		return listOf("tenancy.kcp.io/v1alpha1", "WorkspaceList", []any{})
	}
	code := http.StatusOK
	if r.Method == http.MethodPost {
		code, name = http.StatusCreated, "canary"
	}
	return answer{code, map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": name}, "status": map[string]any{"phase": "Ready"},
	}}
}

func (w *world) answerClusters(i *installation, p *process) answer {
	items := []any{}
	for _, s := range w.of(i, p.id) {
		if s.store == p.store {
			items = append(items, map[string]any{
				"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster",
				"metadata": map[string]any{"name": "cluster", "annotations": map[string]any{"kcp.io/cluster": s.name, "kcp.io/path": "root:" + s.name}},
			})
		}
	}
	return listOf("core.kcp.io/v1alpha1", "LogicalClusterList", items)
}
