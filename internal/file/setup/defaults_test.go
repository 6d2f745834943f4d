package setup

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/version"
)

func TestTagOfTheImageOfKcpctl(t *testing.T) {
	require.Equal(t, "v0.1.0", tagOf("v0.1.0"))
	require.Equal(t, "v0.1.0-dirty", tagOf("v0.1.0+dirty"), "a tag cannot have a plus")
}

// everyKind has a component of each kind, and no fields with defaults.
const everyKind = minimal + `spec:
  cacheServer: {}
  rootShard: {}
  shards:
  - {name: alpha, etcd: {embedded: {}}}
  - {name: beta, etcd: {external: {endpoints: ["http://etcd:2379"]}}}
  virtualWorkspaces: [{name: one}]
  pki: {store: Directory}
  networkPolicies: {}
  frontProxies:
  - {name: main, external: {hostname: kcp.example.com}, pathMappings: [{path: /services/mine, backend: "https://mine"}], serving: {secret: public}}
  kubeconfigs: [{name: dev}]
  agents: [{name: widgets, workspace: "root:widgets", publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget}}}]}]
  workloads: {clusters: [{name: c1}]}
  authentication:
    oidc: {issuerURL: "https://login.example.com", clientID: kcp, groupsClaim: groups}
    webhook: {secret: webhook}
    tokenFile: {secret: tokens}
`

// TestDocumentedDefaults compares the comments of the types with SetDefaults: each comment with "Default:" must have an
// entry here, and SetDefaults must set it.
func TestDocumentedDefaults(t *testing.T) {
	s, little := parse(t, everyKind).Spec, parse(t, minimal).Spec
	alpha, beta, agent := s.Shards[0], s.Shards[1], s.Agents[0]
	workloads := s.Workloads
	pulled := parse(t, minimal+`spec:
  clusters: [{name: home, context: home}]
  workloads: {clusters: [{name: c1}, {name: c2, cluster: home, syncMode: Pull}]}
`).Spec.Workloads.Clusters[1]
	managed := s.RootShard.Etcd.Managed
	computed := "computed by package topology"
	login, webhook := s.Authentication.OIDC, s.Authentication.Webhook
	ws := parse(t, minimal+`spec:
  workspaces:
  - {name: a, access: [{clusterRole: view, users: [x]}], bindings: [{export: "root:b:widgets", claims: [{resource: secrets}]}]}
`).Spec.Workspaces[0]
	set := parse(t, minimal+`spec:
  audit: {policy: {configMap: policy}}
  authorization: {webhook: {secret: webhook}}
  rootShard: {audit: {policy: {rules: [{level: Metadata, resources: [{}]}]}, webhook: {secret: a, truncateMaxEventSize: 9}}}
`).Spec
	own := set.RootShard.Audit
	scaled := parse(t, minimal+"spec: {defaults: {replicas: 2}, frontProxies: [{name: main, autoscaling: {maxReplicas: 3}}]}\n").Spec.FrontProxies[0]
	got := map[string][2]any{ // got, want
		"Autoscaling.MinReplicas":                    {[]any{scaled.Autoscaling.MinReplicas, scaled.Replicas}, []any{int32(1), v1alpha1.ReplicasUnmanaged}},
		"Autoscaling.TargetCPUUtilizationPercentage": {scaled.Autoscaling.TargetCPUUtilizationPercentage, int32(80)},
		"Audit.Log":                         {set.Audit.Log != nil && own.Log == nil, true},
		"AuditBackend.TruncateEnabled":      {*own.Webhook.TruncateEnabled, true},
		"AuditPolicy.Key":                   {set.Audit.Policy.Key, "policy.yaml"},
		"AuditResources.Resources":          {len(own.Policy.Rules[0].Resources[0].Resources), 0}, // kcp knows the defaults of its policy
		"AuditRule.OmitManagedFields":       {own.Policy.Rules[0].OmitManagedFields == nil, true},
		"AuditRules.OmitManagedFields":      {own.Policy.OmitManagedFields, false},
		"Authorization.Order":               {len(set.Authorization.Order), 0}, // kcp knows its order
		"AuthorizationWebhook.Version":      {set.Authorization.Webhook.Version, "v1"},
		"Encryption.Resources":              {parse(t, minimal+"spec: {encryption: {}}\n").Spec.Encryption.Resources[0], "secrets"},
		"KMS.Name":                          {parse(t, minimal+"spec: {encryption: {kms: {endpoint: \"unix:///k\"}}}\n").Spec.Encryption.KMS.Name, "kms"},
		"ServerSettings.LogFormat":          {set.Defaults.LogFormat, ""}, // the default of kcp
		"ServerSettings.ProfilerPort":       {set.Defaults.ProfilerPort, int32(0)},
		"HomeWorkspaces.CreatorGroups":      {len(set.HomeWorkspaces.CreatorGroups), 0}, // the default of kcp
		"HomeWorkspaces.Enabled":            {set.HomeWorkspaces.Enabled == nil, true},
		"ShardSpec.Audit":                   {computed, computed},
		"ShardSpec.Authorization":           {computed, computed},
		"Spec.Batteries":                    {len(set.Batteries), 0}, // package render knows them
		"Spec.Version":                      {little.Version, "v0.32.3"},
		"Spec.External":                     {s.External, v1alpha1.External{}}, // topology knows the Service
		"Spec.Clusters":                     {fmt.Sprint(little.Clusters), "[{default   kcp cluster.local  []   [] }]"},
		"Spec.Size":                         {little.Size, v1alpha1.Size("")},
		"Spec.NetworkPolicies":              {little.NetworkPolicies == nil, true},
		"Spec.CacheServer":                  {little.CacheServer == nil, true},
		"Spec.FrontProxies":                 {len(little.FrontProxies) == 1 && little.FrontProxies[0].Name == "main", true},
		"Spec.Kubeconfigs":                  {fmt.Sprint(little.Kubeconfigs), "[{admin {main } kcp-admin [system:kcp:admin] root {8766h0m0s} []}]"},
		"Image.Repository":                  {s.Image.Repository, "ghcr.io/kcp-dev/kcp"},
		"Image.Tag":                         {s.Image.Tag, ""}, // topology takes spec.version
		"Image.PullPolicy":                  {string(s.Image.PullPolicy), "IfNotPresent"},
		"External.Port":                     {s.FrontProxies[0].External.Port, int32(6443)},
		"Cluster.Context":                   {s.Clusters[0].Context, ""}, // client-go takes the current one
		"Cluster.Kubeconfig":                {s.Clusters[0].Kubeconfig, ""},
		"Cluster.Namespace":                 {s.Clusters[0].Namespace, "kcp"},
		"Cluster.Domain":                    {s.Clusters[0].Domain, "cluster.local"},
		"PKI.Store":                         {string(s.PKI.Store) + string(little.PKI.Store), "DirectoryCluster"},
		"PKI.Directory":                     {s.PKI.Directory + little.PKI.Directory, "pki"},
		"PKI.KeyAlgorithm":                  {string(s.PKI.KeyAlgorithm), "ECDSA-P256"},
		"PKI.CAValidity":                    {s.PKI.CAValidity.Hours(), 87600.0},
		"PKI.CertificateValidity":           {s.PKI.CertificateValidity.Hours(), 8760.0},
		"Defaults.Replicas":                 {s.Defaults.Replicas, v1alpha1.Replicas(1)},
		"Defaults.Resources":                {s.RootShard.Resources.Requests.Memory().String(), "512Mi"},
		"ServerSettings.LogLevel":           {*s.FrontProxies[0].LogLevel, int32(2)},
		"Component.Cluster":                 {s.RootShard.Cluster + " " + alpha.Cluster, "default default"},
		"Component.Expose":                  {s.RootShard.Expose, v1alpha1.Expose{Type: "ClusterIP"}},
		"Expose.Internal":                   {alpha.Expose.Internal, false},
		"Expose.Type":                       {alpha.Expose.Type, v1alpha1.ExposeClusterIP},
		"Expose.NodePort":                   {computed, computed},
		"Expose.ClassName":                  {alpha.Expose.ClassName, ""}, // Kubernetes knows its default class
		"Gateway.Namespace":                 {alpha.Expose.Gateway.Namespace, ""},
		"Gateway.SectionName":               {alpha.Expose.Gateway.SectionName, ""},
		"ManagedEtcd.Replicas":              {*managed.Replicas, int32(1)},
		"ManagedEtcd.Image":                 {managed.Image, "gcr.io/etcd-development/etcd:v3.6.16"},
		"ManagedEtcd.Storage":               {managed.Storage.String(), "8Gi"},
		"ManagedEtcd.StorageClassName":      {managed.StorageClassName, ""},             // Kubernetes knows its default class
		"ManagedEtcd.Quota":                 {managed.Quota, (*resource.Quantity)(nil)}, // etcd has one
		"ManagedEtcd.AutoCompaction":        {managed.AutoCompaction.Duration, time.Duration(0)},
		"ManagedEtcd.Resources":             {managed.Resources.Requests.Memory().String(), "128Mi"},
		"NetworkPolicies.Clients":           {s.NetworkPolicies.Clients, map[string]string(nil)},
		"NetworkPolicies.MetricsClients":    {s.NetworkPolicies.MetricsClients, map[string]string(nil)},
		"ExternalEtcd.Prefix":               {beta.Etcd.External.Prefix, ""}, // the first up knows,
		"EmbeddedEtcd.Storage":              {alpha.Etcd.Embedded.Storage.String(), "8Gi"},
		"EmbeddedEtcd.StorageClassName":     {alpha.Etcd.Embedded.StorageClassName, ""},
		"EmbeddedEtcd.Ephemeral":            {[2]bool{*alpha.Etcd.Embedded.Ephemeral, *s.CacheServer.Etcd.Embedded.Ephemeral}, [2]bool{false, true}},
		"CacheServer.Etcd":                  {s.CacheServer.Etcd.Embedded != nil && s.CacheServer.Etcd.Managed == nil, true},
		"ShardSpec.Etcd":                    {cmp.Diff(managed, s.Etcd.Managed), ""},
		"ShardSpec.URL":                     {computed, computed},
		"ShardSpec.VirtualWorkspaceURL":     {computed, computed},
		"FrontProxy.Autoscaling":            {s.FrontProxies[0].Autoscaling == nil, true},
		"FrontProxy.External":               {computed, computed},
		"ShardSpec.FrontProxy":              {computed, computed},
		"VirtualWorkspace.FrontProxy":       {computed, computed},
		"VirtualWorkspace.Command":          {s.VirtualWorkspaces[0].Custom(), false},
		"VirtualWorkspace.Path":             {s.VirtualWorkspaces[0].Path, ""},
		"VirtualWorkspace.KubeconfigSecret": {s.VirtualWorkspaces[0].KubeconfigSecret, ""},
		"FrontProxy.Serving":                {little.FrontProxies[0].Serving == nil, true},
		"Serving.CA":                        {s.FrontProxies[0].Serving.CA, ""}, // clients use those of their system
		"PathMapping.CA":                    {computed, computed},
		"PathMapping.ClientSecret":          {computed, computed},
		"PathMapping.UserHeader":            {s.FrontProxies[0].PathMappings[0].UserHeader, "X-Remote-User"},
		"PathMapping.GroupHeader":           {s.FrontProxies[0].PathMappings[0].GroupHeader, "X-Remote-Group"},
		"PathMapping.ExtraHeaderPrefix":     {s.FrontProxies[0].PathMappings[0].ExtraHeaderPrefix, "X-Remote-Extra-"},
		"FrontProxy.Authentication":         {computed, computed},
		"Agent.Cluster":                     {agent.Cluster, "default"},
		"Agent.Version":                     {agent.Version, "v0.7.0"},
		"Agent.Image":                       {agent.Image, v1alpha1.Image{Repository: "ghcr.io/kcp-dev/api-syncagent", Tag: "v0.7.0", PullPolicy: "IfNotPresent"}},
		"Agent.APIExport":                   {agent.APIExport, "widgets"},
		"Agent.Bind":                        {fmt.Sprint(agent.Bind), "[root:widgets]"},
		"Agent.Replicas":                    {*agent.Replicas, int32(1)},
		"Agent.Resources":                   {agent.Resources.Requests.Memory().String(), "128Mi"},
		"Agent.LogLevel":                    {*agent.LogLevel, int32(2)},
		"PublishedResource.Plural":          {agent.PublishedResources[0].Plural, ""}, // package agent knows it
		"Workloads.Cluster":                 {workloads.Cluster, "default"},
		"Workloads.Workspace":               {workloads.Workspace, "root:compute"},
		"Workloads.WorkspaceType":           {workloads.WorkspaceType, "workload"},
		"Workloads.Groups":                  {workloads.Groups, []string{"system:authenticated"}},
		"Workloads.APIs":                    {len(workloads.APIs), 10},
		"Workloads.Image":                   {workloads.Image, v1alpha1.Image{Repository: "ghcr.io/kcpctl/kcpctl", Tag: tagOf(version.Get().Version), PullPolicy: "IfNotPresent"}},
		"Workloads.Replicas":                {*workloads.Replicas, int32(1)},
		"Workloads.Resources":               {workloads.Resources.Requests.Memory().String(), "128Mi"},
		"Workloads.LogLevel":                {*workloads.LogLevel, int32(2)},
		"WorkloadCluster.Context":           {workloads.Clusters[0].Context, ""}, // as kubectl
		"WorkloadCluster.Kubeconfig":        {workloads.Clusters[0].Kubeconfig, ""},
		"WorkloadCluster.Cluster":           {workloads.Clusters[0].Cluster, ""}, // its own place
		"WorkloadCluster.Resources":         {pulled.Resources.Requests.Memory().String(), "64Mi"},
		"WorkloadCluster.Server":            {workloads.Clusters[0].Server, ""}, // the kubeconfig has it
		"WorkloadCluster.SyncMode":          {workloads.Clusters[0].SyncMode, v1alpha1.SyncModePush},
		"ClusterSettings.EvictAfter":        {api.DefaultEvictAfter, time.Minute},                            // the controller knows it
		"ClusterSettings.WorkspaceSelector": {(*v1alpha1.WorkspaceSelector)(nil).Selects("root:team"), true}, // the controller knows it
		"ClusterSettings.Tenancy":           {workloads.Clusters[0].Tenancy == nil, true},
		"Tenancy.Objects":                   {len((&api.Cluster{}).TemplateObjects()), 0}, // the syncer knows it
		"Tenancy.Pods":                      {v1alpha1.Tenancy{}.Pods == nil, true},
		"PodRules.PriorityClasses":          {v1alpha1.PodRules{}.PriorityClasses == nil, true},
		"PodRules.TolerationKeys":           {v1alpha1.PodRules{}.TolerationKeys == nil, true},
		"PodRules.NodeSelector":             {len((&api.Cluster{}).NodeSelector()), 0},
		"ClusterSettings.PodSecurity":       {(&api.Cluster{}).PodSecurity(), v1alpha1.PodSecurityBaseline}, // the syncer knows it

		"Authentication.Mode":                         {string(little.Authentication.Mode), "Edge"},
		"Authentication.Anonymous":                    {*little.Authentication.Anonymous, true},
		"FrontProxyAuthentication.ClientCertificates": {computed, computed},
		"FrontProxyAuthentication.ServiceAccounts":    {computed, computed},
		"FrontProxyAuthentication.PassOnGroups":       {s.Authentication.PassOnGroups == nil, true}, // kcp passes all on
		"OIDC.UsernameClaim":                          {login.UsernameClaim, "sub"},
		"OIDC.UsernamePrefix":                         {login.UsernamePrefix, "https://login.example.com#"},
		"OIDC.SigningAlgs":                            {fmt.Sprint(login.SigningAlgs), "[RS256]"},
		"OIDC.CA":                                     {login.CA, ""}, // kcp takes those of the system
		"OIDC.Scopes":                                 {fmt.Sprint(login.Scopes), "[groups]"},
		"Issuer.CertificateAuthority":                 {"", ""}, // the same
		"AuthenticationWebhook.Version":               {webhook.Version, "v1"},
		"AuthenticationWebhook.CacheTTL":              {webhook.CacheTTL.Duration.String(), "2m0s"},
		"VirtualWorkspace.Shard":                      {s.VirtualWorkspaces[0].Shard, "root"},
		"VirtualWorkspace.URL":                        {computed, computed},
		"Kubeconfig.Target":                           {s.Kubeconfigs[0].Target.FrontProxy, "main"},
		"Kubeconfig.User":                             {s.Kubeconfigs[0].User, "dev"},
		"Kubeconfig.Workspace":                        {s.Kubeconfigs[0].Workspace, "root"},
		"Kubeconfig.Validity":                         {s.Kubeconfigs[0].Validity.Hours(), 8766.0},
		"Workspace.Type":                              {ws.Type, ""}, // kcp knows the default of the parent
		"Workspace.Selector":                          {len(ws.Selector), 0},
		"Workspace.Existing":                          {ws.Existing, false},
		"WorkspaceAccess.Name":                        {ws.Access[0].Name, "view"},
		"WorkspaceBinding.Name":                       {ws.Bindings[0].Name, "widgets"},
		"WorkspaceBinding.AcceptAllClaims":            {ws.Bindings[0].AcceptAllClaims, false},
		"PermissionClaim.Verbs":                       {fmt.Sprint(ws.Bindings[0].Claims[0].Verbs), "[*]"},
		"PermissionClaim.Selector":                    {len(ws.Bindings[0].Claims[0].Selector), 0},
	}
	var tested []string
	for field, pair := range got {
		require.Equal(t, pair[1], pair[0], field)
		tested = append(tested, field)
	}
	slices.Sort(tested)
	require.Empty(t, cmp.Diff(documentedDefaults(t), tested))
}

// documentedDefaults returns the fields of package v1alpha1 whose comments have a default.
func documentedDefaults(t *testing.T) []string {
	var out []string
	paths, err := filepath.Glob("../../api/v1alpha1/*.go")
	require.NoError(t, err)
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			st, ok := spec.Type.(*ast.StructType)
			if !ok {
				return false
			}
			for _, f := range st.Fields.List {
				if len(f.Names) > 0 && strings.Contains(f.Doc.Text(), "Default:") {
					out = append(out, spec.Name.Name+"."+f.Names[0].Name)
				}
			}
			return false
		})
	}
	slices.Sort(out)
	return out
}

func TestDefaultsAreInherited(t *testing.T) {
	s := parse(t, minimal+`spec:
  clusters: [{name: eu, context: a}, {name: us, context: b}]
  external: {hostname: kcp.example.com}
  defaults: {replicas: 3, logLevel: 4, resources: {requests: {cpu: 7}}}
  etcd: {managed: {replicas: 3, image: "mirror/etcd:1", storage: 2Gi, storageClassName: fast, resources: {requests: {cpu: 5}},
    podTemplate: {spec: {priorityClassName: high}}, extraArgs: [--a=b]}}
  cacheServer: {etcd: {managed: {replicas: 1}}}
  rootShard: {cluster: us, url: "https://root.example.com", etcd: {managed: {storage: 4Gi}}}
  shards:
  - {name: alpha, replicas: 2, logLevel: 0, resources: {}}
  - {name: beta, etcd: {embedded: {storage: 1Gi}}}
  frontProxies: [{name: main}]
`).Spec
	require.Equal(t, "us", s.Shards[0].Cluster)
	require.EqualValues(t, 2, s.Shards[0].Replicas)
	require.EqualValues(t, 0, *s.Shards[0].LogLevel)
	require.Empty(t, s.Shards[0].Resources.Requests, "said to be none")
	require.EqualValues(t, 1, s.Shards[1].Replicas, "an embedded etcd allows one")
	require.EqualValues(t, 3, s.FrontProxies[0].Replicas)
	require.EqualValues(t, 4, *s.FrontProxies[0].LogLevel)
	require.Equal(t, "7", s.FrontProxies[0].Resources.Requests.Cpu().String())
	require.EqualValues(t, 6443, s.External.Port)

	require.Empty(t, cmp.Diff(s.Etcd, *s.Shards[0].Etcd))
	root := s.RootShard.Etcd.Managed
	require.Equal(t, "4Gi", root.Storage.String())
	require.Equal(t, "mirror/etcd:1", root.Image)
	require.Equal(t, "5", root.Resources.Requests.Cpu().String())
	cache := s.CacheServer.Etcd.Managed
	require.EqualValues(t, 1, *cache.Replicas)
	require.Equal(t, "2Gi", cache.Storage.String())
	require.Nil(t, s.Shards[1].Etcd.Managed)
	require.Equal(t, "1Gi", s.Shards[1].Etcd.Embedded.Storage.String())
}

func TestExternalEtcdIsInherited(t *testing.T) {
	s := parse(t, minimal+`spec:
  etcd: {external: {endpoints: ["https://etcd:2379"], tlsSecret: creds}}
  cacheServer: {etcd: {external: {}}}
  shards:
  - {name: alpha}
  - {name: beta, etcd: {external: {prefix: /mine}}}
  - {name: gamma, etcd: {external: {endpoints: ["http://other:2379"]}}}
`).Spec
	endpoints := []string{"https://etcd:2379"}
	require.Equal(t, v1alpha1.ExternalEtcd{Endpoints: endpoints, TLSSecret: "creds"}, *s.RootShard.Etcd.External)
	require.Equal(t, v1alpha1.ExternalEtcd{Endpoints: endpoints, TLSSecret: "creds"}, *s.CacheServer.Etcd.External)
	require.Equal(t, v1alpha1.ExternalEtcd{Endpoints: endpoints, TLSSecret: "creds"}, *s.Shards[0].Etcd.External)
	require.Equal(t, v1alpha1.ExternalEtcd{Endpoints: endpoints, Prefix: "/mine", TLSSecret: "creds"}, *s.Shards[1].Etcd.External)
	require.Equal(t, v1alpha1.ExternalEtcd{Endpoints: []string{"http://other:2379"}}, *s.Shards[2].Etcd.External)
}

func TestCertificatesDoNotOutliveTheirAuthority(t *testing.T) {
	s := parse(t, minimal+"spec: {pki: {caValidity: 2h}}\n").Spec
	require.Equal(t, 2.0, s.PKI.CertificateValidity.Hours())
	require.Equal(t, 2.0, s.Kubeconfigs[0].Validity.Hours())
}

func TestSetDefaultsTwiceChangesNothing(t *testing.T) {
	for name, data := range valid(t) {
		t.Run(name, func(t *testing.T) {
			once, twice := parse(t, string(data)), parse(t, string(data))
			SetDefaults(twice)
			require.Empty(t, cmp.Diff(once, twice))
		})
	}
}

func TestComponentsShareNothing(t *testing.T) {
	for name, data := range valid(t) {
		t.Run(name, func(t *testing.T) {
			seen := map[uintptr]string{}
			eachPointer(reflect.ValueOf(parse(t, string(data))), "", func(p uintptr, path string) {
				require.Empty(t, seen[p], "%s is shared", path)
				seen[p] = path
			})
			require.Greater(t, len(seen), 10)
		})
	}
}

// eachPointer visits all pointers, maps and slices below v that are not empty.
func eachPointer(v reflect.Value, path string, visit func(uintptr, string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && v.Elem().Type().Size() > 0 {
			visit(v.Pointer(), path)
			eachPointer(v.Elem(), path, visit)
		}
	case reflect.Interface:
		eachPointer(v.Elem(), path, visit)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				eachPointer(v.Field(i), path+"."+f.Name, visit)
			}
		}
	case reflect.Map:
		if v.Len() > 0 {
			visit(v.Pointer(), path)
		}
		for _, key := range v.MapKeys() {
			eachPointer(v.MapIndex(key), path+"."+key.String(), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			item := v.Index(i)
			if i == 0 && item.Kind() != reflect.Struct { // a struct's own address is that of its first field
				visit(v.Pointer(), path)
			}
			eachPointer(item, fmt.Sprintf("%s[%d]", path, i), visit)
		}
	}
}
