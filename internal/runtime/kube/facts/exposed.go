package facts

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Serves returns an error with the kinds of objects that the API server does not serve, and with the Ingress classes
// and Gateways that do not exist or do not fit.
func (c *Cluster) Serves(ctx context.Context, objects []render.Object) error {
	var errs []error
	for _, k := range kind.Applied {
		isKind := func(o render.Object) bool { return o.GroupVersionKind() == k.GroupVersionKind }
		if !k.Negotiated() || k.Definition != "" || !slices.ContainsFunc(objects, isKind) {
			continue
		}
		served, err := c.client.Serves(ctx, k)
		switch {
		case err != nil:
			return err
		case !served:
			errs = append(errs, c.client.NotServed(k))
			continue
		}
		for _, o := range objects {
			if isKind(o) {
				errs = append(errs, c.route(ctx, o))
			}
		}
	}
	return errors.Join(errs...)
}

// Versions returns the versions in which the API server serves a kind.
func (c *Cluster) Versions(ctx context.Context, kind schema.GroupKind) ([]string, error) {
	if err := c.client.Connect(ctx); err != nil {
		return nil, err
	}
	served, err := c.client.Lookup(ctx, kind.Group, kind.Kind)
	if err != nil {
		return nil, err
	}
	return served.Versions, nil
}

// route returns an error if an Ingress or a TLSRoute refers to something that does not exist, as far as the user may
// know.
func (c *Cluster) route(ctx context.Context, o render.Object) error {
	switch o.GetKind() {
	case kind.Ingress.Kind:
		class, _, _ := unstructured.NestedString(o.Object, "spec", "ingressClassName")
		if class == "" {
			return nil
		}
		found, err := c.lookUp(ctx, kind.IngressClasses, "", class)
		if found == nil && err == nil {
			return clierr.New(clierr.Failed,
				"list them with "+c.client.Kubectl("get ingressclasses")+", and correct expose.className",
				"IngressClass/%s, which %s needs, does not exist (%s)", class, o.Component, c.client.Where())
		}
		return err
	case kind.TLSRoute.Kind:
		return c.gateway(ctx, o)
	}
	return nil
}

// gateway returns an error if the Gateway of a TLSRoute does not exist, or has no listener that passes TLS through.
func (c *Cluster) gateway(ctx context.Context, o render.Object) error {
	parents, _, _ := unstructured.NestedSlice(o.Object, "spec", "parentRefs")
	for i := range parents {
		parent, _ := parents[i].(map[string]any)
		name, _, _ := unstructured.NestedString(parent, "name")
		section, _, _ := unstructured.NestedString(parent, "sectionName")
		namespace, _, _ := unstructured.NestedString(parent, "namespace")
		if namespace == "" {
			namespace = o.GetNamespace()
		}
		found, err := c.lookUp(ctx, kind.Gateways, namespace, name)
		switch {
		case err != nil:
			return err
		case found == nil:
			return clierr.New(clierr.Failed, "create it, or correct expose.gateway",
				"Gateway/%s/%s, which %s needs, does not exist (%s)", namespace, name, o.Component, c.client.Where())
		case found.Object != nil && !passesThrough(found, section):
			return clierr.New(clierr.Failed, "add a listener with protocol TLS and tls.mode Passthrough to the Gateway",
				"Gateway/%s/%s, which %s needs, has no listener%s that passes TLS through (%s)", namespace,
				name, o.Component,
				listener(section), c.client.Where())
		}
	}
	return nil
}

func listener(section string) string {
	if section == "" {
		return ""
	}
	return fmt.Sprintf(" %q", section)
}

// passesThrough reports whether a Gateway has a listener for TLS passthrough, with a name if there is one.
func passesThrough(gateway *unstructured.Unstructured, section string) bool {
	listeners, _, _ := unstructured.NestedSlice(gateway.Object, "spec", "listeners")
	return slices.ContainsFunc(listeners, func(l any) bool {
		m, _ := l.(map[string]any)
		name, _, _ := unstructured.NestedString(m, "name")
		protocol, _, _ := unstructured.NestedString(m, "protocol")
		mode, _, _ := unstructured.NestedString(m, "tls", "mode")
		return protocol == "TLS" && mode == "Passthrough" && (section == "" || section == name)
	})
}

// lookUp returns an object: nil if it does not exist, and an empty one if the user may not read it.
func (c *Cluster) lookUp(
	ctx context.Context, r schema.GroupVersionResource, namespace, name string,
) (*unstructured.Unstructured, error) {
	o, err := c.client.Dynamic.Resource(r).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return &unstructured.Unstructured{}, nil
	}
	return o, c.client.Explain(err, "read %s %s", r.Resource, name)
}
