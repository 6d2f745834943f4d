package mergepatch_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
)

type client struct {
	sent string
	live *unstructured.Unstructured
	err  error
}

func (c *client) Patch(_ context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	c.sent = name + " " + string(t) + " " + o.FieldManager + " " + string(data)
	for _, s := range subresources {
		c.sent += " " + s
	}
	return c.live, c.err
}

// A patch is for the object with the UID, and the caller's patch is not changed.
func TestSend(t *testing.T) {
	c := &client{}
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": nil}}}
	_, err := mergepatch.Send(t.Context(), c, "me", "web", "1234", patch, "status")
	require.NoError(t, err)
	const kind = "application/merge-patch+json"
	require.Equal(t, `web `+kind+` me {"metadata":{"labels":{"a":null},"uid":"1234"}} status`, c.sent)
	require.Equal(t, map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": nil}}}, patch)

	_, err = mergepatch.Send(t.Context(), c, "me", "web", "", map[string]any{"spec": nil})
	require.NoError(t, err)
	require.Equal(t, `web `+kind+` me {"spec":null}`, c.sent)
	_, err = mergepatch.Send(t.Context(), c, "me", "web", "1", map[string]any{"spec": nil})
	require.NoError(t, err)
	require.Equal(t, `web `+kind+` me {"metadata":{"uid":"1"},"spec":null}`, c.sent)
	_, err = mergepatch.Send(t.Context(), c, "me", "web", "", map[string]any{"spec": make(chan int)})
	require.ErrorContains(t, err, "patch web: ")
}

// API servers refuse a patch with another UID as a change of the field, and ignore it in the status of a custom resource.
func TestSendToAnotherObject(t *testing.T) {
	other := &unstructured.Unstructured{Object: map[string]any{}}
	other.SetUID("5678")
	change := field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "1234", "field is immutable")}
	mistake := apierrors.NewInvalid(schema.GroupKind{Kind: "Web"}, "web", field.ErrorList{field.Required(field.NewPath("spec"), "")})
	for name, tc := range map[string]struct {
		client   client
		uid      types.UID
		conflict bool
	}{
		"a refused UID":  {client{err: apierrors.NewInvalid(schema.GroupKind{Kind: "Web"}, "web", change)}, "1234", true},
		"an ignored UID": {client{live: other}, "1234", true},
		"the object":     {client{live: other}, "5678", false},
		"any object":     {client{live: other}, "", false},
		"something else": {client{err: mistake}, "1234", false},
		"no answer":      {client{err: errors.New("no route to host")}, "1234", false},
	} {
		t.Run(name, func(t *testing.T) {
			live, err := mergepatch.Send(t.Context(), &tc.client, "me", "web", tc.uid, map[string]any{"status": nil}, "status")
			require.Equal(t, tc.conflict, apierrors.IsConflict(err), "%v", err)
			if !tc.conflict {
				require.Equal(t, tc.client.live, live)
				require.Equal(t, tc.client.err, err)
			}
		})
	}
}
