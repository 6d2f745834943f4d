// Package heartbeat reports whether a physical cluster runs what is scheduled to it. The syncer of the cluster renews a Lease in the
// compute workspace, and reports with it how it is. The controller judges the Lease.
package heartbeat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/workload/api"
)

const (
	// Interval is the time between two heartbeats.
	Interval = 10 * time.Second
	// Grace is how long the controller waits for a heartbeat.
	Grace = 40 * time.Second
	// timeout is the time limit of a request.
	timeout = 5 * time.Second
)

// Leases is the resource of Leases.
var Leases = coordinationv1.SchemeGroupVersion.WithResource("leases")

// annotationReport is the annotation of a Lease with the Report, as JSON.
const annotationReport = api.Group + "/report"

// Report is what a syncer tells with a heartbeat.
type Report struct {
	Mode api.SyncMode `json:"mode"`
	// Version is the version of the syncer, and ClusterVersion that of the API server of the physical cluster.
	Version        string `json:"version,omitempty"`
	ClusterVersion string `json:"clusterVersion,omitempty"`
	// Reason and Message are why the syncer does not reach the physical cluster. Empty: it does.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Orphans is why orphans are not removed. Empty: they are.
	Orphans string `json:"orphans,omitempty"`
	// Capacity are the resources of the cluster. Nil: they are not known.
	Capacity *api.Capacity `json:"capacity,omitempty"`
	// APIs are the states of the published APIs in a cluster that the controller cannot read. Nil: they are not known.
	APIs []api.APIStatus `json:"apis,omitempty"`
}

// Sender sends the heartbeats of a syncer.
type Sender struct {
	// KCP has the URL and the credentials of a front-proxy or a shard, and Physical those of the physical cluster.
	KCP, Physical *rest.Config
	// Workspace is the path of the compute workspace.
	Workspace string
	// Cluster is the name of the physical cluster, and Holder that of the process.
	Cluster, Holder string
	Now             func() time.Time
	// Sent is called after each heartbeat that kcp has accepted. Nil ignores it.
	Sent func()
	// Report returns the state of the syncer. The sender adds whether the physical cluster is reached.
	Report func() Report
}

// Run sends heartbeats until the context ends. A heartbeat that cannot be sent is missed: the next one is sent in time.
func (s *Sender) Run(ctx context.Context) error {
	cfg := rest.CopyConfig(s.KCP)
	cfg.Host, cfg.Timeout = strings.TrimRight(cfg.Host, "/")+"/clusters/"+s.Workspace, timeout
	kcp, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	physical, err := rest.HTTPClientFor(s.Physical)
	if err != nil {
		return fmt.Errorf("client for cluster %s: %w", s.Cluster, err)
	}
	client := kcp.Resource(Leases).Namespace(api.NamespaceLeases)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := s.send(ctx, client, physical); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot send a heartbeat", "cluster", s.Cluster)
		}
	}, Interval)
	return nil
}

func (s *Sender) send(ctx context.Context, client dynamic.ResourceInterface, physical *http.Client) error {
	report := s.Report()
	if err := ready(ctx, physical, s.Physical.Host); err != nil {
		report.Reason, report.Message = reasonOf(err), err.Error()
	}
	raw, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("heartbeat of cluster %s: %w", s.Cluster, err)
	}
	lease := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"holderIdentity": s.Holder, "leaseDurationSeconds": int64(Grace / time.Second),
		"renewTime": s.Now().UTC().Format(metav1.RFC3339Micro),
	}}}
	lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	lease.SetName(api.LeaseCluster(s.Cluster))
	lease.SetAnnotations(map[string]string{annotationReport: string(raw)})
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err = client.Apply(ctx, lease.GetName(), lease, metav1.ApplyOptions{FieldManager: api.ManagerSyncer, Force: true})
	if err != nil {
		return fmt.Errorf("renew Lease %s/%s in workspace %s: %w", api.NamespaceLeases, lease.GetName(), s.Workspace, err)
	}
	if s.Sent != nil {
		s.Sent()
	}
	return nil
}

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 4 << 10

// ready requests /readyz of an API server.
func ready(ctx context.Context, client *http.Client, host string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(host, "/")+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("the API server of the cluster is not reached: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the API server of the cluster is not reached: %w", err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized:
		return apierrors.NewUnauthorized("the API server of the cluster does not accept the credentials: renew the kubeconfig")
	case http.StatusForbidden:
		return nil // it answers, and the user may not read /readyz
	}
	return fmt.Errorf("the API server of the cluster is not ready: %s: %s", resp.Status, strings.TrimSpace(string(body)))
}

func reasonOf(err error) string {
	if apierrors.IsUnauthorized(err) {
		return api.ReasonUnauthorized
	}
	return api.ReasonUnreachable
}

// errNoReport means that a Lease was not written by a syncer.
var errNoReport = errors.New("the Lease has no report of a syncer")

// ReportOf returns the report of a Lease.
func ReportOf(lease *unstructured.Unstructured) (Report, error) {
	var out Report
	text, ok := lease.GetAnnotations()[annotationReport]
	if !ok {
		return out, errNoReport
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return out, fmt.Errorf("report of Lease %s: %w", lease.GetName(), err)
	}
	return out, nil
}
