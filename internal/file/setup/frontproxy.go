package setup

import (
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// The headers with which front-proxies pass on identities, if a path mapping has no others.
const (
	userHeader        = "X-Remote-User"
	groupHeader       = "X-Remote-Group"
	extraHeaderPrefix = "X-Remote-Extra-"
)

// defaultPathMappings sets the missing keys of path mappings. kcp has the defaults of headers.
func defaultPathMappings(spec *v1alpha1.Spec) {
	for i := range spec.FrontProxies {
		for n := range spec.FrontProxies[i].PathMappings {
			m := &spec.FrontProxies[i].PathMappings[n]
			fill(&m.UserHeader, userHeader)
			fill(&m.GroupHeader, groupHeader)
			fill(&m.ExtraHeaderPrefix, extraHeaderPrefix)
			if m.CAFrom != nil {
				fill(&m.CAFrom.Key, defaultCAKey)
			}
		}
	}
}

// The range of the number of replicas, and the target of an autoscaler, as in Kubernetes.
const (
	defaultMinReplicas = 1
	defaultUtilization = 80
)

// defaultAutoscaling leaves the number of replicas to an autoscaler, if there is one.
func defaultAutoscaling(spec *v1alpha1.Spec) {
	for i := range spec.FrontProxies {
		if a := spec.FrontProxies[i].Autoscaling; a != nil {
			fill(&spec.FrontProxies[i].Replicas, v1alpha1.ReplicasUnmanaged)
			fill(&a.MinReplicas, defaultMinReplicas)
			fill(&a.TargetCPUUtilizationPercentage, defaultUtilization)
		}
	}
}

// frontProxyFields checks fields of spec.frontProxies.
type frontProxyFields struct{ authenticationFields }

// frontProxies checks the autoscalers, the certificates and the path mappings of front-proxies.
func (v *validator) frontProxies() {
	for i := range v.setup.Spec.FrontProxies {
		f, at := &v.setup.Spec.FrontProxies[i], field.NewPath("spec", "frontProxies").Index(i)
		if f.Autoscaling != nil {
			v.autoscaling(at, f)
		}
		if f.Serving != nil {
			hostname := f.External.Hostname
			if hostname == "" && i == 0 {
				hostname = v.setup.Spec.External.Hostname
			}
			v.serving(at, f.Serving, hostname)
			v.edge(at, f)
		}
		v.pathMappings(at.Child("pathMappings"), f.PathMappings)
	}
}

// autoscaling requires a range of replicas, no fixed number, and a request that the target is a part of.
func (v frontProxyFields) autoscaling(p *field.Path, f *v1alpha1.FrontProxy) {
	a, at := f.Autoscaling, p.Child("autoscaling")
	if a.MinReplicas < 1 {
		v.invalid(at.Child("minReplicas"), a.MinReplicas, "must be at least 1")
	}
	switch {
	case a.MaxReplicas == 0:
		v.required(at.Child("maxReplicas"), "the largest number of replicas")
	case a.MaxReplicas < a.MinReplicas:
		v.invalid(at.Child("maxReplicas"), a.MaxReplicas, "must be at least minReplicas, %d", a.MinReplicas)
	}
	if a.TargetCPUUtilizationPercentage < 1 {
		v.invalid(at.Child("targetCPUUtilizationPercentage"), a.TargetCPUUtilizationPercentage, "must be at least 1")
	}
	if f.Replicas.Managed() {
		v.forbidden(p.Child("replicas"), "must not be set, because the autoscaler sets the number: remove it")
	}
	if cpu := f.Resources.Requests.Cpu(); cpu.Sign() <= 0 {
		v.required(p.Child("resources", "requests", "cpu"), "the target of the autoscaler is a percentage of it")
	}
}

func (v frontProxyFields) serving(p *field.Path, s *v1alpha1.Serving, hostname string) {
	at := p.Child("serving")
	if !s.Edge {
		v.secretName(at.Child("secret"), s.Secret)
	}
	v.certificates(at.Child("ca"), s.CA)
	switch {
	case s.Edge && hostname == "":
		v.required(p.Child("external", "hostname"), "the host name or the IP address of the edge")
	case s.Edge:
	case hostname == "":
		v.required(p.Child("external", "hostname"),
			"the front-proxy serves the certificate in serving for this name only")
	case hostname == v1alpha1.AddressAuto:
		v.invalid(p.Child("external", "hostname"), hostname,
			"must be the DNS name in the certificate: the cluster may assign an IP address, and "+
				"serving is for one name")
	case net.ParseIP(hostname) != nil:
		v.invalid(p.Child("external", "hostname"), hostname,
			"must be a DNS name: clients do not send an IP address in the handshake (SNI), which serving depends on")
	}
}

// edge requires that nothing is expected of a front-proxy that cannot get through an edge.
func (v *validator) edge(p *field.Path, f *v1alpha1.FrontProxy) {
	if !f.Serving.Edge {
		return
	}
	if f.Serving.Secret != "" {
		v.forbidden(p.Child("serving", "secret"),
			"the edge presents its own certificate, and the front-proxy that of the setup")
	}
	if topology.FrontProxyAuthentication(v.setup.Spec.Authentication, f.Authentication).ClientCertificates {
		v.invalid(p.Child("authentication", "clientCertificates"), true,
			"must be false: client certificates end at the edge (serving.edge)")
	}
}

func (v frontProxyFields) pathMappings(p *field.Path, all []v1alpha1.PathMapping) {
	for i := range all {
		m, at := &all[i], p.Index(i)
		v.mappedPath(at.Child("path"), m.Path)
		v.backend(at.Child("backend"), m.Backend)
		v.certificateAuthority(at, m.CA, m.CAFrom)
		if m.ClientSecret != "" {
			v.subdomain(at.Child("clientSecret"), m.ClientSecret)
		}
		for _, h := range headersOf(m) {
			if !v.matches(`[A-Za-z0-9-]+`, h.value) {
				v.invalid(at.Child(h.name), h.value, "must have only letters, digits and -")
			}
		}
		if name, value := OwnHeader(m); m.ClientSecret == "" && name != "" {
			v.required(at.Child("clientSecret"), "with the %s %s, the server must not trust the certificate of the "+
				"setup: a front-proxy removes only the headers of the mapping from requests", name, value)
		}
	}
}

// header is a header with a part of the identity of a client.
type header struct{ name, value, usual string }

func headersOf(m *v1alpha1.PathMapping) []header {
	return []header{
		{"userHeader", m.UserHeader, userHeader}, {"groupHeader", m.GroupHeader, groupHeader},
		{"extraHeaderPrefix", m.ExtraHeaderPrefix, extraHeaderPrefix},
	}
}

// OwnHeader returns the first field of a path mapping with another header than servers of kcp read, and its value, or
// nothing. With such a header, a client can send the usual ones: a front-proxy removes only the headers of the mapping.
func OwnHeader(m *v1alpha1.PathMapping) (field, value string) {
	for _, h := range headersOf(m) {
		if h.value != "" && !strings.EqualFold(h.value, h.usual) {
			return h.name, h.value
		}
	}
	return "", ""
}

// mappedPath requires a path that kcp can register beside its own. It registers each path with and without a trailing
// slash, and ends if two are the same (kcp: pkg/proxy/lookup/lookup.go; net/http.ServeMux).
func (v *fields) mappedPath(p *field.Path, path string) {
	trimmed := strings.TrimRight(path, "/")
	is := func(other string) bool { return strings.TrimRight(other, "/") == trimmed }
	switch {
	case path == "":
		v.required(p, "the beginning of paths, such as /services/example/")
	case !v.matches(`(?:/[A-Za-z0-9._~-]+)+/?`, path):
		v.invalid(p, path, "must be the beginning of paths, such as /services/example/")
	case slices.ContainsFunc(topology.MappedPaths, is):
		v.invalid(p, path, "this path leads to the shards")
	case trimmed == "/clusters" || strings.HasPrefix(path, "/clusters/"):
		v.invalid(p, path, "paths below /clusters/ lead to the workspaces of the shards")
	case slices.ContainsFunc(topology.ServedPaths, is):
		v.invalid(p, path, "the front-proxy answers this path itself")
	}
	v.unique(p, trimmed)
}

// backend requires an https URL, which may have a path.
func (v frontProxyFields) backend(p *field.Path, s string) {
	if s == "" {
		v.required(p, "the https URL of the server")
		return
	}
	u, problem := urlProblem(s, "https")
	switch {
	case problem != "":
		v.invalid(p, s, "%s", problem)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		v.invalid(p, s, "must have no user, query and fragment")
	}
}
