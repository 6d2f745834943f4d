package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// rootArg names an object of a user in a workspace.
type rootArg struct {
	kind, name, workspace, namespace string
	// clusters are all Clusters, when the object was found.
	clusters []*api.Cluster
}

// add adds the flags.
func (o *rootArg) add(f *pflag.FlagSet) {
	f.StringVarP(&o.workspace, "workspace", "w", "", "path of the workspace, such as root:team")
	f.StringVar(&o.namespace, "in", metav1.NamespaceDefault, "namespace of the object in the workspace")
}

// complete reads the argument, and requires the workspace.
func (o *rootArg) complete(arg string) error {
	var ok bool
	o.kind, o.name, ok = strings.Cut(arg, "/")
	switch {
	case !ok || o.kind == "" || o.name == "" || strings.Contains(o.name, "/"):
		return clierr.New(clierr.BadInput, "use KIND/NAME, such as deployment/web", "%q is not an object", arg)
	case o.workspace == "":
		return clierr.New(clierr.BadInput, "add -w WORKSPACE, such as -w root:team", "--workspace is required")
	}
	return nil
}

// read reads the object. It must be a root that was scheduled.
func (o *rootArg) read(ctx context.Context, c *compute,
	flags *setupFlags) (plan.Ref, string, *unstructured.Unstructured, error) {
	at, resource, err := o.find(ctx, c)
	if err != nil {
		return at, "", nil, err
	}
	root, err := c.Object(ctx, at)
	switch {
	case err != nil:
		return at, "", nil, fmt.Errorf("read %s %s in %s: %w", resource, at.Name, at.Workspace, err)
	case root == nil:
		return at, "", nil, clierr.New(clierr.Failed, "specify its namespace with --in",
			"%s %q does not exist in namespace %s of %s",
			resource, at.Name, at.Namespace, at.Workspace)
	}
	return at, resource, root, o.check(root, schema.ParseGroupResource(resource), flags)
}

// check fails if the controller has decided nothing about an object.
func (o *rootArg) check(root *unstructured.Unstructured, gr schema.GroupResource, flags *setupFlags) error {
	cluster, of := root.GetLabels()[api.LabelCluster], root.GetAnnotations()[api.AnnotationName]
	_, decided := root.GetAnnotations()[api.AnnotationExplain]
	switch {
	case cluster != "" && of != "":
		return clierr.New(clierr.BadInput, "specify "+o.kind+"/"+of, "%s is the part of %s that runs on cluster %s",
			root.GetName(), of, cluster)
	case cluster != "":
		return clierr.New(clierr.BadInput, "remove the object and create it without the label, so that it is scheduled",
			"%s is not scheduled: it is on cluster %s, because it was created with the label %s", root.GetName(),
			cluster, api.LabelCluster)
	case decided:
		return nil
	case slices.ContainsFunc(api.Dependencies(), func(r schema.GroupVersionResource) bool {
		return r.Group == root.GroupVersionKind().Group && strings.EqualFold(r.Resource, root.GetKind()+"s")
	}):
		return clierr.New(clierr.NotReady, "a workload has to use it, or it needs the annotation "+api.AnnotationSpread,
			"%s is on no cluster: no workload needs it", root.GetName())
	}
	if err := unserved(o.clusters, gr); err != nil {
		return err
	}
	return clierr.New(clierr.NotReady,
		"see "+flags.command("status")+" and "+flags.command("logs workloads/controller"),
		"the controller has not scheduled %s yet", root.GetName())
}

// find returns where the object is, and the name of its resource. A kind is one of the published APIs, or one that kcp
// serves and that workloads use: its plural, its singular, its kind or a short name, with or without a group, as for
// kubectl.
func (o *rootArg) find(ctx context.Context, c *compute) (plan.Ref, string, error) {
	clusters, err := c.clusters(ctx)
	if err != nil {
		return plan.Ref{}, "", err
	}
	o.clusters = clusters
	known, versions := explainable(clusters)
	kind, group, inGroup := strings.Cut(o.kind, ".")
	var names []string
	for _, gv := range versions {
		all, err := c.Resources(ctx, o.workspace, gv)
		if errors.Is(err, kcp.ErrNotServed) {
			continue
		}
		if err != nil {
			return plan.Ref{}, "", clierr.New(clierr.Failed, "specify the path of a workspace, such as root:team",
				"read the APIs of workspace %s: %w", o.workspace, err)
		}
		for _, r := range all {
			if !known[gv.WithResource(r.Name)] {
				continue
			}
			if called(r, kind) && (!inGroup || group == gv.Group) {
				at := plan.Ref{Workspace: o.workspace, GroupVersionKind: gv.WithKind(r.Kind), Name: o.name}
				if r.Namespaced {
					at.Namespace = o.namespace
				}
				return at, gv.WithResource(r.Name).GroupResource().String(), nil
			}
			names = append(names, strings.ToLower(r.Kind))
		}
	}
	if err := unserved(clusters, o.ofSetup()); err != nil {
		return plan.Ref{}, "", err
	}
	return plan.Ref{}, "", o.unknown(names)
}

// ofSetup returns the API of the setup that the argument names, or nothing. Workspaces do not have an API that was
// never published, so that only the name of its resource is known.
func (o *rootArg) ofSetup() (none schema.GroupResource) {
	kind, group, inGroup := strings.Cut(o.kind, ".")
	guess, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	for _, cl := range o.clusters {
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
			reasons = append(reasons, fmt.Sprintf("%s: %s",
				cl.Name, strings.TrimSuffix(string(a.State)+": "+firstLine(a.Message), ": ")))
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

// unknown is the error for a kind that no workload has. Without the published APIs, a workspace has another type.
func (o *rootArg) unknown(names []string) error {
	if len(names) <= len(api.Dependencies()) {
		return clierr.New(clierr.BadInput,
			"workspaces of the type in spec.workloads.workspaceType can use the APIs: see kcpctl workloads apis",
			"workspace %s does not use the APIs of the clusters, so it has no %s", o.workspace, o.kind)
	}
	return unknownName("kind", o.kind, names)
}

// called reports whether a resource has a name, as in kubectl get.
func called(r metav1.APIResource, name string) bool {
	return slices.ContainsFunc(append([]string{r.Name, r.SingularName, r.Kind}, r.ShortNames...),
		func(n string) bool { return n != "" && strings.EqualFold(n, name) })
}
