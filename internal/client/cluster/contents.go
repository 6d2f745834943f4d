package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// Contents returns the objects in a namespace, except those that Kubernetes creates in every namespace.
func (c *Client) Contents(ctx context.Context, namespace string) ([]string, error) {
	resources, err := c.listable(ctx)
	if err != nil {
		return nil, err
	}
	found := make([][]string, len(resources))
	err = parallel.Each(ctx, parallel.Indices(resources), func(ctx context.Context, i int) error {
		l, err := c.Dynamic.Resource(resources[i]).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return nil
		}
		if err != nil {
			return c.Explain(err, "list %s", resources[i].Resource)
		}
		for j := range l.Items {
			if o := &l.Items[j]; !isStandard(o) {
				found[i] = append(found[i], o.GetKind()+"/"+o.GetName())
			}
		}
		return nil
	})
	return slices.Concat(found...), err
}

// isStandard reports whether Kubernetes creates an object in every namespace, or deletes it with other objects.
func isStandard(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "ConfigMap":
		return o.GetName() == "kube-root-ca.crt"
	case "ServiceAccount":
		return o.GetName() == "default"
	}
	return o.GetDeletionTimestamp() != nil || len(o.GetOwnerReferences()) > 0
}

// discoveryKind is the kind of a discovery with the resources of all groups in one answer.
const discoveryKind = "APIGroupDiscoveryList"

// discoveryFormat requests this kind. Servers that do not know it answer with another one.
var discoveryFormat = map[string]string{"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=" + discoveryKind}

// derivedKinds are those that Kubernetes derives from other objects. Losing them loses nothing.
var derivedKinds = []string{"Event", "Endpoints", "EndpointSlice", "PodMetrics"}

// listable returns the namespaced resources of a cluster that can be listed.
func (c *Client) listable(ctx context.Context) ([]schema.GroupVersionResource, error) {
	var out []schema.GroupVersionResource
	for _, path := range []string{"/api", "/apis"} {
		raw, err := c.Read(ctx, path, discoveryFormat)
		if err != nil {
			return nil, c.Explain(err, "list the resources of the cluster")
		}
		var groups apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(raw, &groups); err != nil {
			return nil, fmt.Errorf("read %s (%s): %w", path, c.Where(), err)
		}
		if groups.Kind != discoveryKind {
			return nil, c.unknownResources(fmt.Errorf("%s is of kind %q, and not %s", path, groups.Kind, discoveryKind))
		}
		for i := range groups.Items {
			found, err := listableIn(&groups.Items[i])
			if err != nil {
				return nil, c.unknownResources(err)
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

// unknownResources is the error for a cluster that does not say which resources it has.
func (c *Client) unknownResources(why error) error {
	return clierr.New(clierr.Failed,
		"see kubectl get apiservices, and make the APIs available or delete their APIService; then rerun the command",
		"which objects are in a namespace is not known: %w (%s)", why, c.Where())
}

// listableIn returns the namespaced resources of a group that can be listed, each in the first version that has it: no
// version needs to have all resources.
func listableIn(g *apidiscovery.APIGroupDiscovery) ([]schema.GroupVersionResource, error) {
	var out []schema.GroupVersionResource
	seen := map[string]bool{}
	for _, v := range g.Versions {
		if v.Freshness == apidiscovery.DiscoveryFreshnessStale { // its server does not answer
			return nil, fmt.Errorf("the API %s/%s is not available", g.Name, v.Version)
		}
		for _, res := range v.Resources {
			derived := res.ResponseKind != nil && slices.Contains(derivedKinds, res.ResponseKind.Kind)
			if res.Scope != apidiscovery.ScopeNamespace || !slices.Contains(res.Verbs, "list") || derived ||
				seen[res.Resource] {
				continue
			}
			seen[res.Resource] = true
			out = append(out, schema.GroupVersionResource{Group: g.Name, Version: v.Version, Resource: res.Resource})
		}
	}
	return out, nil
}
