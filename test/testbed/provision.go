package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	provisionerName = "kcpctl.dev/testbed"
	storageClass    = "testbed"
)

// provisioner provisions directories for claims of the testbed's StorageClass, and addresses for Services of type
// LoadBalancer.
type provisioner struct {
	node     node
	client   kubernetes.Interface
	claims   corelisters.PersistentVolumeClaimLister
	volumes  corelisters.PersistentVolumeLister
	services corelisters.ServiceLister
}

// runProvision runs the provisioner until a signal.
func runProvision(ctx context.Context, t *testbed, o *options) error {
	n, err := oneNode(o.node)
	if err != nil {
		return err
	}
	client, err := n.client()
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	p := newProvisioner(n, client, factory)
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // a reconciliation is already pending
		}
	}
	if err := onChange(factory, notify); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for {
		if err := p.reconcile(ctx); err != nil {
			t.log.note("%v", err)
			time.AfterFunc(time.Second, notify)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func newProvisioner(n node, client kubernetes.Interface, factory informers.SharedInformerFactory) provisioner {
	core := factory.Core().V1()
	return provisioner{
		n, client, core.PersistentVolumeClaims().Lister(), core.PersistentVolumes().Lister(), core.Services().Lister(),
	}
}

// onChange calls notify for every change of an object that the provisioner reads.
func onChange(factory informers.SharedInformerFactory, notify func()) error {
	core := factory.Core().V1()
	for _, informer := range []cache.SharedInformer{
		core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer(), core.Services().Informer(),
	} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { notify() },
			UpdateFunc: func(any, any) { notify() },
			DeleteFunc: func(any) { notify() },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// reconcile reads all objects, which is fast in the small cluster of a test, and does what is due.
func (p provisioner) reconcile(ctx context.Context) error {
	claims, err := p.claims.List(labels.Everything())
	if err != nil {
		return err
	}
	volumes, err := p.volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range claims {
		if wantsVolume(c) {
			errs = append(errs, p.provide(ctx, c))
		}
	}
	for _, v := range volumes {
		if v.Annotations[provisionedBy] == provisionerName && v.Status.Phase == corev1.VolumeReleased {
			errs = append(errs, p.reclaim(ctx, v))
		}
	}
	return errors.Join(append(errs, p.balance(ctx))...)
}

const (
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	selectedNode  = "volume.kubernetes.io/selected-node" // set by the scheduler
)

func wantsVolume(c *corev1.PersistentVolumeClaim) bool {
	class := c.Spec.StorageClassName
	return class != nil && *class == storageClass && c.Spec.VolumeName == "" && c.DeletionTimestamp == nil && c.Annotations[selectedNode] != ""
}

// provide creates the directory and the volume of a claim. The directory is world-writable, because pods have different
// users and hostPath does not support fsGroup.
func (p provisioner) provide(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	name := "pvc-" + string(c.UID)
	if _, err := p.volumes.Get(name); err == nil {
		return nil // it will be bound soon
	}
	dir := p.node.stateFile("volumes", name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o777); err != nil { // regardless of the umask
		return err
	}
	kind := corev1.HostPathDirectory
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisionerName}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   c.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: c.Spec.Resources.Requests[corev1.ResourceStorage]},
			StorageClassName:              storageClass,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &kind}},
		},
	}
	if _, err := p.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the volume of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

// reclaim deletes a volume without a claim, and its directory. A volume with the policy Retain stays.
func (p provisioner) reclaim(ctx context.Context, v *corev1.PersistentVolume) error {
	if v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	if err := os.RemoveAll(p.node.stateFile("volumes", filepath.Base(v.Name))); err != nil {
		return err
	}
	return ignoreNotFound(p.client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{}))
}

// balance assigns an address to each Service of type LoadBalancer without a class. kube-proxy does the rest.
func (p provisioner) balance(ctx context.Context) error {
	services, err := p.services.List(labels.Everything())
	if err != nil {
		return err
	}
	taken := map[string]bool{}
	for _, s := range services {
		for _, i := range s.Status.LoadBalancer.Ingress {
			taken[i.IP] = true
		}
	}
	var errs []error
	for _, s := range services {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.Spec.LoadBalancerClass != nil || len(s.Status.LoadBalancer.Ingress) > 0 {
			continue
		}
		address, err := freeAddress(p.node.balancers, taken)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		taken[address] = true
		s = s.DeepCopy()
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
		_, err = p.client.CoreV1().Services(s.Namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{})
		errs = append(errs, ignoreNotFound(err))
	}
	return errors.Join(errs...)
}

func freeAddress(cidr string, taken map[string]bool) (string, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return "", err
	}
	for a := prefix.Addr(); prefix.Contains(a); a = a.Next() {
		if !taken[a.String()] {
			return a.String(), nil
		}
	}
	return "", fmt.Errorf("no address of %s is left for a load balancer", cidr)
}
