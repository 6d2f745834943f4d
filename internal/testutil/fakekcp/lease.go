package fakekcp

import (
	"fmt"
	"net/http"
	"path"
)

// Lead makes a pod the leader of the replicas of a server, or none if it is empty. Another pod leads when the lease is
// released.
func (k *Kcp) Lead(server, pod, successor string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leaders[server], k.successors[server] = pod, successor
}

// Renew lets the leader of a server renew its lease before every request for it.
func (k *Kcp) Renew(server string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewals[server] = 1
}

// Leader returns the pod that leads the replicas of a server.
func (k *Kcp) Leader(server string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leaders[server]
}

// lease handles requests for the Lease of the leader election of a server's replicas.
func (k *Kcp) lease(server string, r *http.Request) Answer {
	pod, ok := k.leaders[server]
	if !ok {
		return Refuse(http.StatusNotFound, "NotFound", "there is no lease")
	}
	if r.Method == http.MethodPatch {
		k.leaders[server], pod = k.successors[server], ""
	}
	if n, ok := k.renewals[server]; ok {
		k.renewals[server] = n + 1
	}
	identity := ""
	if pod != "" {
		identity = pod + "_5f0e"
	}
	return Answer{http.StatusOK, map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": path.Base(r.URL.Path), "resourceVersion": fmt.Sprint(1 + k.renewals[server])},
		"spec": map[string]any{"holderIdentity": identity},
	}}
}
