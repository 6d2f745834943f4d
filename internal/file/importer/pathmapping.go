package importer

import (
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// The files of front-proxies of kcp-operator with which they dial shards (kcp-operator v0.9:
// internal/resources/frontproxy/configmap.go). Its sample of a path mapping has another file for the server CA.
const (
	operatorServerCA   = "/etc/kcp/tls/ca/tls.crt"
	operatorSampleCA   = "/etc/kcp-front-proxy/tls/ca/tls.crt"
	operatorClientCert = "/etc/kcp-front-proxy/requestheader-client/tls.crt"
	operatorClientKey  = "/etc/kcp-front-proxy/requestheader-client/tls.key"
)

// filePathMapping is a path mapping with the files of a pod (kcp: pkg/proxy/mapping.go).
type filePathMapping struct {
	Path              string `json:"path"`
	Backend           string `json:"backend"`
	BackendServerCA   string `json:"backend_server_ca"`
	ProxyClientCert   string `json:"proxy_client_cert"`
	ProxyClientKey    string `json:"proxy_client_key"`
	UserHeader        string `json:"user_header"`
	GroupHeader       string `json:"group_header"`
	ExtraHeaderPrefix string `json:"extra_header_prefix"`
}

// pathMappings returns the mapping of a list of path mappings. Their files are found once all volumes are mapped.
func pathMappings(who at) func(value) {
	return func(v value) {
		if o := who(v.o); v.decode(&o.paths) {
			o.pathsFrom = v
		}
	}
}

// mappings returns the path mappings whose files are in Secrets and ConfigMaps that the pod mounts.
func (o *object) mappings() []v1alpha1.PathMapping {
	var out []v1alpha1.PathMapping
	for i, m := range o.paths {
		item := value{
			o: o.pathsFrom.o, file: o.pathsFrom.file, key: o.pathsFrom.node.Content[i],
			node: o.pathsFrom.node.Content[i],
			at:   o.pathsFrom.at.Index(i),
		}
		to := v1alpha1.PathMapping{
			Path: m.Path, Backend: m.Backend, UserHeader: m.UserHeader, GroupHeader: m.GroupHeader,
			ExtraHeaderPrefix: m.ExtraHeaderPrefix,
		}
		ca, cert, key := o.mounted(m.BackendServerCA), o.mounted(m.ProxyClientCert), o.mounted(m.ProxyClientKey)
		ours := m.ProxyClientCert == operatorClientCert && m.ProxyClientKey == operatorClientKey
		own, header := setup.OwnHeader(&to)
		pair := cert.Secret != "" && cert.Secret == key.Secret && cert.Key == "tls.crt" && key.Key == "tls.key"
		switch {
		case ca.Secret+ca.ConfigMap == "" && m.BackendServerCA != operatorServerCA &&
			m.BackendServerCA != operatorSampleCA:
			item.find(NotMapped, "the file "+m.BackendServerCA+" is in no Secret or ConfigMap that extraVolumes mounts",
				"add it to pathMappings, with the certificate of the CA in ca or caFrom")
			continue
		case !ours && !pair:
			item.find(NotMapped, "the files "+m.ProxyClientCert+" and "+m.ProxyClientKey+
				" are not tls.crt and tls.key of a Secret that extraVolumes mounts",
				"add it to pathMappings, with such a Secret in clientSecret")
			continue
		case ours && own != "":
			item.find(NotMapped, "a front-proxy removes only the headers of the mapping, so with "+header+
				" clients can send X-Remote-User to a server that trusts the certificate of front-proxies",
				"add it to pathMappings, with a certificate that no shard trusts in clientSecret")
			continue
		}
		if ca.Secret+ca.ConfigMap != "" {
			to.CAFrom = &ca
		} else {
			item.standard("backend_server_ca")
		}
		if ours {
			item.standard("proxy_client_cert", "proxy_client_key")
		} else {
			to.ClientSecret = cert.Secret
		}
		out = append(out, to)
	}
	return out
}

// standard reports files with which every front-proxy dials shards.
func (v value) standard(names ...string) {
	fields, _ := setup.Fields(v.node, v.at)
	for _, f := range fields {
		if slices.Contains(names, f.Key.Value) {
			field := value{o: v.o, file: v.file, key: f.Key, node: f.Value, at: v.at.Child(f.Key.Value)}
			field.find(NotNeeded, "with these files front-proxies dial shards, and without others kcpctl uses its own",
				"")
		}
	}
}

// mounted returns the key of a Secret or ConfigMap that is at a path in the pod, or nothing.
func (o *object) mounted(path string) v1alpha1.KeyReference {
	if o.component.PodTemplate == nil {
		return v1alpha1.KeyReference{}
	}
	mounts, _ := o.inContainer()["volumeMounts"].([]any)
	for _, item := range mounts {
		m, _ := item.(map[string]any)
		dir, _ := m["mountPath"].(string)
		sub, _ := m["subPath"].(string)
		file, below := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
		switch {
		case sub != "" && path == dir:
			file = sub
		case sub != "" || !below:
			continue
		}
		if ref := o.inVolume(m["name"], file); ref.Secret+ref.ConfigMap != "" {
			return ref
		}
	}
	return v1alpha1.KeyReference{}
}

// inVolume returns the key of a file in a volume of the pod.
func (o *object) inVolume(name any, file string) v1alpha1.KeyReference {
	volumes, _ := o.pod("spec")["volumes"].([]any)
	for _, item := range volumes {
		volume, _ := item.(map[string]any)
		if volume["name"] != name {
			continue
		}
		secret, _ := volume["secret"].(map[string]any)
		config, _ := volume["configMap"].(map[string]any)
		ref := v1alpha1.KeyReference{Key: keyOf(secret, file) + keyOf(config, file)}
		ref.Secret, _ = secret["secretName"].(string)
		ref.ConfigMap, _ = config["name"].(string)
		if ref.Key != "" {
			return ref
		}
	}
	return v1alpha1.KeyReference{}
}

// keyOf returns the key that a volume source has at a path, "" if there is none.
func keyOf(source map[string]any, path string) string {
	items, listed := source["items"].([]any)
	if source == nil || !listed {
		if source == nil || strings.Contains(path, "/") {
			return ""
		}
		return path
	}
	for _, i := range items {
		item, _ := i.(map[string]any)
		if key, _ := item["key"].(string); item["path"] == path {
			return key
		}
	}
	return ""
}
