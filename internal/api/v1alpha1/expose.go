package v1alpha1

// ExposeType is how a component is reached from outside its cluster.
type ExposeType string

const (
	// ExposeClusterIP exposes a component inside its cluster only.
	ExposeClusterIP ExposeType = "ClusterIP"
	// ExposeNodePort exposes a component at a port of every node.
	ExposeNodePort ExposeType = "NodePort"
	// ExposeLoadBalancer exposes a component by its own load balancer.
	ExposeLoadBalancer ExposeType = "LoadBalancer"
	// ExposeIngress exposes a component by an Ingress that passes TLS through.
	ExposeIngress ExposeType = "Ingress"
	// ExposeTLSRoute exposes a component by a TLSRoute of the Gateway API.
	ExposeTLSRoute ExposeType = "TLSRoute"
	// ExposeRoute exposes a component by a Route of OpenShift.
	ExposeRoute ExposeType = "Route"
)

// ExposeTypes are all types.
var ExposeTypes = []ExposeType{
	ExposeClusterIP, ExposeNodePort, ExposeLoadBalancer, ExposeIngress, ExposeTLSRoute, ExposeRoute,
}

// Routed reports whether a proxy which other services share routes connections by the host name in the TLS handshake.
func (t ExposeType) Routed() bool {
	return t == ExposeIngress || t == ExposeTLSRoute || t == ExposeRoute
}

// AddressAuto stands for the address that a cluster assigns: of a load balancer, or of a node.
const AddressAuto = "auto"

// Expose is how a component is reached from outside its cluster. Its type alone may be written as one word, such as
// expose: NodePort.
type Expose struct {
	// Type is ClusterIP, NodePort, LoadBalancer, Ingress, TLSRoute or Route. All types but ClusterIP need the address
	// of the component: its url, or the external address of a front-proxy. For NodePort and LoadBalancer that may be
	// auto: the address that the cluster assigns. Default: ClusterIP.
	Type ExposeType `json:"type,omitempty"`
	// Annotations are set on the object that exposes the component: the Service, Ingress, TLSRoute or Route.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Internal requests a load balancer in the private network of the cloud, for the type LoadBalancer: the Service has
	// the annotations of all known clouds. Default: false.
	Internal bool `json:"internal,omitempty"`
	// NodePort is the port of the nodes, for the type NodePort. Default: the port of the address. If the address has no
	// port, Kubernetes chooses one, and it is kept.
	NodePort int32 `json:"nodePort,omitempty"`
	// ClassName is the class of the Ingress. It determines the annotation for TLS passthrough. Default: the default
	// class of the cluster, with the annotations of all known controllers.
	ClassName string `json:"className,omitempty"`
	// Gateway is the Gateway of the TLSRoute.
	Gateway Gateway `json:"gateway,omitzero"`
}

// ShortField is the JSON name of the field that an Expose may be abbreviated to.
func (Expose) ShortField() string { return "type" }

// Gateway is a Gateway with a listener that has the protocol TLS and the mode Passthrough.
type Gateway struct {
	// Name is the name of the Gateway.
	Name string `json:"name,omitempty"`
	// Namespace is its namespace. Default: the namespace of the component.
	Namespace string `json:"namespace,omitempty"`
	// SectionName is the name of a listener. Default: all listeners that match.
	SectionName string `json:"sectionName,omitempty"`
}
