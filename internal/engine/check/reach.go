package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/desired/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// probeLimit is how long the probes of a place may take: the image may have to be pulled, and an address that does not
// answer at all takes half a minute.
const probeLimit = 3 * time.Minute

// Reach is what happens at an address.
type Reach string

// What can happen at an address.
const (
	Answers      Reach = "answers"
	Refused      Reach = "refused"           // a host answers, but nothing listens on the port
	NoAnswer     Reach = "no answer"         // nothing answers in time, or there is no route
	NoSuchName   Reach = "no such name"      // the host name does not resolve
	OtherServer  Reach = "other certificate" // a TLS server answers, but with a certificate that clients do not trust
	NotReachable Reach = "failed"            // anything else
	NotAsked     Reach = "not asked"
)

// Probe is addresses to try from a place.
type Probe struct {
	// Pod is the template of a pod that dials such addresses there. The probe gets its image, node and network
	// settings.
	Pod       corev1.PodTemplateSpec
	Addresses []ProbeAddress
}

// ProbeAddress is an address to try.
type ProbeAddress struct {
	// Address is a host and a port.
	Address string
	// CA is the PEM bundle that verifies the server. If it is empty, its certificate does not matter.
	CA []byte
}

// Answer is the result of a probe of an address, with details unless the address answers.
type Answer struct {
	Reach  Reach
	Detail string
}

// Reachability is a row of the table of who must reach whom.
type Reachability struct {
	// From is the cluster of the clients, or "this machine". To is what should answer at the address.
	From    string `json:"from"`
	To      string `json:"to"`
	Address string `json:"address"`
	Result  Reach  `json:"result"`
	Detail  string `json:"detail,omitempty"`
	// Reason says which clients need the address, and for what.
	Reason string `json:"reason"`
}

// shownRows is how many rows a table of reachability has at most, if all addresses answer.
const shownRows = 24

// Table returns the header and the rows of a table. Unless it is complete, a table with very many addresses omits the
// ones that answer.
func Table(all []Reachability, complete bool) [][]string {
	out := [][]string{{"FROM", "TO", "ADDRESS", "RESULT", "NEEDED BY"}}
	for _, r := range all {
		if complete || len(all) <= shownRows || r.Result != Answers {
			out = append(out, []string{r.From, r.To, r.Address, string(r.Result), r.Reason})
		}
	}
	if len(out) == 1 {
		return nil
	}
	return out
}

// Summarize is one line: "who reaches whom: 5 of 7 addresses answer".
func Summarize(all []Reachability) string {
	n := 0
	for _, r := range all {
		if r.Result == Answers {
			n++
		}
	}
	return fmt.Sprintf("who reaches whom: %d of %d addresses answer", n, len(all))
}

// thisMachine is From for what clients outside of the clusters dial.
const thisMachine = "this machine"

// reachable asks, from inside each cluster, whether the addresses lead to the components that run there.
func reachable(ctx context.Context, s *Subject) (o outcome) {
	all := slices.Concat(s.Topology.RemoteAddresses(), s.webhooks(ctx))
	s.loadState(ctx)
	s.reached = slices.Concat(s.askClusters(ctx, all, &o), s.fromThisMachine(ctx))
	if len(all) == 0 {
		return skipped("all connections stay within one cluster")
	}
	return o
}

// loadState reads the PKI, if it was not read yet. Before the first run there is none. Another check verifies that it
// can be read.
func (s *Subject) loadState(ctx context.Context) {
	if s.state != nil {
		return
	}
	s.state = &pki.State{}
	if stored, err := s.Runtime.Store().Load(ctx); err == nil {
		s.state = stored
	}
}

// webhooks returns the addresses of the servers that components ask about tokens, each once per cluster. A Secret that
// is missing, or without a kubeconfig, is the subject of other checks.
func (s *Subject) webhooks(ctx context.Context) []*topology.RemoteAddress {
	var out []*topology.RemoteAddress
	for _, cl := range s.facts.Clusters {
		for _, c := range s.Topology.Servers() {
			if c.Cluster.Name != cl.Name() || c.Authentication == nil || c.Authentication.Webhook == nil {
				continue
			}
			w := c.Authentication.Webhook
			data, err := cl.Secret(ctx, w.Secret)
			if err != nil {
				continue
			}
			server, ca := kubeconfig.Server(data[w.Key])
			known := slices.ContainsFunc(out,
				func(a *topology.RemoteAddress) bool { return a.From.Name == cl.Name() && a.URL == server })
			if strings.HasPrefix(server, "https://") && !known {
				out = append(out, topology.WebhookAddress(c, server, ca))
			}
		}
	}
	return out
}

// askClusters asks from all places concurrently, and judges the answers.
func (s *Subject) askClusters(ctx context.Context, all []*topology.RemoteAddress, o *outcome) []Reachability {
	places := s.facts.Clusters
	answers := parallel.Map(len(places), places, func(c Cluster) []Answer { return s.ask(ctx, c, from(c, all)) })
	var rows []Reachability
	for i, c := range places {
		for j, a := range from(c, all) {
			found := answers[i][j]
			rows = append(rows, Reachability{a.From.Name, a.To(), a.Address, found.Reach, found.Detail, a.Reason()})
			o.absorb("", s.judge(ctx, a, found))
		}
	}
	return rows
}

func from(c Cluster, all []*topology.RemoteAddress) []*topology.RemoteAddress {
	return slices.DeleteFunc(slices.Clone(all), func(a *topology.RemoteAddress) bool { return a.From.Name != c.Name() })
}

// ask tries addresses from a place. If that is impossible, all of them are NotAsked.
func (s *Subject) ask(ctx context.Context, c Cluster, all []*topology.RemoteAddress) []Answer {
	notAsked := func(err error) []Answer {
		return slices.Repeat([]Answer{{NotAsked, strings.TrimPrefix(err.Error(), ErrUnknown.Error()+": ")}}, len(all))
	}
	if len(all) == 0 {
		return nil
	}
	pod, err := s.dialler(ctx, c)
	if err != nil {
		return notAsked(err)
	}
	p := Probe{Pod: *pod}
	for _, a := range all {
		ca := s.state.CAs[a.Trust].Trusted()
		if a.Serving != nil {
			ca = []byte(a.Serving.CA)
		}
		if a.External != "" {
			ca = []byte(a.CA)
		}
		p.Addresses = append(p.Addresses, ProbeAddress{Address: a.Address, CA: ca})
	}
	answers, err := c.Reach(ctx, p)
	if err != nil {
		return notAsked(errors.New(reason(ctx, err)))
	}
	return answers
}

// dialler returns the template of the pods of a kcp server on a cluster: one that is about to be applied, or that runs.
// Where only an agent or a syncer runs, it is the template of these, with the image of kcp.
func (s *Subject) dialler(ctx context.Context, c Cluster) (*corev1.PodTemplateSpec, error) {
	objects := s.on(c)
	if s.Objects == nil {
		items, err := s.Runtime.Objects(ctx)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			if it.Cluster == c.Name() {
				objects = append(objects, render.Object{Component: it.Component, Unstructured: it.Live})
			}
		}
	}
	for _, serves := range []bool{true, false} {
		for _, obj := range objects {
			template, ok, _ := unstructured.NestedMap(obj.Object, "spec", "template")
			if k := obj.Component.Kind(); !ok || k.Serves() != serves || !k.Serves() && !k.Tenant() {
				continue
			}
			out := &corev1.PodTemplateSpec{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, out); err != nil || serves {
				return out, err
			}
			return withImageOf(s.Topology.Root(), obj.Component.Kind(), out), nil
		}
	}
	return nil, fmt.Errorf("no pod of the setup runs on cluster %s", c.Name())
}

// withImageOf gives the container of kcpctl in a template for a kind of components the image of a component. The
// template needs no ServiceAccount then, which may not exist yet for an agent or a syncer.
func withImageOf(
	c *topology.Component, of topology.Kind, template *corev1.PodTemplateSpec,
) *corev1.PodTemplateSpec {
	template.Spec.ServiceAccountName = ""
	if own := of.ContainerOf(&template.Spec); own != nil {
		own.Image = c.Image
		own.ImagePullPolicy = c.PullPolicy
	}
	return template
}

// judge reports the problems of an answer. A component that does not run yet cannot answer, and the address of its
// load balancer may not exist either.
func (s *Subject) judge(ctx context.Context, a *topology.RemoteAddress, found Answer) (o outcome) {
	cause := fmt.Sprintf("%s cannot reach %s at %s: %s", a.From.Name, a.To(), a.Address, found.Detail)
	running := a.External != "" || !s.Moving[a.Server] && s.runs(ctx, a.Server)
	switch {
	case found.Reach == Answers, found.Reach == Refused && !running:
	case found.Reach == NotAsked:
		return skipped("not asked from cluster %s: %s", a.From.Name, found.Detail)
	case !running:
		o.warn("%s; %s does not serve there yet", cause, a.Server)
	case a.Optional:
		o.warn("%s, which is only needed for %s", cause, a.Reason())
	default:
		o.fail("%s", cause)
	}
	return o
}

// runs reports whether a component has a ready replica.
func (s *Subject) runs(ctx context.Context, id topology.ID) bool {
	if s.states != nil {
		return s.serves(id)
	}
	state, err := s.Runtime.State(ctx, s.Topology.Component(id))
	return err == nil && (state.Ready || state.ReadyReplicas > 0)
}

// fromThisMachine tries the addresses of clients outside of the clusters. Other checks judge the answers.
func (s *Subject) fromThisMachine(ctx context.Context) []Reachability {
	if s.notInstalled(ctx) {
		return nil
	}
	all := slices.DeleteFunc(externals(s.Topology), func(e external) bool { return e.clients == "" })
	found := parallel.Map(atOnce, all, func(e external) Answer { return s.dialExternal(ctx, e) })
	var rows []Reachability
	for i, e := range all {
		rows = append(rows, Reachability{
			thisMachine, string(e.component.ID()), topology.HostPort(e.url), found[i].Reach, found[i].Detail, e.clients,
		})
	}
	return rows
}

func (s *Subject) dialExternal(ctx context.Context, e external) Answer {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("no answer within %s", dialTimeout))
	defer cancel()
	host := hostOf(e.url)
	if _, err := s.network().LookupHost(ctx, host); err != nil && net.ParseIP(host) == nil {
		return Answer{NoSuchName, reason(ctx, err)}
	}
	conn, err := s.network().DialTLS(ctx, topology.HostPort(e.url), anyCertificate(host))
	if err != nil {
		return AnswerOf(reason(ctx, err))
	}
	defer conn.Close()
	if err := s.presentsExpected(conn, e); err != nil && !s.clientsMayTrust(conn, e, err) {
		return Answer{OtherServer, err.Error()}
	}
	return Answer{Reach: Answers}
}

// AnswerOf returns the answer that the error of a Go program means which has dialled an address with TLS.
func AnswerOf(message string) Answer {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(message, part) })
	}
	a := Answer{NotReachable, message}
	switch {
	case has("no such host", "server misbehaving", "Temporary failure in name resolution", "dial tcp: lookup "):
		a.Reach = NoSuchName
	case has("connection refused"):
		a.Reach = Refused
	case has("x509:", "certificate is not trusted"):
		a.Reach = OtherServer
	case has("i/o timeout", "no answer within", "deadline exceeded", "no route to host", "network is unreachable",
		"TLS handshake timeout"):
		a.Reach = NoAnswer
	}
	return a
}
