package puller

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

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
