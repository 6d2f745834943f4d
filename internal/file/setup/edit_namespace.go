package setup

import "github.com/kcpctl/kcpctl/internal/api/v1alpha1"

// AddNamespace returns the file with another namespace of the root shard's Kubernetes cluster in spec.clusters, and its
// name there. If the file has the namespace already, it is unchanged.
func (f *File) AddNamespace(name, namespace string) (_ *File, cluster string, err error) {
	var home v1alpha1.Cluster
	for _, c := range f.Setup.Spec.Clusters {
		if c.Name == f.Setup.Spec.RootShard.Cluster {
			home = c
		}
	}
	for _, c := range f.Setup.Spec.Clusters {
		if c.Context == home.Context && c.Kubeconfig == home.Kubeconfig && c.Namespace == namespace {
			return f, c.Name, nil
		}
	}
	file := f
	if len(itemsAt(f, "spec", "clusters")) == 0 { // the default is one cluster
		if file, err = f.addItem("cluster", home.Name, v1alpha1.Cluster{Name: home.Name}, "spec", "clusters"); err != nil {
			return nil, "", err
		}
	}
	file, err = file.addItem("cluster", name,
		v1alpha1.Cluster{Name: name, Context: home.Context, Kubeconfig: home.Kubeconfig, Namespace: namespace},
		"spec", "clusters")
	return file, name, err
}

// itemsAt returns the list at a path of a file.
func itemsAt(f *File, path ...string) []any {
	tree, err := treeOf(f.Data)
	if err != nil {
		return nil
	}
	return listAt(tree, path...)
}
