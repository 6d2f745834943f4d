package object_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
)

// Only what kcpctl has applied is applied again.
func TestOwned(t *testing.T) {
	live := &unstructured.Unstructured{Object: fakeapi.Object(`
apiVersion: v1
kind: Service
metadata: {name: a, namespace: default, uid: abc, labels: {ours: x, theirs: y}}
spec: {type: ClusterIP, clusterIP: 10.0.0.1, selector: {a: b}, ports: [{port: 80}]}
status: {loadBalancer: {}}`)}
	require.Nil(t, object.Owned(live))
	require.Nil(t, object.Owned(nil))
	entry := func(manager, fields string, operation metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
	}
	live.SetManagedFields([]metav1.ManagedFieldsEntry{
		entry("kcpctl", `{"f:spec":{"f:clusterIP":{}}}`, metav1.ManagedFieldsOperationUpdate),
		entry("someone", `{"f:spec":{"f:clusterIP":{}}}`, metav1.ManagedFieldsOperationApply),
	})
	require.Nil(t, object.Owned(live))
	live.SetManagedFields(append(live.GetManagedFields(), entry("kcpctl", `{"f:metadata":{"f:labels":{".":{},"f:ours":{}}},
		"f:spec":{"f:selector":{},"f:ports":{"k:{\"port\":80}":{".":{},"f:port":{}}},"f:gone":{}}}`, metav1.ManagedFieldsOperationApply)))
	require.Equal(t, fakeapi.Object(`
apiVersion: v1
kind: Service
metadata: {name: a, namespace: default, labels: {ours: x}}
spec: {selector: {a: b}, ports: [{port: 80}]}`), object.Owned(live).Object)
}
