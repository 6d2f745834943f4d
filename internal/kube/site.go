package kube

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

const (
	// connectTimeout is how long the first answer of an API server may take.
	connectTimeout = 10 * time.Second
	// connectPause is how long after a failure an API server is not asked again: many ask at once, and each would wait for
	// the timeout anew.
	connectPause = time.Second
)

// systemNamespace exists in every cluster from its first second; its UID is what tells clusters apart.
const systemNamespace = "kube-system"

// site is a cluster of the setup and the clients for it.
type site struct {
	topology.Cluster
	// context is the kubeconfig context that is used.
	context string
	config  *rest.Config
	http    *http.Client
	dynamic patient
	caches  caches
	words   words
	now     func() time.Time
	// trouble tells the user, once, that requests fail and are made again.
	trouble func(error)

	mu        sync.Mutex
	connected bool
	// failure is why the last attempt to connect failed, failed when.
	failure error
	failed  time.Time
	// uid identifies the cluster. It is empty where the user may not know it.
	uid types.UID
}

// newSite finds a cluster, as kubectl does unless it is told how. It sends no request.
func newSite(c topology.Cluster, o Options, warn func(string, ...any)) (*site, error) {
	s := &site{Cluster: c, context: c.Context, now: o.Now}
	client, err := s.find(o, warn)
	if err != nil {
		return nil, configError(c, err)
	}
	var once sync.Once
	s.trouble = func(err error) {
		once.Do(func() { warn("the API server is in trouble (%s), and is asked again and again: %v", s.where(), err) })
	}
	s.dynamic = patient{client, s.trouble}
	return s, nil
}

// find returns the client of a site's cluster, and notes in the site how else to reach it.
func (s *site) find(o Options, warn func(string, ...any)) (dynamic.Interface, error) {
	if o.API != nil {
		api, err := o.API(s.Cluster)
		if err != nil {
			return nil, err
		}
		s.context, s.http, s.config = api.Context, api.HTTP, &rest.Config{Host: api.Context}
		return api.Dynamic, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{
		CurrentContext: s.context, AuthInfo: clientcmdapi.AuthInfo{Impersonate: o.As, ImpersonateGroups: o.AsGroups},
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, err
	}
	if s.context == "" {
		s.context = raw.CurrentContext
	}
	if s.config, err = loader.ClientConfig(); err != nil {
		return nil, err
	}
	s.config.QPS = -1 // requests are limited by their number at once
	s.config.WarningHandlerWithContext = &warnings{notify: warn, seen: map[string]bool{}}
	if s.http, err = rest.HTTPClientFor(s.config); err != nil {
		return nil, err
	}
	return dynamic.NewForConfigAndClient(s.config, s.http)
}

func configError(c topology.Cluster, err error) error {
	hint := "set KUBECONFIG, or spec.clusters[].kubeconfig and context in the setup file"
	if c.Context != "" {
		hint = "list the contexts with kubectl config get-contexts, and correct spec.clusters[].context"
	}
	if clientcmd.IsEmptyConfig(err) {
		return clierr.New(clierr.Failed, hint, "no Kubernetes cluster is configured for cluster %q: there is no kubeconfig", c.Name)
	}
	return clierr.New(clierr.Failed, hint, "find cluster %q: %w", c.Name, err)
}

// where names the site in a few words.
func (s *site) where() string {
	if s.context == "" {
		return s.config.Host + ", namespace " + s.Namespace
	}
	return "context " + s.context + ", namespace " + s.Namespace
}

// kubectl is how a user calls kubectl for the site, with some arguments.
func (s *site) kubectl(args string) string {
	out := "kubectl"
	if s.Kubeconfig != "" {
		out += " --kubeconfig " + s.Kubeconfig
	}
	if s.context != "" {
		out += " --context " + s.context
	}
	if s.config != nil && s.config.Impersonate.UserName != "" {
		out += " --as " + s.config.Impersonate.UserName
	}
	return out + " " + args
}

// connect makes sure that the API server answers and knows the user, once.
func (s *site) connect(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connected {
		return nil
	}
	if s.failure != nil && s.now().Sub(s.failed) < connectPause {
		return s.failure
	}
	err := s.greet(ctx)
	s.connected = err == nil
	if ctx.Err() == nil { // else it is the caller who gave up
		s.failure, s.failed = err, s.now()
	}
	return err
}

// greet asks for the namespace that tells clusters apart.
func (s *site) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errTimeout)
	defer cancel()
	namespaces := s.dynamic.Interface.Resource(known("Namespace").gvr())
	ns, err := again(ctx, retry{limit: firstPersistence, passes: isTransientAtFirst}, func() (*unstructured.Unstructured, error) {
		return namespaces.Get(ctx, systemNamespace, metav1.GetOptions{})
	})
	switch {
	case err == nil:
		s.uid = ns.GetUID()
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
	case context.Cause(ctx) == errTimeout:
		return s.unreachable(errTimeout)
	default:
		return s.explain(err, "connect to the cluster")
	}
	return nil
}

// resource is the client for a kind in the site's namespace.
func (s *site) resource(r schema.GroupVersionResource) dynamic.ResourceInterface {
	return s.dynamic.Resource(r).Namespace(s.Namespace)
}

// of is the client for the kind of an object of the setup.
func (s *site) of(gvk schema.GroupVersionKind) (dynamic.ResourceInterface, error) {
	k, err := kindOf(gvk)
	if err != nil {
		return nil, err
	}
	return s.client(k), nil
}

// client is the client for a kind.
func (s *site) client(k kind) dynamic.ResourceInterface {
	if k.clusterScoped {
		return s.dynamic.Resource(k.gvr())
	}
	return s.resource(k.gvr())
}

// get returns an object, or nil if it does not exist.
func (s *site) get(ctx context.Context, gvk schema.GroupVersionKind, name string) (*unstructured.Unstructured, error) {
	client, err := s.of(gvk)
	if err != nil {
		return nil, err
	}
	o, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, s.explain(err, "read %s %s", gvk.Kind, name)
	}
	return o, nil
}

// list returns the objects of a kind in the site's namespace that match a label selector.
func (s *site) list(ctx context.Context, k kind, selector string) ([]unstructured.Unstructured, error) {
	l, err := s.resource(k.gvr()).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, s.explain(err, "list %s", k.resource)
	}
	return l.Items, nil
}

// ref names an object of the site.
func (s *site) ref(gvk schema.GroupVersionKind, name string) plan.Ref {
	return plan.Ref{Cluster: s.Name, GroupVersionKind: gvk, Namespace: s.Namespace, Name: name}
}

// quiet keeps client-go, which logs on its own account, from writing to standard error.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// warnings passes on what API servers warn of, each warning once.
type warnings struct {
	notify func(string, ...any)
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
