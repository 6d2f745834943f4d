package v1alpha1

// Monitoring lets a Prometheus read the metrics of the components. Each cluster with a kcp server gets a Secret with a
// certificate that may only read metrics, and with the scrape configuration of a Prometheus. The cache server and
// managed etcds know no such client: all clients that reach them can then read their metrics (see NetworkPolicies).
// Servers of virtual workspaces, and embedded and external etcds, have no metrics for it. It is ignored with --local.
type Monitoring struct {
	// PrometheusOperator creates a PodMonitor instead of the scrape configuration, and a PrometheusRule instead of a
	// file with rules.
	PrometheusOperator *PrometheusOperator `json:"prometheusOperator,omitempty"`
	// Rules adds alerts.
	Rules bool `json:"rules,omitempty"`
	// Dashboard adds a ConfigMap with a dashboard for Grafana, with the label grafana_dashboard: "1".
	Dashboard bool `json:"dashboard,omitempty"`
}

// PrometheusOperator configures objects of the Prometheus operator.
type PrometheusOperator struct {
	// Labels are labels of the objects, by which a Prometheus selects them.
	Labels map[string]string `json:"labels,omitempty"`
}
