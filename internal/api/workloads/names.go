package workloads

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// MaxClusterName is the length of the longest name of a cluster. Names of leaves have room for at least ten characters
// of the name of their root and a hash.
const MaxClusterName = 40

// ExportWorkloads is the APIExport with the APIs that are published. It is in the compute workspace.
const ExportWorkloads = "kubernetes"

// NamespaceSyncer is the namespace of the syncer in a physical cluster.
const NamespaceSyncer = "kcpctl-syncer"

// NamespaceLeases is the namespace of Leases in the compute workspace.
const NamespaceLeases = "default"

// maxName is the length of the longest name of a leaf and of a namespace. Names of many kinds can be longer, but they
// become values of labels, and Services are labels of DNS names.
const maxName = validation.DNS1123LabelMaxLength

// hashLength is the number of characters of a hash in a name. They have 51 bits.
const hashLength = 10

// separator is between the name of the root and the cluster in the name of a leaf. Names of clusters do not contain it,
// so that the names of two leaves differ if their roots or clusters do.
const separator = "--"

// ExportCluster returns the name of the APIExport of a cluster. It has permission claims and no resources. A syncer
// sees the objects of workspaces through it.
func ExportCluster(cluster string) string { return "cluster-" + cluster }

// RoleUsers returns the name of the ClusterRole and the ClusterRoleBinding, in the compute workspace, of users of a
// WorkspaceType.
func RoleUsers(workspaceType string) string { return Group + ":use:" + workspaceType }

// SecretCluster returns the name of the Secret with the kubeconfig of a cluster that kcpctl up registers, in
// NamespaceLeases of the compute workspace.
func SecretCluster(cluster string) string { return "cluster-" + cluster }

// LeaseCluster returns the name of the Lease that the syncer of a cluster renews, in NamespaceLeases of the compute
// workspace.
func LeaseCluster(cluster string) string { return "cluster-" + cluster }

// ConfigMapCluster returns the name of the ConfigMap, in NamespaceLeases of the compute workspace, with the versions of
// an API that a cluster serves. The syncer of the cluster writes it, if the controller cannot read the cluster. Names
// of clusters have no dots, so it is of one cluster only.
func ConfigMapCluster(cluster string, gr schema.GroupResource) string {
	name := "cluster-" + cluster + "." + gr.String()
	if len(name) > validation.DNS1123SubdomainMaxLength {
		return withHash(name, validation.DNS1123SubdomainMaxLength, cluster, gr.String())
	}
	return name
}

// ValidateClusterName returns an error that says what is wrong with the name of a cluster.
func ValidateClusterName(name string) error {
	switch problems := validation.IsDNS1123Label(name); {
	case len(problems) > 0:
		return fmt.Errorf("%q is not a name of a cluster: %s", name, strings.Join(problems, "; "))
	case len(name) > MaxClusterName:
		return fmt.Errorf("%q is not a name of a cluster: it has more than %d characters", name, MaxClusterName)
	case strings.Contains(name, separator):
		return fmt.Errorf("%q is not a name of a cluster: it contains %s, which separates names of objects "+
			"from clusters", name, separator)
	}
	return nil
}

// LeafName returns the name of the leaf of a root on a cluster: <name>--<cluster>, or <part of name>-<hash>--<cluster>
// if that would be longer than 63 characters. Without a valid name of the cluster, the result is not valid.
func LeafName(root, cluster string) string {
	if name := root + separator + cluster; len(name) <= maxName {
		return name
	}
	suffix := separator + cluster
	return withHash(root, maxName-len(suffix), root) + suffix
}

// DownstreamNamespace returns the namespace of a physical cluster that stands for a namespace of a workspace:
// <namespace>-<hash>. The setup is the ID of the installation, and the workspace is its logical cluster. Different
// arguments give different names, except for collisions of the hash. Therefore the labels of an existing namespace must
// be compared, see DownstreamLabels.
func DownstreamNamespace(setup, workspace, namespace string) string {
	return withHash(namespace, maxName, setup, workspace, namespace)
}

// DownstreamLabels returns the labels of a namespace in a physical cluster.
func DownstreamLabels(setup, workspace, namespace string) map[string]string {
	return map[string]string{LabelSetup: setup, LabelWorkspace: workspace, LabelNamespace: namespace}
}

// withHash returns as much of the name as fits, and a hash of the parts.
func withHash(name string, limit int, parts ...string) string {
	name = name[:min(len(name), max(0, limit-hashLength-1))]
	// A name that was cut can end with a character that is only allowed within names.
	return strings.TrimRight(name, "-.") + "-" + Hash(hashLength, parts...)
}

// Hash returns a hash of the parts with at most twelve lower case letters and digits, the same on all machines and in
// all releases.
func Hash(length int, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		// The length of a part tells "ab","c" from "a","bc".
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	text := strconv.FormatUint(binary.BigEndian.Uint64(h.Sum(nil)), 36)
	text = strings.Repeat("0", 13) + text
	return text[len(text)-length:]
}
