// Package cluster is the client for one Kubernetes cluster that hosts components of a setup: connecting to it, reading,
// applying and deleting objects in its namespace, and errors that name the cluster and the next step.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/retry"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

const (
	// ConnectTimeout is how long the first answer of an API server may take.
	ConnectTimeout = 10 * time.Second
	// reconnectPause is how long an API server is not asked again after a failure: there are many callers, and each
	// would wait for the timeout again.
	reconnectPause = time.Second
)

// systemNamespace exists in every cluster from the start. Its UID identifies the cluster.
const systemNamespace = "kube-system"

// ErrConnectTimeout means that an API server did not answer its first request in time.
var ErrConnectTimeout = fmt.Errorf("no answer within %s", ConnectTimeout)

// Notify reports a message to the user.
type Notify func(format string, args ...any)

// API is how to talk to the API server of a cluster.
type API struct {
	// Context is the context of the cluster in a kubeconfig. It is empty if no kubeconfig has it: then Server is its
	// URL.
	Context string
	Server  string
	Dynamic dynamic.Interface
	HTTP    *http.Client
}

// Options are the options of a Client.
type Options struct {
	// API finds a cluster instead of the kubeconfigs that a topology names. Nil uses kubeconfigs.
	API func(topology.Cluster) (*API, error)
	// As and AsGroups are the user and the groups to impersonate. They replace the ones of the cluster.
	As       string
	AsGroups []string
	Now      func() time.Time
	// Notify is called with warnings of the API server, and once if requests are retried for longer or a wait takes
	// long.
	Notify Notify
}

// Client is a client for a cluster of a setup.
type Client struct {
	topology.Cluster
	// KubeContext is the kubeconfig context in use. Cluster.Context is the one that the setup file names: empty is the
	// current one.
	KubeContext string
	Config      *rest.Config
	// Entry is the entry of the cluster in a kubeconfig. It is nil if no kubeconfig has it.
	Entry   *clientcmdapi.Cluster
	Dynamic retry.Client
	// UID identifies the cluster. Connect sets it. It remains empty if the user may not read it.
	UID types.UID

	http *http.Client
	now  func() time.Time
	// byURL is set for a server that no kubeconfig of the user has, such as the one of a process: kubectl cannot reach
	// it by a context.
	byURL bool
	// notify is called if a wait takes long. It may be nil.
	notify Notify
	// unconfigured is why New did not find the cluster.
	unconfigured error

	// versions are the versions in which the cluster serves optional kinds, by resource. Empty: it does not serve them.
	versions sync.Map

	first     parallel.Lock // held during the first request
	connected bool
	// failure is why the last attempt to connect failed, and failed is when.
	failure error
	failed  time.Time
}

// New finds a cluster as kubectl does, or with Options.API. It sends no request.
func New(c topology.Cluster, o Options) (*Client, error) {
	cl := &Client{Cluster: c, KubeContext: c.Context, now: o.Now, notify: o.Notify}
	d, err := cl.load(o)
	if err != nil {
		return nil, configError(c, err)
	}
	var once sync.Once
	cl.Dynamic = retry.Client{Interface: d, OnSlow: func(err error) {
		once.Do(func() { o.Notify("API server error (%s), retrying: %v", cl.Where(), err) })
	}}
	return cl, nil
}

// Unconfigured returns a client for a cluster that New did not find, with the reason. All its requests fail with it.
func Unconfigured(c topology.Cluster, o Options, reason error) (*Client, error) {
	cl := &Client{
		Cluster: c, KubeContext: c.Context, Config: &rest.Config{Host: unconfiguredHost}, now: o.Now,
		unconfigured: reason,
		http:         &http.Client{Transport: failing{reason}},
	}
	d, err := dynamic.NewForConfigAndClient(cl.Config, cl.http)
	cl.Dynamic = retry.Client{Interface: d, OnSlow: func(error) {}}
	return cl, err
}

// unconfiguredHost is the host of a cluster without a configuration. No request reaches a network.
const unconfiguredHost = "https://unconfigured.invalid"

// failing is a transport whose requests fail.
type failing struct{ error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.error }

// load returns the dynamic client for the cluster, and sets the other ways to reach it.
func (c *Client) load(o Options) (dynamic.Interface, error) {
	if o.API != nil {
		api, err := o.API(c.Cluster)
		if err != nil {
			return nil, err
		}
		c.KubeContext, c.http, c.Config = api.Context, api.HTTP, &rest.Config{Host: cmp.Or(api.Server, api.Context)}
		c.byURL = api.Server != ""
		return api.Dynamic, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	user := clientcmdapi.AuthInfo{Impersonate: c.As, ImpersonateGroups: c.AsGroups}
	if o.As != "" {
		user = clientcmdapi.AuthInfo{Impersonate: o.As, ImpersonateGroups: o.AsGroups}
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.KubeContext, AuthInfo: user}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, err
	}
	if c.KubeContext == "" {
		c.KubeContext = raw.CurrentContext
	}
	if c.Config, err = loader.ClientConfig(); err != nil {
		return nil, c.noContext(rules, raw.Contexts, err)
	}
	if at := raw.Contexts[c.KubeContext]; at != nil {
		c.Entry = raw.Clusters[at.Cluster]
	}
	c.Config.QPS = -1 // the number of concurrent requests is limited instead
	c.Config.WarningHandlerWithContext = &warnings{notify: o.Notify, seen: map[string]bool{}}
	if c.http, err = rest.HTTPClientFor(c.Config); err != nil {
		return nil, err
	}
	if c.Config.ExecProvider != nil {
		c.http.Transport = renewing{c.http.Transport}
	}
	return dynamic.NewForConfigAndClient(c.Config, c.http)
}

// MayHost returns an error if no component can run there, because the API server is a workspace of kcp: its URL has
// the path that kcp's kubeconfigs have. Proxies of other programs have such a path below another one.
func (c *Client) MayHost() error {
	u, err := url.Parse(c.Config.Host)
	if err != nil || !strings.HasPrefix(u.Path, "/clusters/") {
		return nil
	}
	return clierr.New(clierr.Failed,
		"choose the context of a Kubernetes cluster with --context"+c.orLocal(),
		"context %s leads to a workspace of kcp, not to a Kubernetes cluster", c.KubeContext)
}

// noContext explains why a kubeconfig does not lead to the cluster.
func (c *Client) noContext(
	rules *clientcmd.ClientConfigLoadingRules, contexts map[string]*clientcmdapi.Context, err error,
) error {
	names := slices.Sorted(maps.Keys(contexts))
	few := gather.Few(names, mostContexts, ", ")
	switch {
	case len(names) == 0 && clientcmd.IsEmptyConfig(err):
		return clierr.New(clierr.Failed, hintKubeconfig+c.orLocal(),
			"cluster %q is not configured: %s", c.Name, emptyFiles(rules))
	case c.KubeContext == "" && len(names) > 0:
		return clierr.New(clierr.Failed,
			"choose one of "+few+" with --context, or use kubectl config use-context"+c.orLocal(),
			"cluster %q is not configured: the kubeconfig has no current context", c.Name)
	case len(names) > 0 && contexts[c.KubeContext] == nil:
		return clierr.New(clierr.Failed,
			"correct --context, or the context in the setup file: the kubeconfig has "+few+c.orLocal(),
			"find cluster %q: context %q does not exist", c.Name, c.KubeContext)
	}
	return err
}

const (
	// HintLocal is a part of hints about a cluster that may be the wrong place.
	HintLocal = "add --local if kcp runs on this machine"

	hintKubeconfig = "name a kubeconfig with KUBECONFIG, --kubeconfig, or spec.clusters[].kubeconfig in the setup file"
	// mostContexts is how many contexts a hint lists.
	mostContexts = 10
)

// emptyFiles says which files have no context, or that there are none.
func emptyFiles(rules *clientcmd.ClientConfigLoadingRules) string {
	files := slices.DeleteFunc(rules.GetLoadingPrecedence(), func(f string) bool { return f == "" })
	exists := func(f string) bool { _, err := os.Stat(f); return err == nil }
	if slices.ContainsFunc(files, exists) {
		return "there is no context in " + strings.Join(files, ", ")
	}
	return "no kubeconfig found, not at " + strings.Join(files, ", ")
}

// orLocal is the end of a hint about a cluster that may be the wrong place: the setup may run on this machine. Physical
// clusters, which have no namespace, never do.
func (c *Client) orLocal() string {
	if c.Namespace == "" {
		return ""
	}
	return "; " + HintLocal
}

func configError(c topology.Cluster, err error) error {
	if clierr.Hint(err) != "" {
		return err
	}
	hint := hintKubeconfig
	if c.Kubeconfig != "" {
		hint = "correct --kubeconfig, or spec.clusters[].kubeconfig in the setup file"
	}
	return clierr.New(clierr.Failed, hint, "find cluster %q: %w", c.Name, err)
}

// Where names the cluster and the namespace for messages: "context kind-dev, namespace kcp". Physical clusters have no
// namespace.
func (c *Client) Where() string {
	where := "context " + c.KubeContext
	if c.KubeContext == "" {
		where = c.Config.Host
	}
	if c.Namespace == "" {
		return where
	}
	return where + ", namespace " + c.Namespace
}

// Kubectl is the kubectl command for the cluster, with some arguments.
func (c *Client) Kubectl(args string) string {
	out := "kubectl"
	if c.Kubeconfig != "" {
		out += " --kubeconfig " + c.Kubeconfig
	}
	if c.KubeContext != "" {
		out += " --context " + c.KubeContext
	}
	if c.Config != nil && c.Config.Impersonate.UserName != "" {
		out += " --as " + c.Config.Impersonate.UserName
		for _, group := range c.Config.Impersonate.Groups {
			out += " --as-group " + group
		}
	}
	return out + " " + args
}

// Check makes sure that the API server answers now and accepts the user's credentials.
func (c *Client) Check(ctx context.Context) error {
	if err := c.first.Lock(ctx); err != nil {
		return err
	}
	defer c.first.Unlock()
	return c.try(ctx)
}

// Connect makes sure, once, that the API server answers and accepts the user's credentials.
func (c *Client) Connect(ctx context.Context) error {
	if err := c.first.Lock(ctx); err != nil {
		return err
	}
	defer c.first.Unlock()
	if c.connected {
		return nil
	}
	if c.failure != nil && c.now().Sub(c.failed) < reconnectPause {
		return c.failure
	}
	return c.try(ctx)
}

// try sends a first request. The caller holds c.first.
func (c *Client) try(ctx context.Context) error {
	err := c.unconfigured
	if err == nil {
		err = c.ping(ctx)
	}
	c.connected = err == nil
	if ctx.Err() == nil { // otherwise the caller gave up
		c.failure, c.failed = err, c.now()
	}
	return err
}

// ping reads the namespace that identifies the cluster.
func (c *Client) ping(ctx context.Context) error {
	if err := c.logIn(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ConnectTimeout, ErrConnectTimeout)
	defer cancel()
	namespaces := c.Dynamic.Interface.Resource(kind.Namespace.GVR())
	p := retry.Policy{Limit: retry.FirstLimit, Retriable: retry.IsTransientFirst}
	ns, err := retry.Do(ctx, p, func() (*unstructured.Unstructured, error) {
		return namespaces.Get(ctx, systemNamespace, metav1.GetOptions{})
	})
	switch {
	case err == nil:
		c.UID = ns.GetUID()
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
	case context.Cause(ctx) == ErrConnectTimeout:
		return c.unreachable(ErrConnectTimeout)
	default:
		return c.Explain(err, "connect to the cluster")
	}
	return nil
}

// Quiet returns a context that keeps client-go, which has its own log, from writing to standard error. All commands but
// the servers, which log, have it.
func Quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// warnings reports each warning of an API server once.
type warnings struct {
	notify Notify
	mu     sync.Mutex
	seen   map[string]bool
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext. 299 is the only code that API servers use.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if code == 299 && text != "" && !w.seen[text] {
		w.seen[text] = true
		w.notify("warning: %s", text)
	}
}
