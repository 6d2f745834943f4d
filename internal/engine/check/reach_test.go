package check_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
)

// twoClusters has the root shard and the front-proxy on one cluster, and a shard with an external etcd on another.
const twoClusters = `  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  frontProxies: [{name: main, cluster: eu}]
  shards:
  - name: alpha
    cluster: us
    url: "https://alpha.example.com:6443"
    etcd: {external: {endpoints: ["https://etcd.example.com:2379"], tlsSecret: etcd-client}}
`

// places is the setup on two clusters that answer as a test says.
type places struct {
	top *topology.Topology
	rt  *fakeruntime.Runtime
	// answers are what happens at an address; every other one answers. silent is an error of cluster us.
	answers map[string]check.Answer
	silent  error
	mu      sync.Mutex
	// asked are the addresses that each cluster was asked for.
	asked map[string][]string
}

func newPlaces(t *testing.T, running bool) *places {
	t.Helper()
	return newPlacesOf(t, twoClusters, running)
}

func newPlacesOf(t *testing.T, text string, running bool) *places {
	t.Helper()
	top := newTopology(t, text)
	p := &places{top: top, rt: fakeruntime.New(t, top), answers: map[string]check.Answer{}, asked: map[string][]string{}}
	for _, name := range []string{"eu", "us"} {
		p.rt.Place.Clusters = append(p.rt.Place.Clusters, &fakeruntime.Cluster{Label: name, Reached: func(address string) (check.Answer, error) {
			if name == "us" && p.silent != nil {
				return check.Answer{}, p.silent
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.asked[name] = append(p.asked[name], address)
			if a, ok := p.answers[address]; ok {
				return a, nil
			}
			return check.Answer{Reach: check.Answers}, nil
		}})
	}
	for _, c := range top.Running() {
		p.rt.States(c.ID(), ready.State{Ready: running})
	}
	return p
}

// run runs the check of an ID.
func (p *places) run(t *testing.T, id string) (check.Result, []check.Reachability) {
	t.Helper()
	objects, err := render.Objects(p.top, pkitest.Issue(t, p.top, time.Now()))
	require.NoError(t, err)
	c, ok := check.Find(id)
	require.True(t, ok)
	s := &check.Subject{Topology: p.top, Runtime: p.rt, Network: &network{dial: nowhereToDial}, Now: time.Now, Objects: objects}
	r := check.Run(t.Context(), s, []check.Check{c})
	return r.Results[0], r.Reachability
}

func TestReachability(t *testing.T) {
	refused := check.Answer{Reach: check.Refused, Detail: "connect: connection refused"}
	noName := check.Answer{Reach: check.NoSuchName, Detail: "lookup x: no such host"}
	for name, tc := range map[string]struct {
		spoil   func(p *places)
		running bool
		want    check.Status
		cause   string
	}{
		"everything answers":       {func(*places) {}, true, check.OK, ""},
		"before the first up":      {func(p *places) { p.answers["root.example.com:6443"] = refused }, false, check.OK, ""},
		"no DNS entry yet":         {func(p *places) { p.answers["root.example.com:6443"] = noName }, false, check.Warn, "eu cannot reach root-shard at root.example.com:6443: lookup x: no such host; root-shard does not serve there yet\nus cannot reach root-shard at root.example.com:6443: lookup x: no such host; root-shard does not serve there yet"},
		"a DNS entry is missing":   {func(p *places) { p.answers["alpha.example.com:6443"] = noName }, true, check.Fail, "eu cannot reach shard/alpha at alpha.example.com:6443: lookup x: no such host\nus cannot reach shard/alpha at alpha.example.com:6443: lookup x: no such host"},
		"nothing listens":          {func(p *places) { p.answers["alpha.example.com:6443"] = refused }, true, check.Fail, "eu cannot reach shard/alpha at alpha.example.com:6443: connect: connection refused\nus cannot reach shard/alpha at alpha.example.com:6443: connect: connection refused"},
		"an etcd that is not ours": {func(p *places) { p.answers["etcd.example.com:2379"] = refused }, false, check.Fail, "us cannot reach external etcd of shard/alpha at etcd.example.com:2379: connect: connection refused"},
		"a cluster cannot be asked": {func(p *places) { p.silent = fmt.Errorf("%w: the namespace does not exist", check.ErrUnknown) }, true, check.Skipped,
			"not asked from cluster us: the namespace does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlaces(t, tc.running)
				tc.spoil(p)
				for _, id := range []string{"KCP024", "KCP114"} {
					res, _ := p.run(t, id)
					require.Equal(t, tc.want, res.Status, "%+v", res)
					require.Equal(t, tc.cause, res.Cause)
				}
			})
		})
	}
}

// Front-proxies serve without issuers and webhooks, but accept no tokens then. Which server a webhook is, only its
// Secret knows.
func TestReachabilityOfIssuersAndWebhooks(t *testing.T) {
	const kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: hook\ncontexts: [{name: hook, context: {cluster: hook}}]\n" +
		"clusters: [{name: hook, cluster: {server: \"https://hook.example.com/authenticate\"}}]\n"
	synctest.Test(t, func(t *testing.T) {
		p := newPlacesOf(t, twoClusters+"  authentication: {oidc: {issuerURL: \"https://login.example.com\", clientID: kcp}, webhook: {secret: hook}}\n", true)
		_, rows := p.run(t, "KCP114")
		require.NotContains(t, fmt.Sprint(rows), "webhook", "the check of references reports the Secret")

		p.rt.Place.Clusters[0].(*fakeruntime.Cluster).Secrets = map[string]map[string][]byte{"hook": {"kubeconfig": []byte(kubeconfig)}}
		p.answers["login.example.com:443"] = check.Answer{Reach: check.NoSuchName, Detail: "no such host"}
		res, rows := p.run(t, "KCP114")
		require.Equal(t, check.Warn, res.Status)
		require.Equal(t, "eu cannot reach issuer of front-proxy/main at login.example.com:443: no such host, which is only needed for front-proxy: tokens of users", res.Cause)
		require.Contains(t, rows, check.Reachability{
			From: "eu", To: "webhook of front-proxy/main", Address: "hook.example.com:443", Result: check.Answers, Reason: "front-proxy: tokens of users",
		})
		require.Contains(t, p.asked["eu"], "hook.example.com:443")
		require.NotContains(t, p.asked["us"], "hook.example.com:443", "its shards leave tokens to front-proxies")
	})
}

// The table has a row for each place and address, with the reason, and those of clients outside of the clusters.
func TestReachabilityTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(t, true)
		p.answers["kcp.example.com:6443"] = check.Answer{Reach: check.NoAnswer, Detail: "i/o timeout"}
		res, rows := p.run(t, "KCP024")
		require.Equal(t, check.Fail, res.Status)
		require.Contains(t, res.Cause, "us cannot reach front-proxy/main")
		require.Equal(t, [][]string{
			{"FROM", "TO", "ADDRESS", "RESULT", "NEEDED BY"},
			{"eu", "root-shard", "root.example.com:6443", "answers", "root-shard: logical clusters, virtual workspaces; front-proxy: index of workspaces, requests of clients"},
			{"eu", "shard/alpha", "alpha.example.com:6443", "answers", "root-shard: logical clusters, virtual workspaces; front-proxy: index of workspaces, requests of clients"},
			{"us", "root-shard", "root.example.com:6443", "answers", "shard: logical clusters, virtual workspaces, registration, identities of APIs"},
			{"us", "shard/alpha", "alpha.example.com:6443", "answers", "shard: logical clusters, virtual workspaces"},
			{"us", "external etcd of shard/alpha", "etcd.example.com:2379", "answers", "shard: its data"},
			{"us", "front-proxy/main", "kcp.example.com:6443", "no answer", "shard: workspaces of other shards"},
			{"this machine", "front-proxy/main", "kcp.example.com:6443", "refused", "clients of kcp"},
			{"this machine", "root-shard", "root.example.com:6443", "no such name", "clients of virtual workspaces"},
			{"this machine", "shard/alpha", "alpha.example.com:6443", "no such name", "clients of virtual workspaces"},
		}, check.Table(rows, false))
		require.Equal(t, "who reaches whom: 5 of 9 addresses answer", check.Summarize(rows))
		require.Len(t, p.asked["eu"], 2)
		require.Len(t, p.asked["us"], 4)
	})
}

func TestAnswerOf(t *testing.T) {
	for message, want := range map[string]check.Reach{
		`dial tcp: lookup kcp.example.com on 10.213.32.10:53: no such host`:                   check.NoSuchName,
		`dial tcp: lookup kcp.example.com on 10.213.32.10:53: read udp 10.0.0.1: i/o timeout`: check.NoSuchName,
		`dial tcp 10.213.0.3:31443: connect: connection refused`:                              check.Refused,
		`dial tcp 10.213.0.3:31443: i/o timeout`:                                              check.NoAnswer,
		`dial tcp 10.213.0.3:31443: connect: no route to host`:                                check.NoAnswer,
		`context deadline exceeded (Client.Timeout exceeded while awaiting headers)`:          check.NoAnswer,
		`tls: failed to verify certificate: x509: certificate signed by unknown authority`:    check.OtherServer,
		`tls: failed to verify certificate: x509: certificate is valid for a, not b`:          check.OtherServer,
		`read tcp 10.213.16.5:1->10.213.0.3:31443: read: connection reset by peer`:            check.NotReachable,
	} {
		require.Equal(t, check.Answer{Reach: want, Detail: message}, check.AnswerOf(message))
	}
}

func nowhereToDial(context.Context, *tls.Config) (*tls.Conn, error) {
	return nil, errors.New("connection refused")
}

// Of very many addresses, only those that do not answer are shown.
func TestReachabilityTableOfManyAddresses(t *testing.T) {
	rows := slices.Repeat([]check.Reachability{{From: "eu", Result: check.Answers}}, 100)
	require.Empty(t, check.Table(rows, false))
	require.Len(t, check.Table(rows, true), 101)
	rows[40].Result = check.Refused
	require.Len(t, check.Table(rows, false), 2)
	require.Len(t, check.Table(rows[:24], false), 25)
}

// Where only a syncer runs, the pods that try addresses have its settings, and the image of kcp.
func TestReachabilityFromASyncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlacesOf(t, `  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}]
  rootShard: {cluster: eu, virtualWorkspaceURL: "https://root.example.com:6443"}
  workloads:
    clusters: [{name: c1, context: eu}, {name: us, context: us, syncMode: Pull, podTemplate: {spec: {nodeSelector: {zone: edge}}}}]
`, true)
		p.answers["root.example.com:6443"] = check.Answer{Reach: check.NoAnswer, Detail: "i/o timeout"}
		res, _ := p.run(t, "KCP024")
		require.Equal(t, check.Fail, res.Status)
		require.Contains(t, res.Cause, "us cannot reach root-shard at root.example.com:6443: i/o timeout")
		require.Equal(t, []string{"kcp.example.com:6443", "root.example.com:6443"}, slices.Sorted(slices.Values(p.asked["us"])))
		from := p.rt.Place.Clusters[1].(*fakeruntime.Cluster).Probed.Spec
		require.Equal(t, map[string]string{"zone": "edge"}, from.NodeSelector)
		require.Equal(t, p.top.Root().Image, from.Containers[0].Image)
		require.Empty(t, from.ServiceAccountName, "it may not exist yet")
	})
}
