package facts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// Admit returns an error with all pods that the namespace would not admit, and why. It creates each in a dry run.
func (c *Cluster) Admit(ctx context.Context, objects []render.Object) error {
	cl := c.client
	if err := cl.Connect(ctx); err != nil {
		return err
	}
	ns, err := cl.ReadNamespace(ctx)
	if err != nil {
		return err
	}
	if ns == nil {
		return fmt.Errorf("%w: Namespace/%s does not exist yet (%s)", check.ErrUnknown, cl.Namespace, cl.Where())
	}
	accounts := serviceAccounts(objects)
	reasons := make([]string, len(objects))
	err = parallel.Each(ctx, parallel.Indices(objects), func(ctx context.Context, i int) (err error) {
		reasons[i], err = admit(ctx, cl, objects[i].Unstructured, accounts)
		return err
	})
	if err != nil {
		return err
	}
	owners := map[string][]string{} // by reason: similar pods are refused for the same one
	for i, reason := range reasons {
		if reason != "" {
			owners[reason] = append(owners[reason], objects[i].GetKind()+"/"+objects[i].GetName())
		}
	}
	var errs []error
	for _, reason := range slices.Sorted(maps.Keys(owners)) {
		errs = append(errs, clierr.New(clierr.Failed, "", "Namespace/%s does not admit pods of %s: %s",
			cl.Namespace, strings.Join(owners[reason], ", "), reason))
	}
	return errors.Join(errs...)
}

// serviceAccounts returns the names of the ServiceAccounts among objects.
func serviceAccounts(objects []render.Object) []string {
	var out []string
	for _, o := range objects {
		if o.GetKind() == "ServiceAccount" {
			out = append(out, o.GetName())
		}
	}
	return out
}

// admit returns why a pod of a workload would not be created: nothing if it would be, or if the object has no pods. The
// ServiceAccounts of the setup may not exist yet, so its pods are tried with the one that every namespace has.
func admit(ctx context.Context, cl *cluster.Client, o *unstructured.Unstructured, accounts []string) (string, error) {
	template, ok, _ := unstructured.NestedMap(o.Object, "spec", "template")
	if !ok {
		return "", nil
	}
	if err := addClaims(o, template); err != nil {
		return "", err
	}
	if name, _, _ := unstructured.NestedString(template, "spec", "serviceAccountName"); slices.Contains(accounts, name) {
		unstructured.RemoveNestedField(template, "spec", "serviceAccountName")
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetGroupVersionKind(kind.Pod.GroupVersionKind)
	pod.SetName("")
	pod.SetGenerateName(o.GetName() + "-")
	_, err := cl.Resource(kind.Pods).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return "", nil
	case cluster.IsDenied(err):
		return "", fmt.Errorf("%w: the user may not create pods, not even in a dry run (%s)",
			check.ErrUnknown, cl.Where())
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return "", nil // quotas are checked for all pods together
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return withoutPodName(err.Error()), nil
	}
	return "", cl.Explain(err, "create a pod of %s/%s in a dry run", o.GetKind(), o.GetName())
}

// addClaims adds the volumes of a StatefulSet's claims to its pods, as its controller does.
func addClaims(o *unstructured.Unstructured, template map[string]any) error {
	claims, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	volumes, _, _ := unstructured.NestedSlice(template, "spec", "volumes")
	for _, c := range claims {
		if m, ok := c.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(m, "metadata", "name")
			volumes = append(volumes, map[string]any{
				"name": name, "persistentVolumeClaim": map[string]any{"claimName": name + "-" + o.GetName() + "-0"},
			})
		}
	}
	return unstructured.SetNestedSlice(template, volumes, "spec", "volumes")
}

// withoutPodName is the part of a message after the pod's name, which is generated: pods "x" is forbidden: violates ...
func withoutPodName(message string) string {
	for _, separator := range []string{" is forbidden: ", " is invalid: "} {
		if _, after, ok := strings.Cut(message, separator); ok {
			return after
		}
	}
	return message
}
