package workspace

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// withClaims returns an APIBinding with the permission claims to accept. These are never more than the setup allows,
// whatever the APIExport requests: the claims of an agent that the APIExport requests; or, if the setup accepts all,
// the claims that the APIExport had when the APIBinding was created. The note describes the other claims that the
// APIExport requests.
func (s *objects) withClaims(ctx context.Context,
	live, o *unstructured.Unstructured) (want *unstructured.Unstructured, note string, err error) {
	mode := o.GetAnnotations()[topology.AnnotationClaims]
	if mode == "" {
		return o, "", nil
	}
	export, err := s.exportOf(ctx, o)
	if err != nil || export == nil {
		return o, "", err
	}
	asked, allowed := kcp.Asked(export), kcp.Accepted(o)
	if mode == topology.AcceptAll {
		if allowed = kcp.Accepted(live); live == nil || live.GetAnnotations()[topology.AnnotationClaims] != mode {
			allowed = asked
		}
	}
	want = o.DeepCopy()
	return want, refused(o, export, kcp.Beyond(asked, allowed)), kcp.SetAccepted(want, kcp.Accept(allowed, asked))
}

// exportOf reads the APIExport of an APIBinding. It is nil if it does not exist, or its workspace does not.
func (s *objects) exportOf(ctx context.Context,
	binding *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	export, _, _ := unstructured.NestedStringMap(binding.Object, "spec", "reference", "export")
	live, err := s.client.Object(ctx,
		plan.Ref{Workspace: export["path"], GroupVersionKind: kcpapi.APIExport.GroupVersionKind, Name: export["name"]})
	if apierrors.IsForbidden(err) { // the workspace does not exist
		return nil, nil
	}
	return live, err
}

// refused tells which claims of an APIExport an APIBinding does not accept, and who added them.
func refused(binding, export *unstructured.Unstructured, claims []kcp.Claim) string {
	if len(claims) == 0 {
		return ""
	}
	path, _, _ := unstructured.NestedString(binding.Object, "spec", "reference", "export", "path")
	var texts []string
	for _, c := range claims {
		texts = append(texts, kcp.Describe(export, c))
	}
	next := "they do not follow from the agent in the setup file, so find out which client added them"
	if binding.GetAnnotations()[topology.AnnotationClaims] == topology.AcceptAll {
		next = "they are newer than the APIBinding; to accept them, list claims in the setup file instead " +
			"of acceptAllClaims"
	}
	return fmt.Sprintf("these claims of APIExport %s in %s are not accepted: %s; %s", export.GetName(), path,
		gather.Few(texts, gather.Listed, "; "), next)
}
