package faults

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/kcpctl/kcpctl/test/standin"
)

// keyring watches every version of every PKI Secret, and reports when an authority or the service-account key differs
// from the first stored one.
type keyring struct {
	admin dynamic.Interface
	place func(namespace string) *place

	mu    sync.Mutex
	first map[string]map[string]string // fingerprints by namespace and key
	seen  map[string]string            // resource versions by namespace
}

func (k *keyring) run(ctx context.Context) error {
	k.first, k.seen = map[string]map[string]string{}, map[string]string{}
	all := dynamicinformer.NewFilteredDynamicSharedInformerFactory(k.admin, 0, metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.FieldSelector = "metadata.name=" + pkiName
	})
	if _, err := all.ForResource(standin.Secrets).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: k.look, UpdateFunc: func(_, o any) { k.look(o) },
		DeleteFunc: func(o any) {
			if u, ok := o.(*unstructured.Unstructured); ok && k.place(u.GetNamespace()) != nil {
				k.place(u.GetNamespace()).Problem("the PKI Secret was deleted")
			}
		},
	}); err != nil {
		return err
	}
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	return nil
}

// look compares a version of a PKI Secret with the first version.
func (k *keyring) look(o any) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok || k.place(u.GetNamespace()) == nil {
		return
	}
	p, s := k.place(u.GetNamespace()), &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s); err != nil {
		p.Problem("the PKI Secret: %v", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen[p.Namespace] = s.ResourceVersion
	now := fingerprints(s.Data)
	before, ok := k.first[p.Namespace]
	if !ok {
		k.first[p.Namespace] = now
		return
	}
	for name, was := range before {
		if now[name] != was {
			p.Problem("%s of the PKI Secret was replaced or lost", name)
		}
	}
}

// fingerprints returns fingerprints of authorities and keys.
func fingerprints(data map[string][]byte) map[string]string {
	out := map[string]string{}
	for key, value := range data {
		if strings.HasSuffix(key, ".crt") || strings.HasSuffix(key, ".key") {
			out[key] = fmt.Sprintf("%x", sha256.Sum256(value))
		}
	}
	return out
}

// caughtUp waits until the keyring has seen a version of the PKI Secret of a namespace.
func (k *keyring) caughtUp(ctx context.Context, namespace, version string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		k.mu.Lock()
		seen := k.seen[namespace]
		k.mu.Unlock()
		if seen == version {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the PKI Secret of %s is at version %s, and the watch has seen %q: %w", namespace, version, seen, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
