package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/importer"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/adopt"
)

// defaultNamespace is the namespace of a setup that names none.
const defaultNamespace = "kcp"

func openOperator(env *Env, flags *setupFlags, c topology.Cluster) (*adopt.Installation, error) {
	return kube.OpenOperator(c, kube.Options{As: flags.as, AsGroups: flags.asGroups, Now: env.Now, Notify: env.note})
}

// openPredecessor finds the installation of kcp-operator from which a setup was imported.
func openPredecessor(env *Env, flags *setupFlags, t *topology.Topology) (*adopt.Installation, operator.Origin, error) {
	origin, err := operator.OriginOf(t)
	if err != nil {
		return nil, origin, err
	}
	installation, err := openOperator(env, flags, t.Home)
	return installation, origin, err
}

// clusterSources reads the objects of kcp-operator from the cluster that the flags name.
func (o *importOptions) clusterSources(ctx context.Context) ([]importer.Source, error) {
	f := &o.setup
	installation, err := openOperator(o.env, f, topology.Cluster{
		Name: "default", Kubeconfig: f.kubeconfig, Context: f.context, Namespace: cmp.Or(f.namespace, defaultNamespace),
	})
	if err != nil {
		return nil, err
	}
	objects, err := installation.Objects(ctx, o.rootShard)
	if err != nil {
		return nil, err
	}
	var out []importer.Source
	for _, object := range objects {
		data, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		out = append(out, importer.Source{Name: object.GetKind() + "/" + object.GetName(), Data: data})
	}
	bundles, err := installation.Bundles(ctx, objects)
	if err != nil {
		return nil, err
	}
	for _, secret := range bundles {
		data, err := yaml.Marshal(secret.Object)
		if err != nil {
			return nil, err
		}
		out = append(out, importer.Source{Name: secret.GetKind() + "/" + secret.GetName(), Data: data})
	}
	return out, nil
}

func (o *importOptions) printSteps(r *importer.Result) {
	file := o.output
	if !o.toFile() {
		file = defaultFile
	}
	var names []string
	for _, c := range topology.Build(r.File.Setup).Components {
		names = append(names, c.Aliases...)
	}
	f := setupFlags{program: o.env.program(), file: file, as: o.setup.as, asGroups: o.setup.asGroups}
	fmt.Fprintf(o.env.Streams.Err, `
kcp-operator still runs this installation. To move it to kcpctl:

  1. Review %[1]s.
  2. Stop kcp-operator. kcp keeps running, and nothing reverts the changes of kcpctl:
       kubectl -n kcp-operator scale deployment kcp-operator --replicas=0
  3. Take over its authorities and service-account keys. Kubeconfigs, certificates and tokens stay valid:
       %[2]s
  4. Start kcpctl's servers beside those of kcp-operator, on the same etcds:
       %[3]s --force-conflicts
     When kcpctl's servers are ready, these Services lead to them. They keep their addresses, and kcp its base URLs.
     --force-conflicts takes the Services over from kcp-operator:
       %[4]s
  5. Remove the servers and the objects of kcp-operator. Do not delete the objects yourself before that: the garbage
     collector would delete the Services, and kcp-operator the Shards in kcp.
       %[5]s
`, file, f.command("certs import --from-cluster"), f.command("up"), strings.Join(names, ", "),
		f.command("import --finish"))
}
