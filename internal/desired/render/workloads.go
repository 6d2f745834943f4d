package render

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

const (
	portHealth = "health"
	pathHealth = "/healthz"
)

// controllerFlags returns the flags of kcpctl controller (cmd/controller.go). The installation is the setup in physical
// clusters: it exists before the compute workspace, and remains when that is created again.
func controllerFlags(i pki.Installation, c *topology.Component) []flag {
	w := c.Workloads
	return []flag{
		{"setup-id", i.ID},
		{"kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigKcp))},
		{"workspace", w.Workspace},
		{"workspace-type", w.WorkspaceType},
		{"apis", strings.Join(w.APIs, ",")},
		{"health-probe-bind-address", fmt.Sprintf("%s:%d", c.BindAddress, c.Port)},
		{"v", fmt.Sprint(*c.LogLevel)},
	}
}

// syncerFlags returns the flags of kcpctl syncer (cmd/syncer.go). In a pod it connects to the API server with the token
// of its ServiceAccount.
func syncerFlags(c *topology.Component) []flag {
	fl := []flag{
		{"cluster-name", c.Name},
		{"kcp-kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigKcp))},
		{"workspace", c.ComputeWorkspace()},
		{"health-probe-bind-address", fmt.Sprintf("%s:%d", c.BindAddress, c.Port)},
		{"v", fmt.Sprint(*c.LogLevel)},
	}
	if c.Cluster.Local {
		fl = append(fl, flag{"kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigPhysical))})
	}
	return fl
}

// setController sets the fields that differ between pods of the controller and pods of kcp.
func (w *workload) setController(c *topology.Component) {
	w.setKcpctl(c)
	w.Strategy = dict{"type": "RollingUpdate", "rollingUpdate": dict{"maxSurge": 1, "maxUnavailable": 0}}
}

// setSyncer sets the fields that differ between pods of a syncer and pods of kcp. There is one syncer at a time:
// another one would wait until it ends.
func (w *workload) setSyncer(c *topology.Component) {
	w.setKcpctl(c)
	w.ServiceAccount, w.MountToken = c.Object(), true
	w.Strategy = dict{"type": "Recreate"}
}

// setKcpctl sets what pods with a server of kcpctl have in common. One that is not ready, because kcp does not answer,
// is not restarted.
func (w *workload) setKcpctl(c *topology.Component) {
	w.Ports = []dict{{"name": portHealth, "containerPort": c.Port}}
	probe := func(path string, period, failures int) dict {
		return dict{
			"httpGet":       dict{"path": path, "port": portHealth},
			"periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures,
		}
	}
	_, ready := c.Kind.Probe()
	w.StartupProbe, w.ReadinessProbe, w.LivenessProbe = probe(pathHealth, 1, 60), probe(ready, 5,
		3), probe(pathHealth, 10, 6)
}

// controller adds the compute workspace, what the controller needs in it, and the workload.
func (b *objects) controller(w workload) {
	compute := b.c.Workloads.Workspace
	b.existing(compute)
	if b.err == nil {
		crd, err := api.CRD()
		if err != nil {
			b.err = err
			return
		}
		crd.SetLabels(WorkspaceLabels(b.c.Setup, b.r.state.Installation.ID))
		crd.SetAnnotations(merged(crd.GetAnnotations(),
			map[string]string{topology.AnnotationComponent: string(b.c.ID())}))
		b.out = append(b.out, Object{Workspace: compute, Component: b.c.ID(), Unstructured: crd})
	}
	b.roleIn(compute, api.ControllerRules())
	b.users()
	if b.c.Replicated() {
		b.add(pdbTemplate, w)
	}
	b.add(deploymentTemplate, w, podOverlays(b.c.PodTemplates)...)
}

// users lets groups use the WorkspaceType.
func (b *objects) users() {
	w := b.c.Workloads
	role := api.RoleUsers(w.WorkspaceType)
	var groups []rbacv1.Subject
	for _, group := range w.Groups {
		groups = append(groups, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	b.addIn(w.Workspace, roleTemplate, inWorkspace{Name: role, Rules: api.UserRules(w.WorkspaceType)})
	b.addIn(w.Workspace, roleBindingTemplate, inWorkspace{Name: role, Role: role, Subjects: groups})
}

// physical adds the account of the syncer on a physical cluster, and the Cluster object. The Secret with the credential
// of the account is filled when it is applied, because API servers issue tokens. A syncer that the user starts has its
// own rights in the compute workspace: kcpctl kubeconfig --syncer mints its credential.
func (b *objects) physical() {
	if b.c.Physical.SyncMode == v1alpha1.SyncModeNone {
		b.syncerRole()
	}
	b.accountOn()
	b.podRules()
	b.clusterObject()
}

// accountOn adds the account on a physical cluster of a syncer that runs elsewhere. Its token is issued when it is
// applied.
func (b *objects) accountOn() {
	on, account, role := topology.OnPhysical(b.c.Name), b.c.Object(topology.TokenPart), b.c.SyncerRole()
	b.addIn(on, syncerNamespaceTemplate, inWorkspace{
		Name: api.NamespaceSyncer, Annotations: map[string]string{topology.AnnotationUse: topology.UseExisting},
	})
	b.addIn(on, syncerTemplate, inWorkspace{Name: account, Namespace: api.NamespaceSyncer})
	b.addIn(on, roleTemplate, inWorkspace{Name: role, Rules: b.syncerRules()})
	b.addIn(on, roleBindingTemplate, inWorkspace{Name: role, Role: role, Subjects: []rbacv1.Subject{
		{Kind: rbacv1.ServiceAccountKind, Namespace: api.NamespaceSyncer, Name: account},
	}})
}

// syncerRules returns the rules that the syncer needs in its physical cluster.
func (b *objects) syncerRules() []rbacv1.PolicyRule {
	return api.SyncerRules(groupResources(b.c.Physical.Workloads.APIs))
}

// syncer adds a physical cluster with a syncer that connects to kcp: its rights in the compute workspace, the Cluster
// object, its account, and the workload.
func (b *objects) syncer(w workload) {
	b.syncerRole()
	b.podRules()
	b.clusterObject()
	if b.c.Cluster.Local {
		b.accountOn()
	} else {
		b.account(b.c.Cluster.Namespace, b.syncerRules(), nil)
	}
	b.add(deploymentTemplate, w, podOverlays(b.c.PodTemplates)...)
}

// syncerRole adds what a syncer that connects to kcp may do in the compute workspace.
func (b *objects) syncerRole() {
	b.roleIn(b.c.ComputeWorkspace(), api.SyncerRulesInWorkspace(b.c.Name, groupResources(b.c.Physical.Workloads.APIs)))
}

// clusterObject adds the Cluster object, with the Secret of the credential that the controller uses.
func (b *objects) clusterObject() {
	p, compute := b.c.Physical, b.c.ComputeWorkspace()
	spec := api.ClusterSpec{SyncMode: p.SyncMode, ClusterSettings: p.ClusterSettings}
	spec.Tenancy = clusterTenancy(p.Tenancy)
	if p.SyncMode == v1alpha1.SyncModePush {
		secret := api.SecretCluster(b.c.Name)
		b.addIn(compute, credentialTemplate, inWorkspace{
			Name: secret, Namespace: api.NamespaceLeases,
			Annotations: map[string]string{topology.AnnotationCredential: topology.OnPhysical(b.c.Name)},
		})
		spec.KubeconfigSecretRef = &api.SecretReference{Namespace: api.NamespaceLeases, Name: secret}
	}
	b.addIn(compute, clusterTemplate, inWorkspace{Name: b.c.Name, Labels: p.Labels})
	if b.err == nil { // not in the template, which would lose the empty selectors of a NetworkPolicy
		b.out[len(b.out)-1].Object["spec"], b.err = plain(spec)
	}
}

// clusterTenancy returns the part of the tenancy that the syncer needs: the other rules are in the policy of the
// cluster.
func clusterTenancy(t *v1alpha1.Tenancy) *v1alpha1.Tenancy {
	if t == nil || t.Pods == nil {
		return t
	}
	out := &v1alpha1.Tenancy{Objects: t.Objects}
	if len(t.Pods.NodeSelector) > 0 {
		out.Pods = &v1alpha1.PodRules{NodeSelector: t.Pods.NodeSelector}
	} else if len(t.Objects) == 0 {
		return nil
	}
	return out
}

// groupResources parses APIs of the setup file.
func groupResources(apis []string) []schema.GroupResource {
	var out []schema.GroupResource
	for _, a := range apis {
		out = append(out, schema.ParseGroupResource(a))
	}
	return out
}
