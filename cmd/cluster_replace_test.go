package cmd

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// A Cluster becomes another physical cluster only if the user accepts that one.
func TestClusterReplace(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster, uid, was, other string
		err                      error
		yes                      bool
		dryRun                   string
		accepted                 string
		says, fails              string
		// inMessage means that the next step is part of the message.
		inMessage bool
	}{
		"another cluster": {cluster: "c1", uid: "new", was: "old", yes: true, accepted: "new",
			says: `cluster "c1" may be the physical cluster new instead of old. Create the account of its syncer there:`},
		"no terminal to ask":    {cluster: "c1", uid: "new", was: "old", fails: "there is no terminal; use --yes", inMessage: true},
		"a dry run":             {cluster: "c1", uid: "new", was: "old", dryRun: dryRunClient, says: "would be replaced: the physical cluster new instead of old"},
		"the same cluster":      {cluster: "c1", uid: "old", was: "old", says: `nothing to replace: cluster "c1" is the physical cluster old.`},
		"not seen yet":          {cluster: "c1", uid: "new", says: "the controller has not seen cluster \"c1\" yet"},
		"that of another one":   {cluster: "c1", uid: "new", was: "old", other: "new", yes: true, fails: `cluster "c1" is the physical cluster new, which Cluster c2 is already`},
		"it does not answer":    {cluster: "c1", err: errors.New("connection refused"), was: "old", yes: true, fails: `cluster "c1": which cluster it is: connection refused`},
		"a user without rights": {cluster: "c1", was: "old", yes: true, fails: "which cluster it is, is not known"},
		"not registered":        {cluster: "c3", uid: "new", fails: `the cluster "c3" is not registered yet`},
		"not in the file":       {cluster: "c2", uid: "new", was: "old", fails: `cluster "c2" is not in`},
		"unknown":               {cluster: "c9", uid: "new", fails: `there is no cluster "c9"`},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, f, errs := newClusterSession(t)
			for key, uid := range map[string]string{"root:compute Cluster/c1": tc.was, "root:compute Cluster/c2": tc.other} {
				if uid != "" {
					require.NoError(t, unstructured.SetNestedField(f.objects[key].Object, uid, "status", "uid"))
				}
			}
			o := &clusterAddOptions{env: s.env, setup: *s.flags, name: tc.cluster, yes: tc.yes}
			o.edit.dryRun = dryRunNone
			if tc.dryRun != "" {
				o.edit.dryRun = tc.dryRun
			}
			err := o.accepts(t.Context(), s, c, func(_ context.Context, w v1alpha1.WorkloadCluster) (string, error) {
				require.Equal(t, tc.cluster, w.Name)
				return tc.uid, tc.err
			})
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				require.Equal(t, !tc.inMessage, clierr.Hint(err) != "")
			} else {
				require.NoError(t, err)
				require.Contains(t, errs.String(), tc.says)
			}
			require.Equal(t, tc.accepted, f.objects["root:compute Cluster/c1"].GetAnnotations()[api.AnnotationAcceptCluster])
		})
	}
}

func TestReplaceQuestion(t *testing.T) {
	cl := &api.Cluster{}
	cl.Name, cl.Status.UID = "c1", "old"
	require.Equal(t, `Replace the physical cluster of Cluster "c1", old, by new? What is scheduled to it will be created in the new one, without the data of `+
		"volumes. What runs in the previous cluster stays there, and is not updated any more.", replaceQuestion(cl, "new"))
	cl.Status.Leaves = new(int64(3))
	require.Contains(t, replaceQuestion(cl, "new"), "The 3 objects scheduled to it will be created in the new one")
}
