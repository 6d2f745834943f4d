// Package puller reads which APIs a physical cluster serves, and their schemas: from CustomResourceDefinitions as they
// are, and for built-in APIs from the OpenAPI v3 documents of the API server.
package puller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
)

// Result has the APIs that a cluster serves.
type Result struct {
	// Version is the version of the API server, such as v1.36.3.
	Version string
	// Cluster has the requested APIs, in the order of the request: for each API, the version that the cluster prefers
	// first. It has no name.
	negotiate.Cluster
	// Hash is what Puller.Hash returned when the result was read.
	Hash string
}

// Puller reads the APIs of a cluster.
type Puller struct{ client *rest.RESTClient }

// New returns a Puller. It does not connect.
func New(cfg *rest.Config) (*Puller, error) {
	cfg = dynamic.ConfigFor(cfg)
	cfg.QPS = -1
	cfg.AcceptContentTypes = runtime.ContentTypeJSON
	client, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	return &Puller{client}, nil
}

// Hash returns a value that changes when the APIs of the cluster change. It needs one small request: the URLs of the
// OpenAPI v3 documents have hashes of their contents.
func (p *Puller) Hash(ctx context.Context) (string, error) {
	i, err := p.index(ctx)
	return i.hash(), err
}

// Pull reads the requested APIs. It fails if the API server cannot be read; an API that cannot be read is a problem of
// the result.
func (p *Puller) Pull(ctx context.Context, requested []schema.GroupResource) (*Result, error) {
	documents, err := p.index(ctx)
	if err != nil {
		return nil, err
	}
	var v version.Info
	if err := p.get(ctx, "/version", &v); err != nil {
		return nil, err
	}
	versions, err := p.versions(ctx)
	if err != nil {
		return nil, err
	}
	r := reader{
		Puller: p, versions: versions, documents: documents,
		lists: map[schema.GroupVersion]*metav1.APIResourceList{}, parsed: map[schema.GroupVersion]document{},
	}
	out := &Result{Version: v.GitVersion, Hash: documents.hash()}
	out.Problems = map[schema.GroupResource]string{}
	for _, gr := range requested {
		apis, err := r.read(ctx, gr)
		if unusable, ok := errors.AsType[unusableError](err); ok {
			out.Problems[gr] = strings.TrimSpace(unusable.Error())
			continue
		}
		if err != nil {
			return nil, err
		}
		out.APIs = append(out.APIs, apis...)
	}
	return out, nil
}

// unusableError is why an API cannot be used, though the API server can be read.
type unusableError struct{ error }

func unusable(format string, args ...any) error { return unusableError{fmt.Errorf(format, args...)} }

// versions returns the versions of each group, the preferred one first.
func (p *Puller) versions(ctx context.Context) (map[string][]string, error) {
	var list metav1.APIGroupList
	if err := p.get(ctx, "/apis", &list); err != nil {
		return nil, err
	}
	out := map[string][]string{"": {"v1"}}
	for _, g := range list.Groups {
		all := []string{g.PreferredVersion.Version}
		for _, v := range g.Versions {
			if !slices.Contains(all, v.Version) {
				all = append(all, v.Version)
			}
		}
		out[g.Name] = all
	}
	return out, nil
}

// reader reads the APIs of a cluster once. It remembers what several of them need.
type reader struct {
	*Puller
	versions  map[string][]string
	documents index
	lists     map[schema.GroupVersion]*metav1.APIResourceList
	parsed    map[schema.GroupVersion]document
}

func (r *reader) read(ctx context.Context, gr schema.GroupResource) ([]negotiate.API, error) {
	var crd *apiextensionsv1.CustomResourceDefinition
	if strings.Contains(gr.Group, ".") { // others are built in
		read := &apiextensionsv1.CustomResourceDefinition{}
		err := r.get(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+gr.String(), read)
		switch {
		case err == nil:
			crd = read
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	var out []negotiate.API
	for _, v := range r.versions[gr.Group] {
		gv := schema.GroupVersion{Group: gr.Group, Version: v}
		found, subresources, err := r.find(ctx, gv, gr.Resource)
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		api := newAPI(gv, found)
		if crd != nil {
			err = fromCRD(api, crd)
		} else {
			err = r.builtIn(ctx, api, subresources)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, *api)
	}
	if len(out) == 0 {
		return nil, unusable("the cluster does not serve %s", gr)
	}
	return out, nil
}

// find returns a resource of a group version, and the names of its subresources.
func (r *reader) find(ctx context.Context, gv schema.GroupVersion,
	resource string) (found *metav1.APIResource, sub []string, err error) {
	list := r.lists[gv]
	if list == nil {
		list = &metav1.APIResourceList{}
		if err := r.get(ctx, groupPath(gv), list); err != nil {
			return nil, nil, err
		}
		r.lists[gv] = list
	}
	for i := range list.APIResources {
		name, subresource, isSub := strings.Cut(list.APIResources[i].Name, "/")
		switch {
		case name != resource:
		case isSub:
			sub = append(sub, subresource)
		default:
			found = &list.APIResources[i]
		}
	}
	return found, sub, nil
}

// groupPath returns the path of a group version: /api/v1, /apis/apps/v1.
func groupPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.String()
}

func newAPI(gv schema.GroupVersion, r *metav1.APIResource) *negotiate.API {
	scope := apiextensionsv1.ClusterScoped
	if r.Namespaced {
		scope = apiextensionsv1.NamespaceScoped
	}
	return &negotiate.API{
		Group: gv.Group, Version: gv.Version, Scope: scope,
		Names: apiextensionsv1.CustomResourceDefinitionNames{
			Plural: r.Name, Singular: r.SingularName, Kind: r.Kind, ListKind: r.Kind + "List",
			ShortNames: r.ShortNames, Categories: r.Categories,
		},
	}
}

func fromCRD(a *negotiate.API, crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.NonStructuralSchema && c.Status == apiextensionsv1.ConditionTrue {
			return unusable("the schema of CustomResourceDefinition %s is not structural: %s", crd.Name, c.Message)
		}
	}
	for _, v := range crd.Spec.Versions {
		if v.Name != a.Version {
			continue
		}
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			return unusable("CustomResourceDefinition %s has no schema for version %s", crd.Name, v.Name)
		}
		a.Schema = v.Schema.OpenAPIV3Schema
		a.Columns = v.AdditionalPrinterColumns
		if v.Subresources != nil {
			a.Subresources = *v.Subresources
		}
		return nil
	}
	return unusable("CustomResourceDefinition %s has no version %s", crd.Name, a.Version)
}

func (r *reader) builtIn(ctx context.Context, a *negotiate.API, subresources []string) error {
	gv := schema.GroupVersion{Group: a.Group, Version: a.Version}
	all := r.parsed[gv]
	if all == nil {
		var err error
		if all, err = r.definitions(ctx, r.documents, gv); err != nil {
			return err
		}
		r.parsed[gv] = all
	}
	s, err := all.schemaOf(gv.WithKind(a.Names.Kind))
	if err != nil {
		return err
	}
	a.Schema = s
	a.Columns = columns[schema.GroupResource{Group: a.Group, Resource: a.Names.Plural}]
	if slices.Contains(subresources, "status") {
		a.Subresources.Status = &apiextensionsv1.CustomResourceSubresourceStatus{}
	}
	if slices.Contains(subresources, "scale") {
		a.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas",
		}
	}
	return nil
}

// maxDocument is the length of the longest document that is read, in bytes. The document of the core group has 1.5 MB.
const maxDocument = 64 << 20

func (p *Puller) get(ctx context.Context, path string, out any) error {
	path, query, _ := strings.Cut(path, "?")
	req := p.client.Get().AbsPath(path)
	if name, value, ok := strings.Cut(query, "="); ok {
		req = req.Param(name, value)
	}
	body, err := req.Stream(ctx)
	if err == nil {
		defer body.Close() //nolint:errcheck // it was read
		err = json.NewDecoder(io.LimitReader(body, maxDocument)).Decode(out)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", req.URL(), err)
	}
	return nil
}

// index is the list of the OpenAPI v3 documents of an API server, by path such as apis/apps/v1.
type index struct {
	Paths map[string]struct {
		URL string `json:"serverRelativeURL"`
	} `json:"paths"`
}

func (p *Puller) index(ctx context.Context) (index, error) {
	var all index
	return all, p.get(ctx, "/openapi/v3", &all)
}

func (i index) hash() string {
	urls := make([]string, 0, len(i.Paths))
	for _, d := range i.Paths {
		urls = append(urls, d.URL)
	}
	slices.Sort(urls)
	return api.Hash(12, urls...)
}

func (p *Puller) definitions(ctx context.Context, i index, gv schema.GroupVersion) (document, error) {
	d, ok := i.Paths[strings.TrimPrefix(groupPath(gv), "/")]
	if !ok {
		return nil, unusable("the cluster has no OpenAPI v3 document for %s", gv)
	}
	var read struct {
		Components struct {
			Schemas document `json:"schemas"`
		} `json:"components"`
	}
	err := p.get(ctx, d.URL, &read)
	return read.Components.Schemas, err
}
