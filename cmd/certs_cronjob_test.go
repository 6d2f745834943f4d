package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/version"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// printedJob has the objects of a printed CronJob, decoded strictly.
type printedJob struct {
	account     corev1.ServiceAccount
	config      corev1.ConfigMap
	role        rbacv1.Role
	binding     rbacv1.RoleBinding
	clusterRole rbacv1.ClusterRole
	clusterWide rbacv1.ClusterRoleBinding
	job         batchv1.CronJob
	kinds       []string
}

func printCronJob(t *testing.T, text string, args ...string) printedJob {
	t.Helper()
	return printJobOf(t, text, append([]string{"certs", "renew"}, args...)...)
}

func printJobOf(t *testing.T, text string, args ...string) (r printedJob) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kcp.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	env, out, errs := fakeEnv()
	code := Main(t.Context(), append(args, "--print-cronjob", "-f", path), env)
	require.Equal(t, 0, code, errs.String())
	into := map[string]any{
		"ServiceAccount": &r.account, "ConfigMap": &r.config, "Role": &r.role, "RoleBinding": &r.binding,
		"ClusterRole": &r.clusterRole, "ClusterRoleBinding": &r.clusterWide, "CronJob": &r.job,
	}
	for _, doc := range strings.Split(out.String(), "---\n")[1:] {
		var meta metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(doc), &meta))
		require.Contains(t, into, meta.Kind)
		require.NoError(t, yaml.UnmarshalStrict([]byte(doc), into[meta.Kind]), meta.Kind)
		r.kinds = append(r.kinds, meta.Kind)
	}
	return r
}

func TestPrintCronJob(t *testing.T) {
	r := printCronJob(t, topologytest.Header+"spec: {image: {pullSecrets: [registry]}}\n")
	require.Equal(t, []string{"ServiceAccount", "ConfigMap", "Role", "RoleBinding", "CronJob"}, r.kinds)
	require.Equal(t, "batch/v1", r.job.APIVersion)
	require.Equal(t, "kcp", r.job.Namespace)
	require.Equal(t, "17 3 * * 0", r.job.Spec.Schedule)
	require.Equal(t, batchv1.ForbidConcurrent, r.job.Spec.ConcurrencyPolicy)
	require.Nil(t, r.job.Spec.JobTemplate.Spec.PodFailurePolicy, "what was interrupted is continued")
	pod := r.job.Spec.JobTemplate.Spec.Template.Spec
	require.Equal(t, r.account.Name, pod.ServiceAccountName)
	require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, pod.ImagePullSecrets)
	require.Equal(t, "ghcr.io/kcpctl/kcpctl:"+version.Get().Version, pod.Containers[0].Image)
	require.Equal(t, r.config.Name, pod.Volumes[0].ConfigMap.Name)
	require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: r.account.Name, Namespace: "kcp"}}, r.binding.Subjects)
	require.Equal(t, r.role.Name, r.binding.RoleRef.Name)
	for _, rule := range r.role.Rules {
		require.NotContains(t, append(append(rule.Verbs, rule.Resources...), rule.APIGroups...), "*", "it may do no more than it needs")
	}
	require.Contains(t, r.role.Rules, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"create"},
	})

	// The arguments are understood, and the setup file leads to the same installation.
	args := pod.Containers[0].Args
	require.NoError(t, understand(args))
	require.Subset(t, args, []string{"certs", "renew", "--applied", "--expiring-within=30d"})
	f, err := setup.Parse("kcp.yaml", []byte(r.config.Data["kcp.yaml"]))
	require.NoError(t, err)
	require.Equal(t, "demo", f.Setup.Metadata.Name)
	require.Equal(t, "kcp", f.Setup.Spec.Clusters[0].Namespace)
	require.Contains(t, r.config.Data["kubeconfig"], "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token")
}

func TestPrintCronJobOfASetupWithAgents(t *testing.T) {
	const agent = `spec:
  workloads: {image: {repository: mirror/kcpctl, tag: v1}}
  agents: [{name: widgets, workspace: "root:widgets", publishedResources: [{name: w, spec: {resource: {kind: Widget, apiGroup: example.com, versions: [v1]}}}]}]
`
	r := printCronJob(t, topologytest.Header+agent, "--expiring-within", "45d", "root-shard")
	require.Equal(t, "mirror/kcpctl:v1", r.job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image)
	require.Subset(t, r.job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args, []string{"--expiring-within=45d", "root-shard"})
	require.Equal(t, "kcp-demo-renewal", r.clusterRole.Name)
	require.Equal(t, r.clusterRole.Name, r.clusterWide.RoleRef.Name)
	var roles rbacv1.PolicyRule
	for _, rule := range r.clusterRole.Rules {
		if rule.Resources[0] == "clusterroles" {
			roles = rule
		}
	}
	require.Subset(t, roles.Verbs, []string{"get", "patch", "escalate", "bind"})
}

func TestNoCronJobWhereItCouldNotWork(t *testing.T) {
	for name, tc := range map[string]struct{ spec, arg, want string }{
		"on this machine":   {"", "--local", "is for setups on a Kubernetes cluster"},
		"no such component": {"", "shard/alhpa", `shard/alhpa`},
		"a directory":       {"", "--pki-dir=pki", "cannot read the directory"},
		"several clusters": {"spec: {external: {hostname: kcp.example.com}, rootShard: {cluster: eu}, " +
			"clusters: [{name: eu, context: eu}, {name: us, context: us}]}\n", "", "the setup has 2 clusters"},
		"another user": {"spec: {clusters: [{name: eu, as: admin}]}\n", "", `cannot act as the user "admin"`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kcp.yaml")
			require.NoError(t, os.WriteFile(path, []byte(topologytest.Header+tc.spec), 0o600))
			env, out, errs := fakeEnv()
			args := []string{"certs", "renew", "--print-cronjob", "-f", path}
			if tc.arg != "" {
				args = append(args, tc.arg)
			}
			require.Equal(t, clierr.BadInput, Main(t.Context(), args, env), errs.String())
			require.Contains(t, errs.String(), tc.want)
			require.Empty(t, out.String())
		})
	}
}

// An earlier release has applied a flag that a field sets now. The commands that use that setup say what to do, and the
// others do not need it.
func TestAnAppliedSetupThatIsRefusedNow(t *testing.T) {
	rt := bringUp(t)
	dir := t.TempDir()
	const file = topologytest.Header + "spec: {shards: [{name: alpha, extraArgs: [--etcd-prefix=/kcp]}]}\n"
	known, err := rt.Record(t.Context())
	require.NoError(t, err)
	for _, a := range []plan.Applied{{Setup: []byte(file)}, {Setup: []byte(file + "# all\n"), File: []byte(file)}} {
		require.NoError(t, rt.Finish(t.Context(), &plan.Plan{}, known, a))
	}
	path := filepath.Join(dir, "kcp.yaml")
	require.NoError(t, os.WriteFile(path, []byte(topologytest.Header), 0o600))
	run := func(args ...string) (code int, out, errs string) {
		env, stdout, stderr := fakeEnv()
		openAs(env, rt)
		rt.Forget()
		code = Main(t.Context(), append(args, "-f", path), env)
		return code, stdout.String(), stderr.String()
	}
	const refused = ":4:43: spec.shards[0].extraArgs[0]: set etcd.external.prefix instead of --etcd-prefix"
	for args, hint := range map[string]string{
		"certs renew --applied":                              "correct the setup file, and run kcpctl up -f " + path,
		"backup create --applied --without-keys --to=" + dir: "correct the setup file, and run kcpctl up -f " + path,
		"diff --revision 3":                                  "print it with kcpctl history --revision 3 -f " + path + ", and correct it",
		"history --revision 3 --write":                       "print it with kcpctl history --revision 3 -f " + path + ", and correct it",
		"history --revision 2 --write":                       "print it with kcpctl history --revision 2 -f " + path + ", and correct it",
	} {
		code, _, errs := run(strings.Fields(args)...)
		require.Equal(t, clierr.BadInput, code, "%s: %s", args, errs)
		require.Contains(t, errs, refused, args)
		require.Contains(t, errs, "hint: another release of kcpctl has applied it: "+hint, args)
		require.Empty(t, rt.Calls(), args)
	}
	for args, want := range map[string]string{
		"history --revision 2": file, "history --revision 3": file, "history --revision 3 --full": file + "# all\n",
	} {
		code, out, errs := run(strings.Fields(args)...)
		require.Equal(t, 0, code, errs)
		require.Equal(t, want, out, args)
	}
	code, _, errs := run("certs", "renew", "--skip-canary")
	require.Equal(t, 0, code, errs)
}

// The job's setup file says nothing but which setup it is: everything else is what was applied.
func TestRenewAsApplied(t *testing.T) {
	rt, dir := bundled(t)
	path := filepath.Join(dir, "job.yaml")
	require.NoError(t, os.WriteFile(path, []byte(topologytest.Header), 0o600))
	before, err := rt.History(t.Context())
	require.NoError(t, err)
	rt.Forget()
	env, _, errs := fakeEnv()
	openAs(env, rt)
	args := []string{"certs", "renew", "shard/alpha", "--skip-canary", "-f", path}
	require.Equal(t, clierr.BadInput, Main(t.Context(), args, env), "the file has no shard alpha")
	require.Equal(t, 0, Main(t.Context(), append(args, "--applied"), env), errs.String())
	require.Contains(t, rt.Calls(), "Apply shard/alpha")
	history, err := rt.History(t.Context())
	require.NoError(t, err)
	require.Len(t, history, len(before), "it adds no revision")
}

// The agents of a setup can have a namespace of their own on its cluster. The flags of a job lead to the cluster, and
// its roles to both namespaces.
func TestJobsOfASetupWithTwoNamespaces(t *testing.T) {
	const text = topologytest.Header + `spec:
  clusters: [{name: default}, {name: agents, namespace: demo-agents}]
  agents: [{name: w, cluster: agents, workspace: "root:w", publishedResources: [{name: w, spec: {resource: {kind: Widget, apiGroup: example.com, versions: [v1]}}}]}]
`
	r := printCronJob(t, text)
	require.Equal(t, []string{
		"ServiceAccount", "ConfigMap", "Role", "RoleBinding", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "CronJob",
	}, r.kinds)
	require.Equal(t, "demo-agents", r.role.Namespace, "the second one")
	require.Equal(t, "demo-agents", r.binding.Namespace)
	require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: r.account.Name, Namespace: "kcp"}}, r.binding.Subjects)
	r = printJobOf(t, text, "backup", "create", "--to", "s3://b", "--without-keys")
	require.Equal(t, []string{"ServiceAccount", "ConfigMap", "Role", "RoleBinding", "CronJob"}, r.kinds, "it does not read those of agents")

	rt := bringUp(t)
	known, err := rt.Record(t.Context())
	require.NoError(t, err)
	applied := topologytest.Header + "spec: {clusters: [{name: default}, {name: agents, namespace: demo-agents}]}\n"
	require.NoError(t, rt.Finish(t.Context(), &plan.Plan{}, known, plan.Applied{Setup: []byte(applied)}))
	path := filepath.Join(t.TempDir(), "kcp.yaml")
	require.NoError(t, os.WriteFile(path, []byte(topologytest.Header), 0o600))
	env, _, errs := fakeEnv()
	openAs(env, rt)
	code := Main(t.Context(), []string{
		"certs", "renew", "root-shard", "--applied", "--skip-canary", "-f", path, "--kubeconfig", path, "--context", "in-cluster",
	}, env)
	require.Equal(t, 0, code, errs.String())
}

func TestFlagsPlaceASetupWithOneKubernetesCluster(t *testing.T) {
	clusters := func(text string, flags setupFlags) ([]string, error) {
		f, err := setup.Parse("kcp.yaml", []byte(topologytest.Header+text))
		require.NoError(t, err)
		err = flags.placeOnCluster(f)
		var out []string
		for _, c := range f.Setup.Spec.Clusters {
			out = append(out, strings.Join([]string{c.Name, c.Kubeconfig, c.Context, c.Namespace}, " "))
		}
		return out, err
	}
	got, err := clusters("spec: {rootShard: {cluster: b}, clusters: [{name: a, context: eu, namespace: x}, {name: b, context: eu}]}\n",
		setupFlags{context: "prod", kubeconfig: "k", namespace: "n"})
	require.NoError(t, err)
	require.Equal(t, []string{"a k prod x", "b k prod n"}, got)
	_, err = clusters("spec: {external: {hostname: kcp.example.com}, rootShard: {cluster: a}, clusters: [{name: a, context: eu}, {name: b, context: us}]}\n",
		setupFlags{context: "prod"})
	require.ErrorContains(t, err, "kcp.yaml has 2 clusters")
}
