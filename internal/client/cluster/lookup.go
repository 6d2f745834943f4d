package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// ServedKind is how a cluster serves a kind.
type ServedKind struct {
	Group, Kind, Plural string
	Namespaced          bool
	// Versions are the versions that the API server serves, the preferred one first.
	Versions []string
}

// Lookup returns how the API server serves a kind of a group. As with kubectl, the kind may be written as its plural or
// singular, and in lower case. Every user may ask. It fails if the API server does not serve the kind.
func (c *Client) Lookup(ctx context.Context, group, name string) (*ServedKind, error) {
	root := "/apis/" + group
	var all metav1.APIGroup
	err := c.readJSON(ctx, root, &all)
	if apierrors.IsNotFound(err) {
		return nil, clierr.New(clierr.Failed, "install its CustomResourceDefinition first: "+c.Kubectl("api-resources"),
			"the API server has no API group %s (%s)", group, c.Where())
	}
	if err != nil {
		return nil, c.Explain(err, "ask for the API group %s", group)
	}
	var found *ServedKind
	var known []string
	for _, v := range all.Versions {
		var resources metav1.APIResourceList
		if err := c.readJSON(ctx, root+"/"+v.Version, &resources); err != nil {
			return nil, c.Explain(err, "ask for the API %s", v.GroupVersion)
		}
		for _, r := range resources.APIResources {
			switch {
			case strings.Contains(r.Name, "/"): // a subresource
			case !strings.EqualFold(name, r.Kind) && !strings.EqualFold(name, r.Name) &&
				!strings.EqualFold(name, r.SingularName):
				if !slices.Contains(known, r.Kind) {
					known = append(known, r.Kind)
				}
			case found == nil:
				found = &ServedKind{Group: group, Kind: r.Kind, Plural: r.Name, Namespaced: r.Namespaced,
					Versions: []string{v.Version}}
			case found.Kind == r.Kind:
				found.Versions = append(found.Versions, v.Version)
			}
		}
	}
	if found == nil {
		return nil, clierr.New(clierr.Failed, "known: "+strings.Join(known, ", "),
			"the API group %s has no kind %s (%s)", group, name, c.Where())
	}
	return found, nil
}

// readJSON reads a path of the API server.
func (c *Client) readJSON(ctx context.Context, path string, into any) error {
	body, err := c.Read(ctx, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
