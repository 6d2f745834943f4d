package compute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// RootName names an object of a user in a workspace. Its kind is one of the published APIs, or one that kcp serves and
// that workloads use: its plural, its singular, its kind or a short name, with or without a group, as for kubectl.
type RootName struct{ Kind, Name, Workspace, Namespace string }

// Root is an object of a user that the controller has scheduled.
type Root struct {
	plan.Ref
	Resource schema.GroupResource
	Object   *unstructured.Unstructured
	// clusters are all Clusters, when it was found.
	clusters []*api.Cluster
}

// UnknownKindError is the error for a kind that no workload has.
type UnknownKindError struct {
	// Known are the kinds of workloads.
	Known []string
}

// Error implements error.
func (e *UnknownKindError) Error() string { return "no workload has this kind" }

// Root reads an object. It must be a root that was scheduled.
func (w *Workspace) Root(ctx context.Context, n RootName) (*Root, error) {
	r, err := w.find(ctx, n)
	if err != nil {
		return nil, err
	}
	r.Object, err = w.Object(ctx, r.Ref)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s %s in %s: %w", r.Resource, r.Name, r.Workspace, err)
	case r.Object == nil:
		return nil, clierr.New(clierr.Failed, "specify its namespace with --in",
			"%s %q does not exist in namespace %s of %s", r.Resource, r.Name, r.Namespace, r.Workspace)
	}
	return r, r.check(n.Kind)
}

// check fails if the controller has decided nothing about an object.
func (r *Root) check(kind string) error {
	root := r.Object
	cluster, of := root.GetLabels()[api.LabelCluster], root.GetAnnotations()[api.AnnotationName]
	_, decided := root.GetAnnotations()[api.AnnotationExplain]
	switch {
	case cluster != "" && of != "":
		return clierr.New(clierr.BadInput, "specify "+kind+"/"+of, "%s is the part of %s that runs on cluster %s",
			r.Name, of, cluster)
	case cluster != "":
		return clierr.New(clierr.BadInput, "remove the object and create it without the label, so that it is scheduled",
			"%s is not scheduled: it is on cluster %s, because it was created with the label %s", r.Name,
			cluster, api.LabelCluster)
	case decided:
		return nil
	case isDependency(r.Resource):
		return clierr.New(clierr.NotReady, "a workload has to use it, or it needs the annotation "+api.AnnotationSpread,
			"%s is on no cluster: no workload needs it", r.Name)
	}
	if err := unserved(r.clusters, r.Resource); err != nil {
		return err
	}
	return clierr.New(clierr.NotReady, "see kcpctl status and kcpctl logs workloads/controller",
		"the controller has not scheduled %s yet", r.Name)
}

// isDependency reports whether an API is one of kcp's own that workloads use, and that every cluster serves.
func isDependency(gr schema.GroupResource) bool {
	return slices.ContainsFunc(api.Dependencies(),
		func(r schema.GroupVersionResource) bool { return r.GroupResource() == gr })
}

// find returns where the object is, without the object.
func (w *Workspace) find(ctx context.Context, n RootName) (*Root, error) {
	clusters, err := w.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	known, versions := explainable(clusters)
	kind, group, inGroup := strings.Cut(n.Kind, ".")
	var names []string
	for _, gv := range versions {
		all, err := w.Resources(ctx, n.Workspace, gv)
		if errors.Is(err, kcp.ErrNotServed) {
			continue
		}
		if err != nil {
			return nil, clierr.New(clierr.Failed, "specify the path of a workspace, such as root:team",
				"read the APIs of workspace %s: %w", n.Workspace, err)
		}
		for _, r := range all {
			gvr := gv.WithResource(r.Name)
			if !known[gvr] {
				continue
			}
			if called(r, kind) && (!inGroup || group == gv.Group) {
				at := plan.Ref{Workspace: n.Workspace, GroupVersionKind: gv.WithKind(r.Kind), Name: n.Name}
				if r.Namespaced {
					at.Namespace = n.Namespace
				}
				return &Root{Ref: at, Resource: gvr.GroupResource(), clusters: clusters}, nil
			}
			names = append(names, strings.ToLower(r.Kind))
		}
	}
	if err := unserved(clusters, ofSetup(clusters, n.Kind)); err != nil {
		return nil, err
	}
	if len(names) <= len(api.Dependencies()) { // without the published APIs, the workspace has another type
		return nil, clierr.New(clierr.BadInput,
			"workspaces of the type in spec.workloads.workspaceType can use the APIs: see kcpctl workloads apis",
			"workspace %s does not use the APIs of the clusters, so it has no %s", n.Workspace, n.Kind)
	}
	return nil, &UnknownKindError{names}
}

// ofSetup returns the API of the setup that a kind names, or nothing. Workspaces do not have an API that was never
// published, so that only the name of its resource is known.
func ofSetup(clusters []*api.Cluster, kindAndGroup string) (none schema.GroupResource) {
	kind, group, inGroup := strings.Cut(kindAndGroup, ".")
	guess, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	for _, cl := range clusters {
		for _, a := range cl.Status.APIs {
			if (strings.EqualFold(a.Resource, kind) || a.Resource == guess.Resource) && (!inGroup || a.Group == group) {
				return a.GroupResource()
			}
		}
	}
	return none
}

// unserved returns an error if no cluster serves an API of the setup, with the reason of each. It is nil if one does,
// or if the setup does not have the API.
func unserved(clusters []*api.Cluster, gr schema.GroupResource) error {
	var reasons, offers []string
	for _, cl := range clusters {
		for _, a := range cl.Status.APIs {
			if a.GroupResource() != gr {
				continue
			}
			if a.State.Serves() {
				return nil
			}
			message, _, _ := strings.Cut(a.Message, "\n")
			reasons = append(reasons, fmt.Sprintf("%s: %s", cl.Name,
				strings.TrimSuffix(string(a.State)+": "+message, ": ")))
			if a.Accept != nil {
				offers = append(offers, cl.Name)
			}
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	hint := "see kcpctl workloads apis. Add a cluster that serves it, or correct these"
	if len(offers) > 0 {
		hint = fmt.Sprintf("see kcpctl workloads apis: with a narrower schema, these would serve it: %s",
			strings.Join(offers, ", "))
	}
	return clierr.New(clierr.NotReady, hint, "no cluster serves %s: %s", gr, strings.Join(reasons, "; "))
}

// explainable are the resources of the objects that can be explained: the published APIs, also if no cluster serves
// them now, and what workloads use of kcp. The versions have each group once for each version.
func explainable(clusters []*api.Cluster) (known map[schema.GroupVersionResource]bool, versions []schema.GroupVersion) {
	known = map[schema.GroupVersionResource]bool{}
	add := func(r schema.GroupVersionResource) {
		known[r] = true
		if !slices.Contains(versions, r.GroupVersion()) {
			versions = append(versions, r.GroupVersion())
		}
	}
	for _, r := range api.Dependencies() {
		add(r)
	}
	for _, cl := range clusters {
		for _, a := range cl.Status.APIs {
			if a.Version != "" {
				add(schema.GroupVersionResource{Group: a.Group, Version: a.Version, Resource: a.Resource})
			}
		}
	}
	return known, versions
}

// called reports whether a resource has a name, as in kubectl get.
func called(r metav1.APIResource, name string) bool {
	return slices.ContainsFunc(append([]string{r.Name, r.SingularName, r.Kind}, r.ShortNames...),
		func(n string) bool { return n != "" && strings.EqualFold(n, name) })
}
