package render

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Job is a CronJob that runs kcpctl in a cluster.
type Job struct {
	Topology *topology.Topology
	// Name is the part of the names of the objects.
	Name string
	// Schedule is when it runs, in the time zone of the cluster.
	Schedule string
	// Image is the image of kcpctl.
	Image v1alpha1.Image
	// Args are the arguments of kcpctl, without those that lead to the setup. They can use the volume in JobVolumeDir.
	Args []string
	// Environment is a Secret whose entries are environment variables. Empty: none.
	Environment string
	// Final is an exit code after which a run is not repeated before the next time. 0: there is none.
	Final int
	// Claim is a PersistentVolumeClaim that is mounted at JobVolumeDir. Empty: none.
	Claim string
	// Namespaced and Clusterwide are the permissions of the job: in namespaces, and in the whole cluster.
	Namespaced  []NamespaceRules
	Clusterwide []rbacv1.PolicyRule
}

// NamespaceRules are permissions in a namespace.
type NamespaceRules struct {
	Namespace string
	Rules     []rbacv1.PolicyRule
}

const (
	// JobVolumeDir is where the volume of a job is.
	JobVolumeDir = "/var/lib/kcpctl"
	// jobDir is the directory with the files of a job: the setup file, and a kubeconfig.
	jobDir            = "/etc/kcpctl"
	jobFile           = "kcp.yaml"
	jobKubeconfigFile = "kubeconfig"
	// homeDir is where kcpctl may write.
	homeDir = "/tmp"
)

// jobKubeconfig is the kubeconfig with which a pod connects to its own cluster. The kubelet renews the token.
const jobKubeconfig = `apiVersion: v1
kind: Config
current-context: in-cluster
contexts:
- name: in-cluster
  context: {cluster: in-cluster, user: in-cluster}
clusters:
- name: in-cluster
  cluster:
    server: https://kubernetes.default.svc
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
users:
- name: in-cluster
  user:
    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
`

// files are the files of a job: a kubeconfig for its own cluster, and a setup file that only leads to the setup that
// was applied last. Neither holds a secret.
func (j Job) files() (map[string]any, error) {
	metadata := map[string]any{"name": j.Topology.Name}
	if id := j.Topology.Installation(); id != "" {
		metadata["installation"] = id
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": v1alpha1.KindSetup, "metadata": metadata,
		"spec": map[string]any{"clusters": []any{map[string]any{
			"name": j.Topology.Home.Name, "namespace": j.Topology.Home.Namespace,
		}}},
	})
	return map[string]any{jobFile: string(text), jobKubeconfigFile: jobKubeconfig}, err
}

// Objects returns the CronJob, and the objects that it needs.
func (j Job) Objects() ([]*unstructured.Unstructured, error) {
	account, name := j.object("v1", "ServiceAccount", true, nil), j.Topology.Object(j.Name)
	data, err := j.files()
	if err != nil {
		return nil, err
	}
	out := []*unstructured.Unstructured{account, j.object("v1", "ConfigMap", true, map[string]any{"data": data})}
	for _, may := range j.Namespaced {
		roles, err := j.roles("Role", true, may.Rules)
		if err != nil {
			return nil, err
		}
		for _, role := range roles {
			role.SetNamespace(may.Namespace)
		}
		out = append(out, roles...)
	}
	roles, err := j.roles("ClusterRole", false, j.Clusterwide)
	if err != nil {
		return nil, err
	}
	out = append(out, roles...)
	return append(out, j.object("batch/v1", "CronJob", true, map[string]any{"spec": j.schedule(name)})), nil
}

// roles are a role with rules, and its binding to the job. There are none without rules.
func (j Job) roles(role string, namespaced bool, allow []rbacv1.PolicyRule) ([]*unstructured.Unstructured, error) {
	if len(allow) == 0 {
		return nil, nil
	}
	rules, err := generic(allow)
	if err != nil {
		return nil, err
	}
	const api = "rbac.authorization.k8s.io/v1"
	ref := map[string]any{"apiGroup": rbacv1.GroupName, "kind": role, "name": j.nameOf(namespaced)}
	subject := map[string]any{
		"kind": "ServiceAccount", "name": j.Topology.Object(j.Name), "namespace": j.Topology.Home.Namespace,
	}
	return []*unstructured.Unstructured{
		j.object(api, role, namespaced, map[string]any{"rules": rules}),
		j.object(api, role+"Binding", namespaced, map[string]any{"roleRef": ref, "subjects": []any{subject}}),
	}, nil
}

// nameOf is the name of an object. The names of those without a namespace have it, because several namespaces of a
// cluster can have a setup of the same name.
func (j Job) nameOf(namespaced bool) string {
	name := j.Topology.Object(j.Name)
	if !namespaced {
		name = j.Topology.Home.Namespace + "-" + name
	}
	return name
}

func (j Job) object(version, kind string, namespaced bool, content map[string]any) *unstructured.Unstructured {
	metadata := map[string]any{"name": j.nameOf(namespaced), "labels": j.labels()}
	if namespaced {
		metadata["namespace"] = j.Topology.Home.Namespace
	}
	all := map[string]any{"apiVersion": version, "kind": kind, "metadata": metadata}
	for field, value := range content {
		all[field] = value
	}
	return &unstructured.Unstructured{Object: all}
}

// labels are not the labels of the setup: the objects are not part of it.
func (j Job) labels() map[string]any {
	return map[string]any{
		"app.kubernetes.io/name": topology.ManagedBy, "app.kubernetes.io/instance": j.Topology.Name,
		"app.kubernetes.io/component": j.Name,
	}
}

func (j Job) schedule(account string) map[string]any {
	job := map[string]any{
		"backoffLimit": int64(3), // an interrupted run is continued
		"template":     map[string]any{"metadata": map[string]any{"labels": j.labels()}, "spec": j.pod(account)},
	}
	if j.Final != 0 {
		job["podFailurePolicy"] = map[string]any{"rules": []any{map[string]any{
			"action":      "FailJob",
			"onExitCodes": map[string]any{"operator": "In", "values": []any{int64(j.Final)}},
		}}}
	}
	return map[string]any{
		"schedule": j.Schedule, "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": int64(86400),
		"jobTemplate": map[string]any{"spec": job},
	}
}

func (j Job) pod(account string) map[string]any {
	pullSecrets := []any{}
	for _, s := range j.Image.PullSecrets {
		pullSecrets = append(pullSecrets, map[string]any{"name": s})
	}
	volumes := []any{
		map[string]any{"name": "config", "configMap": map[string]any{"name": account}},
		map[string]any{"name": "home", "emptyDir": map[string]any{}},
	}
	if j.Claim != "" {
		volumes = append(volumes,
			map[string]any{"name": "volume", "persistentVolumeClaim": map[string]any{"claimName": j.Claim}})
	}
	return map[string]any{
		"serviceAccountName": account, "restartPolicy": "Never", "imagePullSecrets": pullSecrets,
		"enableServiceLinks": false,
		"securityContext": map[string]any{
			"runAsNonRoot": true, "runAsUser": int64(65532), "runAsGroup": int64(65532), "fsGroup": int64(65532),
			"seccompProfile": map[string]any{"type": "RuntimeDefault"},
		},
		"containers": []any{j.container()}, "volumes": volumes,
	}
}

func (j Job) container() map[string]any {
	args := []any{}
	for _, a := range j.Args {
		args = append(args, a)
	}
	args = append(args, "--file="+jobDir+"/"+jobFile, "--kubeconfig="+jobDir+"/"+jobKubeconfigFile,
		"--context=in-cluster", "--plain")
	mounts := []any{
		map[string]any{"name": "config", "mountPath": jobDir},
		map[string]any{"name": "home", "mountPath": homeDir},
	}
	if j.Claim != "" {
		mounts = append(mounts, map[string]any{"name": "volume", "mountPath": JobVolumeDir})
	}
	out := map[string]any{
		"name": topology.ContainerKcpctl, "image": topology.KcpctlRef(j.Image),
		"imagePullPolicy": string(cmp.Or(j.Image.PullPolicy, corev1.PullIfNotPresent)),
		"command":         []any{"/" + topology.ManagedBy}, "args": args,
		"env":       []any{map[string]any{"name": "HOME", "value": homeDir}},
		"resources": map[string]any{"requests": map[string]any{"cpu": "50m", "memory": "128Mi"}},
		"securityContext": map[string]any{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
			"capabilities": map[string]any{"drop": []any{"ALL"}},
		},
		"volumeMounts": mounts,
	}
	if j.Environment != "" {
		out["envFrom"] = []any{map[string]any{"secretRef": map[string]any{"name": j.Environment}}}
	}
	return out
}

// generic returns rules as objects have them.
func generic(rules []rbacv1.PolicyRule) ([]any, error) {
	var out []any
	for i := range rules {
		rule, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rules[i])
		if err != nil {
			return nil, err
		}
		out = append(out, rule)
	}
	return out, nil
}
