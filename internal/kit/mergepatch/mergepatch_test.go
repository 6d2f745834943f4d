package mergepatch_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
)

type client struct{ sent string }

func (c *client) Patch(_ context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	c.sent = name + " " + string(t) + " " + o.FieldManager + " " + string(data)
	for _, s := range subresources {
		c.sent += " " + s
	}
	return nil, nil
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
