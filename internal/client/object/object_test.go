package object_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
)

// Only what was seen is deleted: an object that another client has changed or replaced stays.
func TestDelete(t *testing.T) {
	const path = "api/v1/configmaps"
	status := func(s *fakeapi.Server) {
		s.Apply(t, "", path, "{metadata: {name: a, namespace: default}, status: {phase: Ready}}")
	}
	const changed = "ConfigMap/default/a was changed after this run read it, and was not deleted"
	for name, tc := range map[string]struct {
		strict    bool
		meanwhile func(s *fakeapi.Server)
		want      string // in the error
		stays     bool
	}{
		"the one that was seen":           {},
		"unchanged":                       {strict: true},
		"another status":                  {meanwhile: status},
		"another status is a change, too": {strict: true, meanwhile: status, want: changed, stays: true},
		"annotations of kcp": {meanwhile: func(s *fakeapi.Server) {
			s.Apply(t, "", path, `{metadata: {name: a, namespace: default, annotations: {internal.kcp.io/replicate: "true"}}}`)
		}},
		"gone": {meanwhile: func(s *fakeapi.Server) { s.Delete("", path, "default", "a") }},
		"changed": {meanwhile: func(s *fakeapi.Server) {
			s.Apply(t, "", path, "{metadata: {name: a, namespace: default}, data: {key: other}}")
		}, want: changed, stays: true},
		"replaced": {meanwhile: func(s *fakeapi.Server) {
			s.Delete("", path, "default", "a")
			s.Apply(t, "", path, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}")
		}, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakeapi.New(t)
			s.Apply(t, "", path, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}, data: {key: value}}")
			all, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
			require.NoError(t, err)
			client := all.Resource(kind.ConfigMap.GVR()).Namespace("default")
			seen, err := client.Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			if tc.meanwhile != nil {
				tc.meanwhile(s)
			}
			remove := object.Delete
			if tc.strict {
				remove = object.DeleteUnchanged
			}
			err = remove(t.Context(), client, seen, plan.RefOf("c1", seen))
			if tc.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.want)
				require.Equal(t, clierr.Conflict, clierr.Code(err))
			}
			require.Equal(t, tc.stays, s.Get("", path, "default", "a") != nil)
		})
	}
}
