package render

import (
	"fmt"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// pathMapping returns the path mapping of a front-proxy. Ours leads to the root shard: for /clusters/ the front-proxy
// finds the shard itself, so that any backend works (kcp: pkg/proxy/mapping.go), and /services/ leads to the virtual
// workspaces of the root shard. The mappings of the setup file follow; the longest path wins.
func (b *objects) pathMapping() []byte {
	var mappings []dict
	for _, e := range b.r.t.EdgesFrom(b.c) {
		for _, s := range e.Servers {
			if !e.PathMapping {
				break
			}
			for _, path := range b.r.t.Component(s.Component).MappedPaths() {
				mappings = append(mappings, dict{
					"path":              path,
					"backend":           s.URL,
					"backend_server_ca": b.c.Path(files.CA(e.Trust)),
					"proxy_client_cert": b.c.Path(files.Cert(e.Cert)),
					"proxy_client_key":  b.c.Path(files.Key(e.Cert)),
				})
			}
		}
	}
	for i, m := range b.c.PathMappings {
		mapping := dict{
			"path":              m.Path,
			"backend":           m.Backend,
			"backend_server_ca": b.c.Path(files.CA(topology.ServerCA)),
			"proxy_client_cert": b.c.Path(files.Cert(topology.CertRequestHeader)),
			"proxy_client_key":  b.c.Path(files.Key(topology.CertRequestHeader)),
		}
		if m.CA != "" || m.CAFrom != nil {
			mapping["backend_server_ca"] = b.c.Path(mappedFile(i, "ca.crt"))
		}
		if m.ClientSecret != "" {
			mapping["proxy_client_cert"] = b.c.Path(mappedFile(i, "tls.crt"))
			mapping["proxy_client_key"] = b.c.Path(mappedFile(i, "tls.key"))
		}
		for key, header := range map[string]string{
			"user_header": m.UserHeader, "group_header": m.GroupHeader, "extra_header_prefix": m.ExtraHeaderPrefix,
		} {
			if header != "" {
				mapping[key] = header
			}
		}
		mappings = append(mappings, mapping)
	}
	return toYAML(mappings)
}

// mappedFile returns a file of a path mapping of the setup file.
func mappedFile(i int, name string) string { return files.Config(mappedName(i, name)) }

func mappedName(i int, name string) string { return fmt.Sprintf("path-mapping-%d-%s", i, name) }

// mappedFiles returns the files of the path mappings in the setup file: those that are in it, and those that it refers
// to.
func mappedFiles(c *topology.Component) (items []item, srcs []source) {
	for i, m := range c.PathMappings {
		if m.CA != "" {
			items = append(items, item{mappedName(i, "ca.crt"), mappedFile(i, "ca.crt"), []byte(m.CA)})
		}
		if m.CAFrom != nil {
			srcs = append(srcs, fromKey(*m.CAFrom, mappedFile(i, "ca.crt")))
		}
		if m.ClientSecret != "" {
			srcs = append(srcs, pairFrom(m.ClientSecret, func(name string) string { return mappedFile(i, name) }))
		}
	}
	return items, srcs
}

// externalServing returns the files of the certificate that a front-proxy serves for its external hostname.
func externalServing(c *topology.Component) []source {
	if c.Serving == nil || c.Serving.Edge {
		return nil
	}
	return []source{pairFrom(c.Serving.Secret, files.External)}
}

// fromKey is a key of a Secret or a ConfigMap of the user, as a file.
func fromKey(from v1alpha1.KeyReference, path string) source {
	return source{secret: from.Secret, configMap: from.ConfigMap, items: []item{{key: from.Key, path: path}}}
}

// pairFrom is a certificate and its key in a Secret of the user, as the files of their names.
func pairFrom(secret string, path func(name string) string) source {
	s := source{secret: secret}
	for _, name := range []string{"tls.crt", "tls.key"} {
		s.items = append(s.items, item{key: name, path: path(name)})
	}
	return s
}
