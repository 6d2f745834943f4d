package kube_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/lease"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
)

const leasesPath = "apis/coordination.k8s.io/v1/leases"

func TestLead(t *testing.T) {
	s := fakeapi.New(t)
	lead := kube.Lead{
		Config: &rest.Config{Host: s.URL + "/clusters/root:compute"}, Namespace: "default", Name: "controller",
		Holder: kube.Holder{Host: "here", PID: 1, User: "ann"}, Now: time.Now, Notify: t.Logf,
	}
	holder := func() string {
		h, _, _ := unstructured.NestedString(s.Get("root:compute", leasesPath, "default", "controller").Object, "spec", "holderIdentity")
		return h
	}
	ran := false
	require.NoError(t, lead.Run(t.Context(), func(context.Context) error {
		ran = true
		require.Equal(t, "here/1@/ann", holder())
		return nil
	}))
	require.True(t, ran)
	require.Empty(t, holder(), "the Lease is given back")

	calls := 0
	require.NoError(t, lead.Run(t.Context(), func(ctx context.Context) error {
		if calls++; calls == 2 {
			require.Equal(t, "here/1@/ann", holder())
			return nil
		}
		s.Apply(t, "root:compute", leasesPath, `{kind: Lease, metadata: {name: controller, namespace: default}, spec: {holderIdentity: there/2@/bob}}`)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), lease.ErrLost, "another process has taken it")
		s.Delete("root:compute", leasesPath, "default", "controller")
		return ctx.Err()
	}))
	require.Equal(t, 2, calls, "it works again")
}

// A server is not one of a kubeconfig of the user: kubectl has no context for it.
func TestLeadWithoutAServer(t *testing.T) {
	s := fakeapi.New(t)
	lead := kube.Lead{
		Config: &rest.Config{Host: s.URL + "/clusters/root:compute"}, Namespace: "default", Name: "controller",
		Holder: kube.Holder{Host: "here", PID: 1, User: "ann"}, Now: time.Now, Notify: t.Logf,
	}
	run := func() error { return lead.Run(t.Context(), func(context.Context) error { return nil }) }
	s.Refuse(func(*http.Request) (int, string) { return http.StatusUnauthorized, "no" })
	err := run()
	require.ErrorContains(t, err, "the API server does not accept the credentials of "+s.URL+"/clusters/root:compute, namespace default: ")
	require.Equal(t, "check that the credentials for it are valid and have not expired", clierr.Hint(err))

	s.Close()
	err = run()
	require.ErrorContains(t, err, "the API server "+s.URL+"/clusters/root:compute, namespace default does not answer: ")
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "context")
	require.Equal(t, "check that the server is running and reachable from here", clierr.Hint(err))
}
