package render

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/workload/api"
)

const (
	containerController = "kcpctl"
	portHealth          = "health"
)

// controllerFlags returns the flags of kcpctl controller (cmd/controller.go).
func controllerFlags(c *topology.Component) []flag {
	w := c.Workloads
	return []flag{
		{"kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigKcp))},
		{"workspace", w.Workspace},
		{"workspace-type", w.WorkspaceType},
		{"apis", strings.Join(w.APIs, ",")},
		{"health-probe-bind-address", fmt.Sprintf("%s:%d", c.BindAddress, c.Port)},
		{"v", fmt.Sprint(c.LogLevel)},
	}
}

// setController sets what differs between the pods of the controller and those of kcp.
func (w *workload) setController(c *topology.Component) {
	w.Container = containerController
	w.Strategy = dict{"type": "RollingUpdate", "rollingUpdate": dict{"maxSurge": 1, "maxUnavailable": 0}}
	w.Ports = []dict{{"name": portHealth, "containerPort": c.Port}}
	_, path := c.Kind.Probe()
	probe := func(period, failures int) dict {
		return dict{
			"httpGet":       dict{"path": path, "port": portHealth},
			"periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures,
		}
	}
	w.StartupProbe, w.ReadinessProbe, w.LivenessProbe = probe(1, 60), probe(5, 3), probe(10, 6)
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
		crd.SetAnnotations(merged(crd.GetAnnotations(), map[string]string{topology.AnnotationComponent: string(b.c.ID())}))
		b.out = append(b.out, Object{Workspace: compute, Component: b.c.ID(), Unstructured: crd})
	}
	b.roleIn(compute, api.ControllerRules())
	if b.c.Replicas > requiredReplicas {
		b.add(pdbTemplate, w)
	}
	b.add(deploymentTemplate, w, podOverlays(b.c.PodTemplates)...)
}

// physical adds the account of the syncer on a physical cluster, and the Cluster object. The Secret with the credential of the account
// is filled when it is applied, because API servers issue tokens.
func (b *objects) physical() {
	p := b.c.Physical
	on, compute := topology.OnPhysical(b.c.Name), p.Workloads.Workspace
	account, role := b.c.Object(), b.c.User()
	b.addIn(on, syncerNamespaceTemplate, inWorkspace{
		Name: api.NamespaceSyncer, Annotations: map[string]string{topology.AnnotationUse: topology.UseExisting},
	})
	b.addIn(on, syncerTemplate, inWorkspace{Name: account, Namespace: api.NamespaceSyncer})
	b.addIn(on, roleTemplate, inWorkspace{Name: role, Rules: api.SyncerRules(groupResources(p.Workloads.APIs))})
	b.addIn(on, roleBindingTemplate, inWorkspace{Name: role, Role: role, Subjects: []rbacv1.Subject{
		{Kind: rbacv1.ServiceAccountKind, Namespace: api.NamespaceSyncer, Name: account},
	}})
	spec := dict{"syncMode": string(p.SyncMode)}
	if p.Unschedulable {
		spec["unschedulable"] = true
	}
	if p.EvictAfter != nil {
		spec["evictAfter"] = p.EvictAfter.Duration.String()
	}
	if p.SyncMode == v1alpha1.SyncModePush {
		secret := api.SecretCluster(b.c.Name)
		b.addIn(compute, credentialTemplate, inWorkspace{
			Name: secret, Namespace: api.NamespaceLeases, Annotations: map[string]string{topology.AnnotationCredential: on},
		})
		spec["kubeconfigSecretRef"] = dict{"namespace": api.NamespaceLeases, "name": secret}
	}
	b.addIn(compute, clusterTemplate, inWorkspace{Name: b.c.Name, Labels: p.Labels, Spec: spec})
}

// groupResources parses APIs of the setup file.
func groupResources(apis []string) []schema.GroupResource {
	var out []schema.GroupResource
	for _, a := range apis {
		out = append(out, schema.ParseGroupResource(a))
	}
	return out
}
