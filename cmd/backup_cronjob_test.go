package cmd

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

// A job that takes backups may read, and connect to pods, and change nothing.
func TestPrintBackupJob(t *testing.T) {
	j := printJobOf(t, topologytest.Header, "backup", "create", "--to", "pvc://backups/kcp", "--recipient", recipient,
		"--keep", "14", "--keep-days", "30", "--schedule", "0 * * * *")
	require.Equal(t, []string{"ServiceAccount", "ConfigMap", "Role", "RoleBinding", "CronJob"}, j.kinds)
	require.Equal(t, "0 * * * *", j.job.Spec.Schedule)
	require.Equal(t, "demo-backup", j.job.Name)
	require.Equal(t, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"create"}},
	}, j.role.Rules)

	pod := j.job.Spec.JobTemplate.Spec.Template.Spec
	args := pod.Containers[0].Args
	require.NoError(t, understand(args))
	require.Subset(t, args, []string{
		"--applied", "--to=/var/lib/kcpctl/kcp", "--recipient=" + recipient, "--keep=14", "--keep-days=30",
	})
	require.Contains(t, pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "volume", MountPath: "/var/lib/kcpctl"})
	require.Equal(t, "backups", pod.Volumes[2].PersistentVolumeClaim.ClaimName)
	require.Empty(t, pod.Containers[0].EnvFrom)
	require.Equal(t, &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action:      batchv1.PodFailurePolicyActionFailJob,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{5}},
	}}}, j.job.Spec.JobTemplate.Spec.PodFailurePolicy, "a partial backup is not repeated")
}

func TestPrintBackupJobForABucket(t *testing.T) {
	j := printJobOf(t, topologytest.Header, "backup", "create", "--to", "s3://backups/kcp?region=eu", "--without-keys",
		"--credentials-secret", "s3", "--shard", "root")
	pod := j.job.Spec.JobTemplate.Spec.Template.Spec
	require.NoError(t, understand(pod.Containers[0].Args))
	require.Subset(t, pod.Containers[0].Args, []string{"--to=s3://backups/kcp?region=eu", "--without-keys", "--shard=root"})
	require.Equal(t, "s3", pod.Containers[0].EnvFrom[0].SecretRef.Name)
	require.Len(t, pod.Volumes, 2)
}

func TestNoBackupJobWhereItCouldNotWork(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		args []string
		want string
	}{
		"on this machine": {"", []string{"--local", "--to=s3://b", "--without-keys"}, "--local=false overrides it"},
		"its own disk":    {"", []string{"--to=./backups", "--without-keys"}, `a job in the cluster cannot write to "./backups"`},
		"no claim":        {"", []string{"--to=pvc:///kcp", "--without-keys"}, "--to=pvc:///kcp names no claim"},
		"no such shard":   {"", []string{"--to=s3://b", "--without-keys", "--shard=x"}, `there is no shard "x"`},
		"no recipient":    {"", []string{"--to=s3://b"}, "no recipient to encrypt them to"},
		"several clusters": {"spec: {external: {hostname: kcp.example.com}, rootShard: {cluster: eu}, " +
			"clusters: [{name: eu, context: eu}, {name: us, context: us}]}\n", []string{"--to=s3://b", "--without-keys"}, "the setup has 2 clusters"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kcp.yaml")
			require.NoError(t, os.WriteFile(path, []byte(topologytest.Header+tc.spec), 0o600))
			env, out, errs := fakeEnv()
			args := append([]string{"backup", "create", "--print-cronjob", "-f", path}, tc.args...)
			require.Equal(t, clierr.BadInput, Main(t.Context(), args, env), errs.String())
			require.Contains(t, errs.String(), tc.want)
			require.Empty(t, out.String())
		})
	}
}

// A long time keeps backups, and does not become a negative one.
func TestKeepDays(t *testing.T) {
	require.Equal(t, 30*24*time.Hour, (&keepFlags{days: 30}).rule().Within)
	require.Greater(t, (&keepFlags{days: 1 << 30}).rule().Within, 100*365*24*time.Hour)
}
