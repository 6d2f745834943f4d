package deploy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A Service of kcp-operator is taken over with the authorities and keys of its installation only.
func TestServicesAreTakenOverWithTheirAuthorities(t *testing.T) {
	const adopting = runtest.Minimal + "spec: {rootShard: {aliases: [root-kcp]}, takeOver: {rootShard: root}}\n"
	take := func(w *world, kind, name string, labels map[string]string) {
		ref := plan.Ref{
			Cluster: "default", GroupVersionKind: schema.GroupVersionKind{Version: "v1",
				Kind: kind}, Namespace: "kcp", Name: name,
		}
		w.Runtime.Add(plan.Item{Ref: ref, Component: "root-shard"})
		w.Runtime.Edit(ref.String(), func(o *unstructured.Unstructured) {
			o.SetLabels(labels)
			if labels == nil {
				o.SetOwnerReferences([]metav1.OwnerReference{
					{APIVersion: "deploy.operator.kcp.io/v1alpha1", Kind: "CompiledRootShard", Name: "root"},
				})
			}
		})
	}
	for name, tc := range map[string]struct {
		change func(w *world, ours *pki.State)
		want   string
	}{
		"the same": {func(*world, *pki.State) {}, ""},
		"a Secret of the same name": {func(w *world, _ *pki.State) {
			take(w, "Secret", "demo-root-server", map[string]string{"operator.kcp.io/rootshard": "demo"})
		}, "Secret/kcp/demo-root-server is kcp-operator's, which still needs it"},
		"none": {func(w *world, _ *pki.State) { w.Runtime.OtherRun(&pki.State{}) },
			"Service root-kcp is kcp-operator's, and memory does not hold the PKI of its installation"},
		"another CA": {func(w *world, ours *pki.State) {
			ours.CAs[topology.ClientCA] = pkitest.Issue(t, topologytest.Build(t, runtest.Minimal),
				time.Now()).CAs[topology.ClientCA]
			w.Runtime.OtherRun(ours)
		}, "client CA: it does not have sha256:"},
		"not readable": {func(w *world, _ *pki.State) {
			w.Runtime.On("Inherited",
				func() error { return errors.New("forbidden") })
		}, "cannot be compared; nothing was changed: forbidden"},
		"those of another RootShard": {func(w *world, _ *pki.State) {
			w.Runtime.On("Belong",
				func() error { return errors.New("RootShard a") })
		}, "RootShard a"},
		"a release that skips one": {func(w *world, _ *pki.State) { w.Runtime.PredecessorRelease = "v0.30.3" },
			"root-shard takes over from servers of kcp-operator, which run kcp v0.30.3: from v0.30.3 to v0.32.3 skips"},
		"an earlier release": {func(w *world, _ *pki.State) { w.Runtime.PredecessorRelease = "v0.33.0" },
			"root-shard takes over from servers of kcp-operator, which run kcp v0.33.0: v0.32.3 is older than v0.33.0"},
		"a release that cannot be read": {func(w *world, _ *pki.State) {
			w.Runtime.On("InheritedRelease", func() error { return errors.New("forbidden") })
		}, "forbidden"},
		"the next release": {func(w *world, _ *pki.State) { w.Runtime.PredecessorRelease = "v0.31.6" }, ""},
		"a release that skips one, with --allow": {func(w *world, _ *pki.State) {
			w.Runtime.PredecessorRelease = "v0.30.3"
			w.Up.Options.AllowReleaseChange = true
		}, ""},
		"others, with --replace-authorities": {func(w *world,
			_ *pki.State) {
			w.Runtime.OtherRun(&pki.State{})
			w.Up.Options.ReplaceAuthorities = true
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
				top := topologytest.Build(t, adopting)
				w = newWorld(t, top, fakeruntime.New(t, top))
				theirs := pkitest.Issue(t, top, time.Now()).Authorities()
				ours := *theirs
				ours.CAs = map[topology.CA]pki.Authority{}
				for ca, a := range theirs.CAs {
					ours.CAs[ca] = a
				}
				w.Runtime.Predecessor = theirs
				w.Runtime.OtherRun(&ours)
				take(w, "Service", "root-kcp", nil)
				w.Up.Options.SkipCanary = true
				tc.change(w, &ours)
				_, err := w.Run(t)
				if tc.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, tc.want)
				require.Empty(t, w.Runtime.Calls(), "nothing was changed")
				switch {
				case strings.Contains(name, "release that cannot"):
				case strings.Contains(name, "release"):
					require.Contains(t, clierr.Hint(err), "to "+w.Runtime.PredecessorRelease+" or the next minor release")
					require.Contains(t, clierr.Hint(err), "--allow release-change")
				case !strings.Contains(name, "another RootShard") && !strings.Contains(name, "same name"):
					require.Contains(t, clierr.Hint(err),
						"kcpctl certs import --from-cluster; to use different authorities, pass --replace-authorities")
				}
			})
		})
	}
}
