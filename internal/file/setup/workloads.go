package setup

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/version"
)

const (
	defaultWorkloadsRepository = "ghcr.io/kcpctl/kcpctl"
	// DefaultComputeWorkspace is the path of the compute workspace, unless spec.workloads.workspace sets another one.
	DefaultComputeWorkspace = "root:compute"
	// DefaultWorkspaceType is the name of the WorkspaceType whose workspaces can use the APIs, unless
	// spec.workloads.workspaceType sets another one.
	DefaultWorkspaceType = "workload"
	// defaultGroup are all users, as for the types of kcp itself (kcp:
	// config/root/clusterrolebinding-workspacetype-use.yaml).
	defaultGroup = "system:authenticated"
)

// KcpctlImage returns the image of kcpctl that a setup uses: spec.workloads.image with its defaults.
func KcpctlImage(spec *v1alpha1.Spec) v1alpha1.Image { return kcpctlImage(spec, version.Get()) }

// kcpctlImage sets the defaults of a build. The digest is only for the default repository: a copy in another one
// may have one architecture, and then has another digest.
func kcpctlImage(spec *v1alpha1.Spec, build version.Info) v1alpha1.Image {
	var i v1alpha1.Image
	if spec.Workloads != nil {
		i = spec.Workloads.Image
	}
	fill(&i.Repository, defaultWorkloadsRepository)
	if i.Tag == "" && i.Digest == "" {
		i.Tag = tagOf(build.Version)
		if i.Repository == defaultWorkloadsRepository {
			i.Digest = build.ImageDigest
		}
	}
	fill(&i.PullPolicy, spec.Image.PullPolicy)
	if i.PullSecrets == nil {
		i.PullSecrets = append([]string(nil), spec.Image.PullSecrets...)
	}
	return i
}

// tagOf returns the tag of the image of a kcpctl, its version. Tags cannot contain the + that versions may have.
func tagOf(version string) string { return strings.ReplaceAll(version, "+", "-") }

// WithName returns an image with another name, as users type it: mirror.example.com/kcpctl:v1, or with a digest. A name
// without both gets the tag latest, as in Kubernetes.
func WithName(i v1alpha1.Image, name string) v1alpha1.Image {
	i.Repository, i.Digest, _ = strings.Cut(name, "@")
	i.Tag = ""
	if i.Digest == "" {
		i.Tag = "latest"
	}
	if at := strings.LastIndex(i.Repository, ":"); at > strings.LastIndex(i.Repository, "/") {
		i.Tag = i.Repository[at+1:]
		i.Repository = i.Repository[:at]
	}
	return i
}

// defaultWorkloads sets the defaults of spec.workloads. It does not use spec.defaults, which is for kcp.
func defaultWorkloads(spec *v1alpha1.Spec) {
	w := spec.Workloads
	if w == nil {
		return
	}
	fill(&w.Cluster, spec.RootShard.Cluster)
	fill(&w.Workspace, DefaultComputeWorkspace)
	fill(&w.WorkspaceType, DefaultWorkspaceType)
	if len(w.Groups) == 0 {
		w.Groups = []string{defaultGroup}
	}
	if len(w.APIs) == 0 {
		w.APIs = api.DefaultAPIs()
	}
	w.Image = KcpctlImage(spec)
	fillPointer(&w.Replicas, 1)
	fillPointer(&w.LogLevel, defaultLogLevel)
	if w.Resources == nil {
		w.Resources = resourcesOf("", topology.Workloads)
	}
	for i := range w.Clusters {
		c := &w.Clusters[i]
		if fill(&c.SyncMode, v1alpha1.SyncModePush); c.SyncMode == v1alpha1.SyncModePull && c.Resources == nil {
			c.Resources = resourcesOf("", topology.Physical)
		}
	}
}

// workloadFields checks fields of spec.workloads.
type workloadFields struct{ *fields }

// workloads checks spec.workloads.
func (v *validator) workloads() {
	w := v.setup.Spec.Workloads
	if w == nil {
		return
	}
	p := field.NewPath("spec", "workloads")
	if w.Cluster != v.setup.Spec.RootShard.Cluster { // checked already
		v.reference(p.Child("cluster"), "cluster", w.Cluster, v.clusterNames())
	}
	v.workspacePath(p.Child("workspace"), w.Workspace)
	if w.Workspace == topology.RootWorkspace {
		v.invalid(p.Child("workspace"), w.Workspace,
			"must be a workspace of its own: its administrators can read the credentials for all clusters")
	}
	if !v.matches(typeName, w.WorkspaceType) {
		v.invalid(p.Child("workspaceType"), w.WorkspaceType, "must be the name of a WorkspaceType, such as workload")
	}
	v.computeWorkspace(p.Child("workspaceType"), w, topology.RootWorkspace, v.setup.Spec.Workspaces)
	for i, group := range w.Groups {
		if group == "" {
			v.required(p.Child("groups").Index(i), "")
		}
		v.unique(p.Child("groups").Index(i), group)
	}
	v.workloadAPIs(p.Child("apis"), w.APIs)
	v.otherImage(p.Child("image"), w.Image)
	v.replicas(p, w.Replicas)
	v.defaults(p, v1alpha1.Defaults{Resources: w.Resources, ExtraArgs: w.ExtraArgs,
		ServerSettings: v1alpha1.ServerSettings{LogLevel: w.LogLevel}}, topology.Workloads)
	v.commonName(metadataName(), v.setup.Metadata.Name, topology.ControllerUser(v.setup.Metadata.Name))
	v.workloadClusters(p.Child("clusters"), w.Clusters)
}

// computeWorkspace refuses the type of the controller for the workspace that has the type, and for those above it.
func (v workloadFields) computeWorkspace(
	p *field.Path, w *v1alpha1.Workloads, parent string, all []v1alpha1.Workspace,
) {
	for _, ws := range all {
		path := topology.ChildPath(parent, ws.Name)
		if ws.Type == w.Workspace+":"+w.WorkspaceType && topology.Within(w.Workspace, path) {
			v.invalid(p, w.WorkspaceType, "workspace %s has this type, which is created later, in workspace %s",
				path, w.Workspace)
		}
		v.computeWorkspace(p, w, path, ws.Workspaces)
	}
}

// workloadAPIs checks the APIs to publish. kcp serves some APIs itself, in every workspace.
func (v workloadFields) workloadAPIs(p *field.Path, apis []string) {
	for i, a := range apis {
		v.unique(p.Index(i), a)
		if !v.matches(`[a-z][a-z0-9]*(?:\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`, a) {
			v.invalid(p.Index(i), a, "must be RESOURCE.GROUP, such as deployments.apps")
		} else if slices.Contains(api.ServedByKCP(), schema.ParseGroupResource(a)) {
			v.invalid(p.Index(i), a, "kcp serves this API itself in every workspace")
		} else if kinds.ClusterScoped(schema.ParseGroupResource(a)) {
			v.invalid(p.Index(i), a,
				"its objects have no namespace, so they belong to the cluster and cannot be those of a workspace")
		}
	}
}

// workloadClusters checks the physical clusters.
func (v *validator) workloadClusters(p *field.Path, all []v1alpha1.WorkloadCluster) {
	type place struct{ context, kubeconfig string }
	places := map[place]string{}
	for i, c := range all {
		at, problems := p.Index(i), len(v.errs)
		var pl place
		pl.context, pl.kubeconfig = topology.ConnectionOf(v.setup.Spec.Clusters, c)
		v.clusterName(at.Child("name"), c.Name)
		v.unique(at.Child("name"), c.Name)
		oneOf(v.fields, at.Child("syncMode"), c.SyncMode, v1alpha1.SyncModes...)
		if c.PodSecurity != "" {
			oneOf(v.fields, at.Child("podSecurity"), c.PodSecurity, v1alpha1.PodSecurities...)
		}
		v.labelMap(at.Child("labels"), c.Labels)
		if _, problem := urlProblem(c.Server, "https"); c.Server != "" && problem != "" {
			v.invalid(at.Child("server"), c.Server, "%s", problem)
		}
		v.file(at.Child("kubeconfig"), c.Kubeconfig)
		v.selector(at.Child("workspaceSelector"), c.WorkspaceSelector)
		v.tenancy(at.Child("tenancy"), c.Tenancy)
		v.quantities(at.Child("maxCapacity"), c.MaxCapacity)
		v.syncerPlace(at, c)
		if other, taken := places[pl]; taken && other != c.Name && (c.Cluster == "" || len(v.errs) == problems) {
			v.invalid(at.Child("name"), c.Name, "cluster %s has the same context and kubeconfig", other)
		}
		places[pl] = c.Name
	}
}

// syncerPlace checks where the syncer of a cluster runs, if it is a Deployment there.
func (v *validator) syncerPlace(at *field.Path, c v1alpha1.WorkloadCluster) {
	if c.SyncMode != v1alpha1.SyncModePull {
		for _, f := range []struct {
			name string
			set  bool
		}{{"cluster", c.Cluster != ""}, {"resources", c.Resources != nil}, {"podTemplate", len(c.PodTemplate) > 0}} {
			if f.set {
				v.forbidden(at.Child(f.name), "only with syncMode %s", v1alpha1.SyncModePull)
			}
		}
		return
	}
	v.resources(at.Child("resources"), c.Resources)
	switch named := slices.Contains(v.clusterNames(), c.Name); {
	case c.Cluster == "" && named:
		v.invalid(at.Child("name"), c.Name,
			"spec.clusters has a cluster of this name: set cluster to %s instead of context and kubeconfig, or "+
				"choose another name", c.Name)
	case c.Cluster != "" && c.Context+c.Kubeconfig != "":
		v.forbidden(at.Child("cluster"), "must have either cluster, or context and kubeconfig")
	case c.Cluster != "":
		v.reference(at.Child("cluster"), "cluster", c.Cluster, v.clusterNames())
	}
}

// clusterName requires a name of which the names of the objects of a cluster can be made, and the common name of its
// syncer.
func (v *validator) clusterName(p *field.Path, name string) {
	if name == "" {
		v.required(p, "")
		return
	}
	if err := api.ValidateClusterName(name); err != nil {
		v.invalid(p, name, "%s", err)
		return
	}
	v.commonName(p, name, topology.SyncerUser(v.setup.Metadata.Name, name))
}

// commonName requires that a common name that is made of a name fits into a certificate.
func (v workloadFields) commonName(p *field.Path, name, common string) {
	if len(common) > maxSubject {
		v.invalid(p, name, "is too long: the common name %s has %d characters, and the limit of a certificate is %d",
			common, len(common), maxSubject)
	}
}
