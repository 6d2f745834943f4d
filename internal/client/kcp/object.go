package kcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
)

// ErrNotServed means that a workspace does not serve the API of an object.
var ErrNotServed = errors.New("the workspace does not serve this API")

// clusterScoped returns the resource of a kind that every workspace serves and that has no namespace. Others are looked
// up in the workspace.
func clusterScoped(k schema.GroupKind) (resource string, ok bool) {
	for _, a := range kcpapi.InWorkspaces {
		if a.GroupKind() == k {
			return a.Resource, true
		}
	}
	for _, r := range []kind.Kind{kind.ClusterRole, kind.ClusterRoleBinding} {
		if r.GroupKind() == k {
			return r.Resource, true
		}
	}
	return "", false
}

// Object returns an object in a workspace, or nil if it does not exist, or the workspace does not serve its kind. It
// fails if the workspace does not serve a kind that all serve: a server that has just started does not, and may have
// the object.
func (c *Client) Object(ctx context.Context, p plan.Ref) (*unstructured.Unstructured, error) {
	client, err := c.resource(ctx, p)
	if errors.Is(err, ErrNotServed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := client.Get(ctx, p.Name, metav1.GetOptions{})
	if isMissing(err) {
		return nil, nil
	}
	return o, err
}

// isMissing reports whether an object does not exist in an API that is served.
func isMissing(err error) bool { return apierrors.IsNotFound(err) && !LacksAPI(err) }

// ApplyObject applies an object to a workspace by server-side apply, and returns the result. With dryRun nothing is
// written. With force it takes over fields that other managers own.
func (c *Client) ApplyObject(ctx context.Context, p plan.Ref, o *unstructured.Unstructured,
	dryRun, force bool) (*unstructured.Unstructured, error) {
	client, err := c.resource(ctx, p)
	if err != nil {
		return nil, err
	}
	return object.Apply(ctx, client, o, object.ApplyOptions{DryRun: dryRun, Force: force})
}

// DeleteObject deletes an object in a workspace if it is still the one that was seen: see object.Delete.
func (c *Client) DeleteObject(ctx context.Context, p plan.Ref, seen *unstructured.Unstructured) error {
	client, err := c.resource(ctx, p)
	if err != nil {
		return err
	}
	return object.Delete(ctx, client, seen, plan.RefIn(p.Workspace, seen))
}

// DeleteUnchanged deletes an object in a workspace if it has not changed at all: see object.DeleteUnchanged.
func (c *Client) DeleteUnchanged(ctx context.Context, p plan.Ref, seen *unstructured.Unstructured) error {
	client, err := c.resource(ctx, p)
	if err != nil {
		return err
	}
	return object.DeleteUnchanged(ctx, client, seen, plan.RefIn(p.Workspace, seen))
}

// PatchObject merges a patch into an object in a workspace, and returns the result. It fails if the object does not
// exist.
func (c *Client) PatchObject(ctx context.Context, p plan.Ref, patch map[string]any) (
	*unstructured.Unstructured, error) {
	client, err := c.resource(ctx, p)
	if err != nil {
		return nil, err
	}
	return mergepatch.Send(ctx, client, object.FieldManager, p.Name, "", patch)
}

// resource returns a client for the resource of an object.
func (c *Client) resource(ctx context.Context, p plan.Ref) (dynamic.ResourceInterface, error) {
	ws := c.workspace(p.Workspace)
	if plural, ok := clusterScoped(p.GroupKind()); ok {
		return ws.Resource(p.GroupVersion().WithResource(plural)), nil
	}
	r, err := c.discover(ctx, p)
	if err != nil {
		return nil, err
	}
	if r.Namespaced {
		return ws.Resource(p.GroupVersion().WithResource(r.Name)).Namespace(p.Namespace), nil
	}
	return ws.Resource(p.GroupVersion().WithResource(r.Name)), nil
}

// Resources returns the resources that a workspace serves in a version of a group, without subresources. It fails with
// ErrNotServed if it does not serve the version.
func (c *Client) Resources(ctx context.Context, workspace string,
	gv schema.GroupVersion) ([]metav1.APIResource, error) {
	root := "/apis/" + gv.String()
	if gv.Group == "" {
		root = "/api/" + gv.Version
	}
	answer, err := c.Get(ctx, "/clusters/"+workspace+root, nil)
	switch {
	case err != nil:
		return nil, err
	case answer.Code == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", gv, ErrNotServed)
	case answer.Code != http.StatusOK:
		return nil, apierrors.NewGenericServerResponse(answer.Code, "get",
			schema.GroupResource{Group: gv.Group}, root, answer.Message, 0, true)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal([]byte(answer.Message), &list); err != nil {
		return nil, fmt.Errorf("read the APIs of workspace %s: %w", workspace, err)
	}
	return slices.DeleteFunc(list.APIResources,
		func(r metav1.APIResource) bool { return strings.Contains(r.Name, "/") }), nil
}

// discover returns the resource of a kind in a workspace. It fails with ErrNotServed if there is none.
func (c *Client) discover(ctx context.Context, p plan.Ref) (metav1.APIResource, error) {
	all, err := c.Resources(ctx, p.Workspace, p.GroupVersion())
	if errors.Is(err, ErrNotServed) {
		return metav1.APIResource{}, fmt.Errorf("%s: %w", p.GroupVersionKind, ErrNotServed)
	}
	if err != nil {
		return metav1.APIResource{}, err
	}
	for _, r := range all {
		if r.Kind == p.Kind {
			return r, nil
		}
	}
	return metav1.APIResource{}, fmt.Errorf("%s: %w", p.GroupVersionKind, ErrNotServed)
}

// BindingReady returns what an APIBinding that is not bound waits for.
func BindingReady(binding *unstructured.Unstructured) error {
	phase := phaseOf(binding)
	if phase == "Bound" {
		return nil
	}
	return errors.New(withReason(strings.ToLower(cmp.Or(phase, "not bound")), binding))
}
