package workspace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// objects are the objects in the workspaces of one kcp.
type objects struct {
	client *kcp.Client
	// topology has the physical clusters, and open returns a client for one.
	topology *topology.Topology
	open     Open
	// removed are physical clusters that the topology no longer has, by name.
	removed map[string]v1alpha1.WorkloadCluster
	// installations are the IDs of the installation: the one in the PKI, and the one in the record.
	installations []string
	// shards are the labels of the shards, by name.
	shards map[string]labels.Set
	// notify is called with messages for the user.
	notify func(string)
}

// owns reports whether an object belongs to the installation.
func (s *objects) owns(o *unstructured.Unstructured) bool {
	id := o.GetLabels()[topology.LabelInstallation]
	return id != "" && slices.Contains(s.installations, id)
}

// foreign is a conflict if an object exists that does not belong to the installation. With force, objects without a
// label are taken over, but not the objects of another installation.
func (p *planner) foreign(it plan.Item) []plan.Conflict {
	if it.Live == nil || p.owns(it.Live) {
		return nil
	}
	manager := "not kcpctl"
	switch id := it.Live.GetLabels()[topology.LabelInstallation]; {
	case id != "":
		manager = "kcpctl, installation " + id
	case p.force:
		return nil
	default:
		for _, m := range it.Live.GetManagedFields() {
			if m.Subresource == "" && m.Manager != object.FieldManager {
				manager = m.Manager
				break
			}
		}
	}
	return []plan.Conflict{{
		Ref: it.Ref, Object: it.Ref.String(),
		Field: "metadata.labels[" + topology.LabelInstallation + "]", Manager: manager,
	}}
}

// fixed refuses changes of fields that kcp does not change after an object was created, with a better message than
// kcp's, and changes that kcp accepts and ignores.
func (s *objects) fixed(ref plan.Ref, live, want *unstructured.Unstructured) error {
	if live == nil {
		return nil
	}
	switch ref.GroupKind() {
	case kcpapi.Workspace.GroupKind():
		path := ref.Workspace + ":" + ref.Name
		if err := sameType(path, live, want); err != nil {
			return err
		}
		return s.samePlacement(path, live, want)
	case kcpapi.APIBinding.GroupKind():
		return sameExport(ref, live, want)
	}
	return nil
}

// sameType refuses another type (kcp: pkg/admission/workspace, Validate).
func sameType(path string, live, want *unstructured.Unstructured) error {
	text := func(o *unstructured.Unstructured, field string) string {
		s, _, _ := unstructured.NestedString(o.Object, "spec", "type", field)
		return s
	}
	for _, field := range []string{"name", "path"} {
		was, now := text(live, field), text(want, field)
		if now != "" && was != now {
			return clierr.New(clierr.Failed, "revert the type, or give the workspace another name",
				"workspace %s has the type %s, and the setup has %s: kcp does not change the type of a workspace",
				path, typeText(text(live, "path"), text(live, "name")),
				typeText(text(want, "path"), text(want, "name")))
		}
	}
	return nil
}

// shardOf returns the shard of a workspace; empty if it is not known.
func (s *objects) shardOf(workspace *unstructured.Unstructured) string {
	return kcp.WorkspaceShard(workspace, slices.Collect(maps.Keys(s.shards)))
}

func typeText(path, name string) string { return strings.TrimPrefix(path+":"+name, ":") }

// samePlacement refuses a selector that does not match the shard of the workspace: kcp chooses a shard once (kcp:
// pkg/reconciler/tenancy/workspace/workspace_reconcile_scheduling.go). kcpctl move moves a workspace to shards that its
// selector matches, so one that matches both shards must come first.
func (s *objects) samePlacement(path string, live, want *unstructured.Unstructured) error {
	selector, _, _ := unstructured.NestedStringMap(want.Object, "spec", "location", "selector", "matchLabels")
	shard := s.shardOf(live)
	has, known := s.shards[shard]
	if !known || labels.SelectorFromSet(selector).Matches(has) {
		return nil
	}
	hint := "revert the selector, or give the workspace another name"
	if release.Of(s.topology.Root().Version).Migration {
		hint = fmt.Sprintf("revert the selector; or remove it, run kcpctl up, move the workspace with kcpctl move %s "+
			"--to SHARD, set the new selector, and run kcpctl up again", path)
	}
	return clierr.New(clierr.Failed, hint,
		"workspace %s is on shard %s, which the selector %s of the setup does not match: kcp does not move "+
			"a workspace to another shard by itself",
		path, shard, labels.Set(selector))
}

// sameExport refuses another APIExport (kcp: config/crds/apis.kcp.io_apibindings.yaml, spec.reference).
func sameExport(ref plan.Ref, live, want *unstructured.Unstructured) error {
	export := func(o *unstructured.Unstructured) string {
		m, _, _ := unstructured.NestedStringMap(o.Object, "spec", "reference", "export")
		return cmp.Or(m["path"], ref.Workspace) + ":" + m["name"]
	}
	if was, now := export(live), export(want); was != now {
		return clierr.New(clierr.Failed, "revert it, or give the APIBinding another name",
			"%s binds the APIExport %s, and the setup has %s: kcp does not change the APIExport of an APIBinding", ref,
			was, now)
	}
	return nil
}

// rejected explains why kcp, or a cluster, did not accept an object.
func rejected(it plan.Item, err error) error {
	if found := plan.ConflictsOf(it.Ref, err); found != nil {
		return plan.ConflictsError(found)
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		server, hint := "kcp", "correct "+fieldOf(it.Component)+" in the setup file"
		if topology.IsKubernetes(it.Workspace) {
			server = "the cluster"
			hint = hint + ", or the permissions of the user of the cluster's kubeconfig"
		}
		return clierr.New(clierr.Failed, hint, "%s does not accept %s: %w", server, it.Ref, err)
	}
	return fmt.Errorf("apply %s: %w", it.Ref, err)
}

// fieldOf returns the field of the setup file that has a component with objects in workspaces or on clusters.
func fieldOf(id topology.ID) string {
	if id.Kind() == topology.Physical {
		return "spec.workloads"
	}
	return "spec." + id.Kind().Plural()
}
