package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

const (
	// oldestKubernetes is the first release that supports everything that is rendered by default. The newest of these
	// features is the sleep action of preStop hooks.
	oldestKubernetes = "1.30"
	// newestKubernetes is the newest release that the tests run on.
	newestKubernetes = "1.36"

	// warnClock and maxClock are the largest differences of clocks. Certificates begin five minutes before they are
	// issued.
	warnClock = time.Minute
	maxClock  = 5 * time.Minute

	// publishedImage is the repository of kcp's own images.
	publishedImage = "ghcr.io/kcp-dev/kcp"
)

// publishedFor are the architectures that kcp's own images are built for.
var publishedFor = []string{"amd64", "arm64"}

// eachCluster runs a check on all clusters of the setup concurrently.
func eachCluster(do func(context.Context, *Subject, Cluster) outcome) func(context.Context, *Subject) outcome {
	return func(ctx context.Context, s *Subject) (o outcome) {
		clusters := s.facts.Clusters
		if len(clusters) == 0 {
			return skipped("the setup does not run on a cluster")
		}
		found := parallel.Map(len(clusters), clusters, func(c Cluster) outcome { return do(ctx, s, c) })
		for i, c := range clusters {
			place := ""
			if len(clusters) > 1 {
				place = "cluster " + c.Name()
			}
			o.absorb(place, found[i])
		}
		return o
	}
}

// on returns the objects of a cluster.
func (s *Subject) on(c Cluster) []render.Object {
	return slices.DeleteFunc(slices.Clone(s.Objects), func(o render.Object) bool { return o.Cluster != c.Name() })
}

func answers(ctx context.Context, _ *Subject, c Cluster) outcome {
	_, _, err := c.Hello(ctx)
	return fromError(err)
}

// clusterScoped reports whether an object has no namespace. Namespaces themselves are the subject of other permissions.
func clusterScoped(o render.Object) bool { return o.GetNamespace() == "" && o.GetKind() != "Namespace" }

func mayApply(ctx context.Context, s *Subject, c Cluster) outcome {
	return fromError(c.MayApply(ctx, slices.DeleteFunc(s.on(c), clusterScoped)))
}

// mayApplyClusterScoped checks permissions for the objects without a namespace. Only agents have some.
func mayApplyClusterScoped(ctx context.Context, _ *Subject, c agentCluster) outcome {
	objects := slices.DeleteFunc(c.objects, func(o render.Object) bool { return !clusterScoped(o) })
	if len(objects) == 0 {
		return skipped("no agent runs on it")
	}
	return fromError(c.asked.MayApplyClusterScoped(ctx, objects))
}

func version(ctx context.Context, _ *Subject, c Cluster) (o outcome) {
	v, _, err := c.Hello(ctx)
	if err != nil {
		return fromError(err)
	}
	have, err := utilversion.ParseGeneric(v)
	if err != nil {
		return skipped("invalid version %q", v)
	}
	newest := utilversion.MustParseGeneric(newestKubernetes)
	switch {
	case !have.AtLeast(utilversion.MustParseGeneric(oldestKubernetes)):
		o.fail("Kubernetes is %s, and kcpctl needs %s or newer", v, oldestKubernetes)
	case have.Major() > newest.Major() || have.Major() == newest.Major() && have.Minor() > newest.Minor():
		o.warn("Kubernetes is %s, but kcpctl was tested with releases up to %s", v, newestKubernetes)
	}
	return o
}

func clock(ctx context.Context, _ *Subject, c Cluster) (o outcome) {
	_, ahead, err := c.Hello(ctx)
	if err != nil {
		return fromError(err)
	}
	how := "ahead of"
	if ahead < 0 {
		how = "behind"
		ahead = -ahead
	}
	report := o.warn
	switch {
	case ahead <= warnClock:
		return o
	case ahead > maxClock:
		report = o.fail
	}
	report("the clock of the API server is %s %s this machine's", ahead.Round(time.Second), how)
	return o
}

func storeReadable(ctx context.Context, s *Subject) (o outcome) {
	if _, err := s.Runtime.Store().Load(ctx); err != nil {
		o.add(fmt.Errorf("read %s: %w", s.Runtime.Store(), err))
	}
	return o
}

// storeOfInstallation compares the PKI store with the record of the installation.
func storeOfInstallation(ctx context.Context, s *Subject) (o outcome) {
	known, err := s.Runtime.Record(ctx)
	if err != nil {
		return fromError(err)
	}
	if known.Empty() {
		return skipped("nothing is installed yet")
	}
	state, err := s.Runtime.Store().Load(ctx)
	if err != nil {
		return fromError(fmt.Errorf("read %s: %w", s.Runtime.Store(), err))
	}
	o.add(known.CheckAuthorities(state, s.Runtime.Store().String()))
	if lost, next := known.LostKeysMessage(state, s.Runtime.Store().String()); lost != "" {
		o.warn("%s", lost)
		o.fix = cmp.Or(o.fix, next)
	}
	return o
}

// references looks for what objects refer to, on clusters or on this machine.
func references(ctx context.Context, s *Subject) outcome {
	if s.facts.Machine != nil {
		return fromError(s.facts.Machine.References(ctx, s.Objects))
	}
	return eachCluster(func(ctx context.Context, s *Subject, c Cluster) outcome {
		return fromError(c.References(ctx, s.on(c)))
	})(ctx, s)
}

// exposed looks for what the setup needs to expose components.
func exposed(ctx context.Context, s *Subject, c Cluster) outcome {
	return fromError(c.Serves(ctx, s.on(c)))
}

// storage compares the storage classes of new volumes and of the cluster.
func storage(ctx context.Context, s *Subject, c Cluster) (o outcome) {
	fresh, err := s.fresh(ctx, c)
	if err != nil {
		return fromError(err)
	}
	users := map[string][]string{}
	for _, obj := range fresh {
		for _, claim := range claimsOf(obj.Unstructured) {
			class, _, _ := unstructured.NestedString(claim, "spec", "storageClassName")
			users[class] = append(users[class], string(obj.Component))
		}
	}
	if len(users) == 0 {
		return skipped("the setup needs no new volume")
	}
	names, defaults, err := c.StorageClasses(ctx)
	if err != nil {
		return fromError(err)
	}
	existing := "the cluster has none"
	if len(names) > 0 {
		existing = "existing: " + list(names)
	}
	for _, class := range slices.Sorted(maps.Keys(users)) {
		switch {
		case class == "" && defaults == 0:
			o.fail("the cluster has no default storage class, and the volumes of %s name none (%s)",
				list(users[class]), existing)
		case class != "" && !slices.Contains(names, class):
			o.fail("storage class %q, which the volumes of %s need, does not exist (%s)", class,
				list(users[class]), existing)
		}
	}
	return o
}

// admission creates the pods of new and changed workloads in a dry run.
func admission(ctx context.Context, s *Subject, c Cluster) outcome {
	return fromError(c.Admit(ctx, s.on(c)))
}

func architecture(ctx context.Context, s *Subject, c Cluster) (o outcome) {
	var published bool
	for _, comp := range s.Topology.Components {
		if comp.Kind != topology.Etcd && comp.Cluster.Name == c.Name() {
			name, ok := strings.CutPrefix(comp.Image, publishedImage)
			published = published || ok && strings.IndexAny(name, ":@") == 0
		}
	}
	if !published {
		return skipped("the architectures of the image are unknown")
	}
	nodes, err := c.Architectures(ctx)
	if err != nil {
		return fromError(err)
	}
	good := 0
	bad := []string{}
	for _, arch := range slices.Sorted(maps.Keys(nodes)) {
		if slices.Contains(publishedFor, arch) {
			good += nodes[arch]
			continue
		}
		bad = append(bad, arch)
	}
	switch {
	case len(nodes) == 0:
		o.warn("the cluster has no nodes")
	case good == 0:
		o.fail("all nodes are %s, but %s is built for %s", list(bad), publishedImage, list(publishedFor))
	case len(bad) > 0:
		o.warn("some nodes are %s, but %s is built for %s: keep the pods off them with a nodeSelector in podTemplate",
			list(bad), publishedImage, list(publishedFor))
	}
	return o
}

func occupied(ctx context.Context, s *Subject, c Cluster) outcome {
	return fromError(c.Occupied(ctx, s.on(c)))
}

// onMachine runs a check of a setup on this machine.
func onMachine(do func(context.Context, *Subject, Machine) error) func(context.Context, *Subject) outcome {
	return func(ctx context.Context, s *Subject) outcome {
		if s.facts.Machine == nil {
			return skipped("the setup runs on clusters")
		}
		return fromError(do(ctx, s, s.facts.Machine))
	}
}

func stateFolder(ctx context.Context, _ *Subject, m Machine) error { return m.StateFolder(ctx) }
func programs(ctx context.Context, s *Subject, m Machine) error    { return m.Programs(ctx, s.Objects) }
func freePorts(ctx context.Context, s *Subject, m Machine) error   { return m.FreePorts(ctx, s.Objects) }
func hostAddress(ctx context.Context, s *Subject, m Machine) error {
	return m.HostAddress(ctx, s.Objects)
}
