package render

import (
	"cmp"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kcpctl/kcpctl/internal/desired/monitoring"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Keys of the objects for monitoring.
const (
	scrapeFile    = "scrape.yaml"
	rulesFile     = "rules.yaml"
	dashboardFile = "dashboard.json"
	// labelDashboard is the label by which the sidecar of Grafana's chart finds dashboards.
	labelDashboard = "grafana_dashboard"
)

// monitored holds the values of the templates of objects of the Prometheus operator.
type monitored struct {
	Name, Namespace  string
	Labels, Selector map[string]string
	Endpoints        []dict
	Groups           []dict
}

// monitoring adds what a Prometheus on a cluster needs: a certificate and its rights, how to find and to scrape the
// pods, alerts and a dashboard.
func (b *objects) monitoring() {
	spec := b.r.t.Setup.Spec.Monitoring
	home := b.c.Cluster.Name == b.r.t.Home.Name
	if home {
		b.metricsRole()
	}
	secret := map[string][]byte{"ca.crt": b.r.trusted(topology.ServerCA)}
	for _, cert := range b.r.certs[b.c.ID()] { // one
		pair, ok := b.r.state.Leaves[cert.Key()]
		if !ok && b.renders(secretTemplate) {
			b.err = fmt.Errorf("the certificate %s was not issued", cert.Secret)
			return
		}
		secret["tls.crt"], secret["tls.key"] = pair.Cert, pair.Key
	}
	values := monitored{Name: b.c.Object(), Namespace: b.c.Cluster.Namespace, Labels: b.c.Labels(),
		Selector: map[string]string{topology.LabelSetup: b.c.Setup}}
	if spec.PrometheusOperator == nil {
		secret[scrapeFile] = toYAML(dict{"scrape_configs": b.scrapeConfigs()})
	} else {
		values.Labels = merged(spec.PrometheusOperator.Labels, values.Labels)
		values.Endpoints = b.endpoints()
		b.add(podMonitorTemplate, values)
	}
	b.add(secretTemplate, b.data(b.c.Object(), tlsType, secret))
	if spec.Rules {
		b.rules(values)
	}
	if spec.Dashboard && home {
		b.dashboard()
	}
}

// metricsRole adds the rights of Prometheus: a role in the root workspace is for the metrics of all shards, if kcp
// copies it to them. It copies roles with a rule about WorkspaceTypes, and their bindings, and does not copy its own
// system:kcp:metrics-reader (kcp: pkg/reconciler/tenancy/replicateclusterrole). No WorkspaceType has the name.
func (b *objects) metricsRole() {
	name := b.c.WorkspaceRole()
	b.addIn(topology.RootWorkspace, roleTemplate, inWorkspace{Name: name, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}},
		{Verbs: []string{"use"}, APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspacetypes"},
			ResourceNames: []string{name}},
	}})
	b.addIn(topology.RootWorkspace, roleBindingTemplate, inWorkspace{Name: name, Role: name,
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: b.r.state.User(b.c)}}})
}

// subject returns the subject of the alerts on the cluster, or of the dashboard of the setup.
func (b *objects) subject(components []*topology.Component) monitoring.Subject {
	s := monitoring.Subject{
		Setup: b.c.Setup, Installation: b.r.state.Installation.ID, Namespace: b.c.Cluster.Namespace,
	}
	for _, c := range components {
		if c.Scraped() {
			s.Components = append(s.Components, c.ID())
		}
	}
	return s
}

// rules adds the alerts, as an object of the Prometheus operator or as a file.
func (b *objects) rules(values monitored) {
	s := b.subject(b.r.t.On(b.c.Cluster))
	b.setFirstToEnd(&s)
	values.Groups = monitoring.Rules(s)
	if b.r.t.Setup.Spec.Monitoring.PrometheusOperator != nil {
		b.add(prometheusRuleTemplate, values)
		return
	}
	b.add(configMapTemplate, b.data(b.c.Object(), "", map[string]string{
		rulesFile: string(toYAML(dict{"groups": values.Groups})),
	}))
}

// setFirstToEnd sets which certificate of the setup should be renewed first.
func (b *objects) setFirstToEnd(s *monitoring.Subject) {
	for _, c := range b.r.t.Components {
		for _, cert := range b.r.certs[c.ID()] {
			pair, ok := b.r.state.Leaves[cert.Key()]
			if !ok || b.err != nil {
				continue // certs has reported it
			}
			info, err := pki.Inspect(pair.Cert)
			if err != nil {
				b.err = err
			} else if by := info.Overdue(); s.RenewBy.IsZero() || by.Before(s.RenewBy) {
				s.RenewBy = by
				s.Certificate = cert.Secret
			}
		}
	}
}

func (b *objects) dashboard() {
	content, err := monitoring.Dashboard(b.subject(b.r.t.Components))
	b.err = cmp.Or(b.err, err)
	d := b.data(b.c.Object(topology.DashboardPart), "", map[string]string{dashboardFile: string(content)})
	d.Labels = merged(d.Labels, map[string]string{labelDashboard: "1"})
	b.add(configMapTemplate, d)
}

// metricsPorts are the names of the ports of containers that serve metrics, and how: kcp servers with TLS, the others
// without.
var metricsPorts = []struct {
	name string
	tls  bool
}{{portHTTPS, true}, {portMetrics, false}, {portHealth, false}}

// serverName is the name that a Prometheus expects in the certificates of servers.
func (b *objects) serverName() string {
	for _, e := range b.r.t.EdgesFrom(b.c) {
		return e.Servers[0].Host
	}
	return ""
}

// relabeling is a rule about the labels of a target: the Prometheus operator and Prometheus write its fields
// differently.
type relabeling struct {
	from                          []string
	separator, regex, to, replace string
	action                        string
}

// targetLabels are the rules for the labels of all targets. They drop pods that serve no metrics to Prometheus. The
// label name of a component that has no name is its kind, which is then its ID.
func (b *objects) targetLabels() []relabeling {
	const label = "__meta_kubernetes_pod_label_kcpctl_dev_"
	rules := []relabeling{
		{from: []string{label + "component"}, regex: string(topology.VirtualWorkspaces), action: "drop"},
		{to: monitoring.LabelInstallation, replace: b.r.state.Installation.ID},
		{from: []string{label + "component", label + "name"}, separator: "/", to: monitoring.LabelComponent},
		{from: []string{monitoring.LabelComponent}, regex: "(root-shard|cache-server)/.+",
			to: monitoring.LabelComponent, replace: "$1"},
	}
	for _, c := range b.r.t.Unscraped() {
		rules = append(rules,
			relabeling{from: []string{monitoring.LabelComponent}, regex: string(c.ID()), action: "drop"})
	}
	return rules
}

// keptMetrics keeps the metrics that alerts and the dashboard use.
func keptMetrics() []relabeling {
	return []relabeling{{from: []string{"__name__"}, regex: monitoring.Kept(), action: "keep"}}
}

// camel returns rules as the Prometheus operator writes them, snake as Prometheus does.
func camel(all []relabeling) []dict { return relabelings(all, "sourceLabels", "targetLabel") }
func snake(all []relabeling) []dict { return relabelings(all, "source_labels", "target_label") }

func relabelings(all []relabeling, source, target string) []dict {
	var out []dict
	for _, r := range all {
		rule := dict{}
		if r.from != nil {
			rule[source] = r.from
		}
		for key, value := range map[string]string{
			"separator": r.separator, "regex": r.regex, target: r.to, "replacement": r.replace, "action": r.action,
		} {
			if value != "" {
				rule[key] = value
			}
		}
		out = append(out, rule)
	}
	return out
}

// endpoints are the endpoints of a PodMonitor. Pods without the port of an endpoint are no targets of it.
func (b *objects) endpoints() []dict {
	of := func(key string) dict { return dict{"name": b.c.Object(), "key": key} }
	var out []dict
	for _, port := range metricsPorts {
		endpoint := dict{
			"port": port.name, "relabelings": camel(b.targetLabels()), "metricRelabelings": camel(keptMetrics()),
		}
		if port.tls {
			endpoint["scheme"] = "https"
			endpoint["tlsConfig"] = dict{
				"ca": dict{"secret": of("ca.crt")}, "cert": dict{"secret": of("tls.crt")}, "keySecret": of("tls.key"),
				"serverName": b.serverName(),
			}
		}
		out = append(out, endpoint)
	}
	return out
}

// scrapeConfigs are the scrape_configs of a Prometheus that mounts the Secret. It resolves paths from the directory of
// the file (scrape_config_files).
func (b *objects) scrapeConfigs() []dict {
	const pod = "__meta_kubernetes_pod_"
	var out []dict
	for _, port := range metricsPorts {
		config := dict{
			"job_name": b.c.Cluster.Namespace + "/" + b.c.Object() + "/" + port.name,
			"kubernetes_sd_configs": []dict{{
				"role": "pod", "namespaces": dict{"names": []string{b.c.Cluster.Namespace}},
				"selectors": []dict{{"role": "pod", "label": topology.LabelSetup + "=" + b.c.Setup}},
			}},
			"relabel_configs": snake(append([]relabeling{
				{from: []string{pod + "container_port_name"}, regex: port.name, action: "keep"},
				{from: []string{pod + "phase"}, regex: "Failed|Succeeded", action: "drop"},
				{from: []string{"__meta_kubernetes_namespace"}, to: "namespace"},
				{from: []string{pod + "name"}, to: "pod"},
			}, b.targetLabels()...)),
			"metric_relabel_configs": snake(keptMetrics()),
		}
		if port.tls {
			config["scheme"] = "https"
			config["tls_config"] = dict{
				"ca_file": "ca.crt", "cert_file": "tls.crt", "key_file": "tls.key", "server_name": b.serverName(),
			}
		}
		out = append(out, config)
	}
	return out
}
