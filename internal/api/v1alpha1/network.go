package v1alpha1

// NetworkPolicies lets pods of kcp dial each other only where kcp needs it. Each component gets a NetworkPolicy, for
// both directions. Front-proxies, and components with an address outside of their cluster, can be dialled from
// anywhere. Agents, the controller and syncers can dial anything, because they use the API servers of clusters. Further
// NetworkPolicies of your own allow more, such as webhooks of tenants.
type NetworkPolicies struct {
	// Clients are labels of the namespaces whose pods can dial shards and servers of virtual workspaces directly, such
	// as controllers that find the URLs of APIExports in APIExportEndpointSlices. Default: no namespaces.
	Clients map[string]string `json:"clients,omitempty"`
	// MetricsClients are labels of the namespaces whose pods can dial every component for its metrics, such as
	// Prometheus. Default: no namespaces.
	MetricsClients map[string]string `json:"metricsClients,omitempty"`
}
