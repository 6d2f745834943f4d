package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// Use is a Secret or a ConfigMap that a setup does not make itself, and what uses it.
type Use struct {
	Kind kind.Kind
	Name string
	// By is the object that uses it, and its field.
	By string
}

// The API of cert-manager's certificates, and its annotation of their Secrets.
const (
	groupCertManager      = "cert-manager.io"
	annotationCertificate = "cert-manager.io/certificate-name"
)

// RefuseUsed fails if the garbage collector would delete a Secret or a ConfigMap of the setup together with the objects
// of kcp-operator, or if the certificate in it would no longer be renewed.
func (i *Installation) RefuseUsed(ctx context.Context, uses []Use) error {
	seen := map[string]bool{}
	uses = slices.DeleteFunc(slices.Clone(uses), func(u Use) bool {
		again := seen[u.Kind.Kind+u.Name]
		seen[u.Kind.Kind+u.Name] = true
		return again
	})
	problems := make([]error, len(uses))
	err := parallel.Each(ctx, parallel.Indices(uses), func(ctx context.Context, n int) error {
		o, err := i.cl.Get(ctx, uses[n].Kind, uses[n].Name)
		if o == nil || err != nil {
			return err
		}
		why, err := i.depends(ctx, o)
		if why != "" {
			problems[n] = fmt.Errorf("%s/%s/%s, used by %s: %s", uses[n].Kind.Kind, i.cl.Namespace, uses[n].Name,
				uses[n].By, why)
		}
		return err
	})
	if err == nil && errors.Join(problems...) != nil {
		err = clierr.New(clierr.Failed,
			"copy each of them to an object of your own, name that in the setup file, and run kcpctl up",
			"the setup uses objects that would go with those of kcp-operator (%s), nothing was "+
				"removed:\n%w", i.cl.Where(), errors.Join(problems...))
	}
	return err
}

// depends returns why an object does not outlive the objects of kcp-operator. It is empty if the object does.
func (i *Installation) depends(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	if owners := own(o); len(owners) > 0 {
		return fmt.Sprintf("the garbage collector deletes it together with %s %s", owners[0].Kind, owners[0].Name), nil
	}
	certificate := o.GetAnnotations()[annotationCertificate]
	for _, r := range o.GetOwnerReferences() {
		if strings.HasPrefix(r.APIVersion, groupCertManager+"/") && r.Kind == "Certificate" {
			certificate = r.Name
		}
	}
	if certificate == "" {
		return "", nil
	}
	gvk := schema.GroupVersionKind{Group: groupCertManager, Version: "v1", Kind: "Certificate"}
	c, err := i.cl.ReadObject(ctx, gvk, i.cl.Namespace, certificate)
	if c == nil || err != nil || len(own(c)) == 0 {
		return "", err
	}
	made := slices.ContainsFunc(o.GetOwnerReferences(),
		func(r metav1.OwnerReference) bool { return r.UID == c.GetUID() })
	if made {
		return "the garbage collector deletes it together with Certificate " + certificate, nil
	}
	return fmt.Sprintf("Certificate %s, which is deleted together with the objects of %s, renews it", certificate,
		operator.ManagedBy), nil
}
