package v1alpha1

// Serving is a certificate of your own that a front-proxy serves for its external hostname. For the name of its Service
// it keeps the certificate of the setup.
type Serving struct {
	// Secret is the name of a Secret with tls.crt and tls.key in the namespace of the front-proxy, such as the Secret
	// of a cert-manager Certificate. kcp notices when it changes. It is required without edge.
	Secret string `json:"secret,omitempty"`
	// Edge is set if something in front of the front-proxy terminates TLS, such as a CDN, and presents its own
	// certificate. It must verify the front-proxy with the server CA of the setup. The front-proxy must refuse client
	// certificates, because they do not get through.
	Edge bool `json:"edge,omitempty"`
	// CA are the certificates of the authorities that clients verify it with, in PEM format. They are put into
	// kubeconfigs, together with the server CA of the setup. It is required if clients dial also shards or virtual
	// workspaces with the same kubeconfig. Default: clients use the authorities of their system, as for a public
	// certificate.
	CA string `json:"ca,omitempty"`
}

// PathMapping sends the requests for a path of a front-proxy to another server, with the identity of the client in
// headers.
type PathMapping struct {
	// Path is the beginning of the paths, such as /services/example/.
	Path string `json:"path"`
	// Backend is the https URL of the server.
	Backend string `json:"backend"`
	// CA are the certificates of the authorities that the server is verified with, in PEM format. Default: the server
	// CA of the setup.
	CA string `json:"ca,omitempty"`
	// CAFrom is a Secret or ConfigMap with these certificates, instead of ca. Default of the key: ca.crt.
	CAFrom *KeyReference `json:"caFrom,omitempty"`
	// ClientSecret is the name of a Secret with tls.crt and tls.key: the client certificate that the server trusts the
	// headers of. It is required with other headers than the defaults. Default: the certificate that shards trust,
	// kcp-front-proxy of the requestheader CA.
	ClientSecret string `json:"clientSecret,omitempty"`
	// UserHeader is the header with the name of the user. Default: X-Remote-User.
	UserHeader string `json:"userHeader,omitempty"`
	// GroupHeader is the header with the groups of the user. Default: X-Remote-Group.
	GroupHeader string `json:"groupHeader,omitempty"`
	// ExtraHeaderPrefix is the beginning of the headers with more attributes of the user. Default: X-Remote-Extra-.
	ExtraHeaderPrefix string `json:"extraHeaderPrefix,omitempty"`
}
