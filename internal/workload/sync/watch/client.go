package watch

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// client returns a client for a path below an endpoint. All share the connections of the set.
func (s *Set) client(endpoint, path string) (*rest.RESTClient, error) {
	cfg := dynamic.ConfigFor(s.o.Config)
	cfg.Host = endpoint + path
	cfg.QPS = -1
	cfg.AcceptContentTypes = runtime.ContentTypeJSON // of streams
	client, err := rest.UnversionedRESTClientForConfigAndClient(cfg, s.http)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	return client, nil
}

// Resource returns a client for a resource in one logical cluster, at the endpoint that serves the object. An empty
// cluster means a plain API server. If the set has this resource of the endpoint, it shows what is written and deleted
// with the client before its watch does.
func (s *Set) Resource(endpoint, cluster string,
	r schema.GroupVersionResource) (dynamic.NamespaceableResourceInterface, error) {
	path := ""
	if cluster != "" {
		path = "/clusters/" + cluster
	}
	client, err := s.client(endpoint, path)
	if err != nil {
		return nil, err
	}
	d := dynamic.New(client)
	s.mu.RLock()
	src := s.sources[Source{endpoint, r}]
	s.mu.RUnlock()
	if src == nil {
		return d.Resource(r), nil
	}
	w := writer{ResourceInterface: d.Resource(r), source: src, selector: s.selector, cluster: cluster}
	return namespaceable{w, d.Resource(r)}, nil
}
