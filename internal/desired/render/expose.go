package render

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// routeTemplates are the templates of the objects that route connections to a Service by host name.
var routeTemplates = map[v1alpha1.ExposeType]string{
	v1alpha1.ExposeIngress:  ingressTemplate,
	v1alpha1.ExposeTLSRoute: tlsRouteTemplate,
	v1alpha1.ExposeRoute:    routeTemplate,
}

// passthrough has, by the usual name of an Ingress class, the annotations with which its controllers pass TLS through.
// A controller ignores the annotations of others.
var passthrough = map[string]map[string]string{
	"cilium": {"ingress.cilium.io/tls-passthrough": "enabled"},
	"haproxy": {
		"haproxy.org/ssl-passthrough":               "true", // haproxytech/kubernetes-ingress
		"haproxy-ingress.github.io/ssl-passthrough": "true", // jcmoraisjr/haproxy-ingress
	},
	"nginx": {
		"nginx.ingress.kubernetes.io/ssl-passthrough":  "true",
		"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS",
	},
}

// internalLoadBalancer has, by the cloud, the annotations with which it gives a Service a load balancer in its private
// network. A cloud ignores the annotations of others. Most are in the documentation of Kubernetes (Service, "Internal
// load balancer"). Tencent Cloud is not here: its annotation has the ID of a subnet, which only a user knows.
var internalLoadBalancer = map[string]map[string]string{
	"Alibaba Cloud": {"service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type": "intranet"},
	"AWS": {
		"service.beta.kubernetes.io/aws-load-balancer-scheme":   "internal", // AWS Load Balancer Controller
		"service.beta.kubernetes.io/aws-load-balancer-internal": "true",     // cloud-provider-aws
	},
	"Azure":        {"service.beta.kubernetes.io/azure-load-balancer-internal": "true"},
	"Baidu Cloud":  {"service.beta.kubernetes.io/cce-load-balancer-internal-vpc": "true"},
	"DigitalOcean": {"service.beta.kubernetes.io/do-loadbalancer-network": "INTERNAL"},
	"Google Cloud": {"networking.gke.io/load-balancer-type": "Internal"},
	"Hetzner":      {"load-balancer.hetzner.cloud/disable-public-network": "true"},
	"IBM Cloud":    {"service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type": "private"},
	"OpenStack":    {"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"},
	"Oracle Cloud": {
		"service.beta.kubernetes.io/oci-load-balancer-internal": "true",
		"oci-network-load-balancer.oraclecloud.com/internal":    "true",
	},
}

// healthProbe has the annotations with which the load balancers of clouds find out whether a node leads to a server.
// Because of the protocol of the port, Azure sends HTTPS requests to /, which kcp answers with 403
// (cloud-provider-azure: pkg/provider/azure_loadbalancer_healthprobe.go). All servers answer at this path without
// credentials.
var healthProbe = map[string]string{
	"service.beta.kubernetes.io/azure-load-balancer-health-probe-request-path": "/livez",
}

// setService sets the type, the annotations and the port of a kcp server's Service.
func (w *workload) setService(c *topology.Component) {
	port := servicePort(c)
	w.ServiceType = corev1.ServiceTypeClusterIP
	switch c.Expose.Type {
	case v1alpha1.ExposeNodePort, v1alpha1.ExposeLoadBalancer:
		w.ServiceType = c.Expose.Type
		w.ServiceNotes = serviceAnnotations(c.Expose)
		if c.NodePort != 0 {
			port["nodePort"] = c.NodePort
		}
	}
	if c.HasLoadBalancer() {
		w.ServiceNotes = merged(healthProbe, w.ServiceNotes)
	}
	w.ServicePorts = []dict{port}
}

// serviceAnnotations returns the annotations of a Service. The annotations of the setup file take precedence.
func serviceAnnotations(e v1alpha1.Expose) map[string]string {
	if !e.Internal {
		return e.Annotations
	}
	out := map[string]string{}
	for _, known := range internalLoadBalancer {
		maps.Copy(out, known)
	}
	maps.Copy(out, e.Annotations)
	return out
}

// servicePort is the port of a kcp server's Service inside the cluster.
func servicePort(c *topology.Component) dict { return tlsPort(portHTTPS, c.ServicePort) }

// tlsPort is a port of a Service that leads to the port of the same name of a container. Service meshes and load
// balancers read its protocol; the name of the port does not tell it.
func tlsPort(name string, port int32) dict {
	return dict{"name": name, "port": port, "targetPort": name, "appProtocol": "https"}
}

// route holds the values of the templates of an Ingress, a TLSRoute and a Route.
type route struct {
	Name, Namespace string
	Labels          map[string]string
	Annotations     map[string]string
	// Host is the first of Hosts.
	Host  string
	Hosts []string
	// ClassName and Rules are fields of an Ingress, Parent is the Gateway of a TLSRoute.
	ClassName any
	Rules     []dict
	Parent    dict
	// Port is the port of the Service, and PortName its name.
	Port     int32
	PortName string
}

func newRoute(c *topology.Component) route {
	e := c.Expose
	r := route{
		Name: c.Object(), Namespace: c.Cluster.Namespace, Labels: c.Labels(), Annotations: e.Annotations,
		Hosts: c.PublicHosts(), Port: c.ServicePort, PortName: portHTTPS,
	}
	r.Host = r.Hosts[0]
	if e.ClassName != "" {
		r.ClassName = e.ClassName
	}
	if e.Type == v1alpha1.ExposeIngress {
		r.Annotations = ingressAnnotations(e)
	}
	backend := dict{"service": dict{"name": c.Object(), "port": dict{"name": portHTTPS}}}
	for _, host := range r.Hosts {
		paths := []dict{{"path": "/", "pathType": "Prefix", "backend": backend}}
		r.Rules = append(r.Rules, dict{"host": host, "http": dict{"paths": paths}})
	}
	r.Parent = dict{"name": e.Gateway.Name}
	if e.Gateway.Namespace != "" {
		r.Parent["namespace"] = e.Gateway.Namespace
	}
	if e.Gateway.SectionName != "" {
		r.Parent["sectionName"] = e.Gateway.SectionName
	}
	return r
}

// ingressAnnotations returns the annotations of an Ingress. The annotations of the setup file take precedence.
func ingressAnnotations(e v1alpha1.Expose) map[string]string {
	out := map[string]string{}
	if known, ok := passthrough[e.ClassName]; ok {
		maps.Copy(out, known)
	} else {
		for _, class := range slices.Sorted(maps.Keys(passthrough)) {
			maps.Copy(out, passthrough[class])
		}
	}
	maps.Copy(out, e.Annotations)
	return out
}
