package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func TestProvisionerProvidesWhatTheSchedulerPlaced(t *testing.T) {
	placed := map[string]string{selectedNode: "testbed-a"}
	p := provisionerOf(t,
		claim("placed", storageClass, placed), claim("waiting", storageClass, nil), claim("foreign", "fast", placed))
	require.NoError(t, p.reconcile(t.Context()))

	volumes, err := p.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, volumes.Items, 1)
	v := volumes.Items[0]
	require.Equal(t, "placed", v.Spec.ClaimRef.Name)
	require.Equal(t, "1Gi", v.Spec.Capacity.Storage().String())
	info, err := os.Stat(v.Spec.HostPath.Path)
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o777, info.Mode(), "pods of any user must be able to write")
}

func TestProvisionerReclaims(t *testing.T) {
	volume := func(name, by string, phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) runtime.Object {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: by}},
			Spec:       corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: policy},
			Status:     corev1.PersistentVolumeStatus{Phase: phase},
		}
	}
	p := provisionerOf(t,
		volume("released", provisionerName, corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete),
		volume("kept", provisionerName, corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain),
		volume("bound", provisionerName, corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete),
		volume("foreign", "other.example.com", corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete))
	dirs := map[string]string{}
	for _, name := range []string{"released", "kept", "bound", "foreign"} {
		dirs[name] = p.node.stateFile("volumes", name)
		require.NoError(t, os.MkdirAll(dirs[name], 0o777))
	}
	require.NoError(t, p.reconcile(t.Context()))
	volumes, err := p.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, volumes.Items, 3)
	require.NoDirExists(t, dirs["released"])
	for _, name := range []string{"kept", "bound", "foreign"} {
		require.DirExists(t, dirs[name])
	}
}

func TestProvisionerBalances(t *testing.T) {
	service := func(name string, spec corev1.ServiceSpec, address string) runtime.Object {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: spec}
		if address != "" {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
		}
		return s
	}
	class, balanced := "other", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}
	p := provisionerOf(t,
		service("new", balanced, ""),
		service("old", balanced, "10.213.0.64"),
		service("classed", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class}, ""),
		service("internal", corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}, ""))
	require.NoError(t, p.reconcile(t.Context()))
	for name, want := range map[string][]corev1.LoadBalancerIngress{
		"new": {{IP: "10.213.0.65"}}, "old": {{IP: "10.213.0.64"}}, "classed": nil, "internal": nil,
	} {
		got, err := p.client.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, want, got.Status.LoadBalancer.Ingress, name)
	}
}

func TestFreeAddressRunsOut(t *testing.T) {
	_, err := freeAddress("10.213.0.64/31", map[string]bool{"10.213.0.64": true, "10.213.0.65": true})
	require.Error(t, err)
}

func provisionerOf(t *testing.T, objects ...runtime.Object) provisioner {
	t.Helper()
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	p := newProvisioner(node{state: t.TempDir(), balancers: "10.213.0.64/30"}, client, factory)
	require.NoError(t, onChange(factory, func() {}))
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return p
}

func claim(name, class string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
}
