package cmd

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/workload/apis/negotiate"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// negotiationWorld is a kcp with published APIs, and clusters that serve widgets with these fields of spec, by name.
type negotiationWorld struct {
	*fakeCompute
	n         *negotiation
	out, errs fmt.Stringer
	fields    map[string]string
	objects   []*unstructured.Unstructured
	// deaf means that the controller does not answer.
	deaf bool
}

// widgetsOf is what a cluster serves.
func widgetsOf(t *testing.T, name, fields string) negotiate.Cluster {
	s := &apiextensionsv1.JSONSchemaProps{}
	require.NoError(t, yaml.UnmarshalStrict([]byte("{type: object, properties: {spec: {type: object, properties: {"+fields+"}}}}"), s))
	return negotiate.Cluster{Name: name, APIs: []negotiate.API{{
		Group: "example.com", Version: "v1", Schema: s, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
	}}}
}

// newNegotiation publishes the schema of c1, and adds clusters to the setup file and to kcp.
func newNegotiation(t *testing.T, fields map[string]string) *negotiationWorld {
	t.Helper()
	c, f := newCompute(t)
	env, out, errs := fakeEnv()
	w := &negotiationWorld{fakeCompute: f, out: out, errs: errs, fields: fields}
	w.n = &negotiation{
		compute: c, env: env, flags: &setupFlags{file: defaultFile}, setup: "demo", timeout: time.Minute,
		pull: func(_ context.Context, name string, _ []schema.GroupResource) (negotiate.Cluster, error) {
			if w.fields[name] == "" {
				return negotiate.Cluster{}, fmt.Errorf("cluster %q does not answer", name)
			}
			return widgetsOf(t, name, w.fields[name]), nil
		},
		each: func(_ context.Context, gr schema.GroupResource, do func(*unstructured.Unstructured)) error {
			require.Equal(t, widgets, gr)
			for _, o := range w.objects {
				do(o)
			}
			return nil
		},
	}
	delete(f.objects, "root:compute Cluster/c2")
	for name := range fields {
		w.n.inFile = append(w.n.inFile, name)
		w.cluster(t, name, "Push")
	}
	w.negotiate(t, negotiate.Input{Clusters: []negotiate.Cluster{widgetsOf(t, "c1", fields["c1"])}})
	f.changed = func(o *unstructured.Unstructured) { w.fulfil(t, o) }
	return w
}

func (w *negotiationWorld) cluster(t *testing.T, name, mode string) {
	w.put(t, "root:compute", fmt.Sprintf("{apiVersion: workloads.kcp.dev/v1alpha1, kind: Cluster, metadata: {name: %s, annotations: {}}, spec: {syncMode: %s}}", name, mode))
}

// negotiate publishes the result of a negotiation.
func (w *negotiationWorld) negotiate(t *testing.T, in negotiate.Input) {
	in.APIs = []schema.GroupResource{widgets}
	out, err := negotiate.Negotiate(in)
	require.NoError(t, err)
	for _, o := range append(out.Schemas, out.Export) {
		w.fakeCompute.objects[keyOf(kcp.Place{Workspace: "root:compute", GroupVersionKind: o.GroupVersionKind(), Name: o.GetName()})] = o
	}
}

// fulfil does what the controller does with a request.
func (w *negotiationWorld) fulfil(t *testing.T, o *unstructured.Unstructured) {
	notes := o.GetAnnotations()
	narrow, widen := notes["workloads.kcp.dev/accept-schema"], notes["workloads.kcp.dev/widen-schema"]
	if w.deaf || narrow+widen == "" {
		return
	}
	in, err := w.n.published(t.Context())
	require.NoError(t, err)
	for name := range w.fields {
		in.Clusters = append(in.Clusters, widgetsOf(t, name, w.fields[name]))
	}
	if narrow != "" {
		in.Narrow = map[string][]schema.GroupResource{o.GetName(): {schema.ParseGroupResource(narrow)}}
	} else {
		in.Widen = []schema.GroupResource{schema.ParseGroupResource(widen)}
	}
	w.negotiate(t, in)
	o.SetAnnotations(nil)
}

// object adds a widget to a workspace.
func (w *negotiationWorld) object(t *testing.T, cluster, text string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
	o.SetAnnotations(map[string]string{"kcp.io/cluster": cluster})
	w.objects = append(w.objects, o)
	return o
}

const (
	abc = "a: {type: string}, b: {type: array, items: {type: object, properties: {x: {type: string}, z: {type: string}}}}, c: {type: string}"
	ab  = "a: {type: string}, b: {type: array, items: {type: object, properties: {x: {type: string}}}}"
	abd = ab + ", d: {type: string}"
)

func TestNegotiatePreview(t *testing.T) {
	w := newNegotiation(t, map[string]string{"c1": abc, "c2": ab, "c3": "a: {type: integer}", "c4": abc + ", d: {type: string}"})
	w.put(t, "root:compute", `
apiVersion: workloads.kcp.dev/v1alpha1
kind: Cluster
metadata: {name: c5}
spec: {syncMode: Pull}
status: {apis: [{group: example.com, resource: widgets, version: v1, state: Incompatible, message: "spec.a: the field is missing; and 7 more"}]}`)
	o := &workloadsNegotiateOptions{env: w.n.env}
	require.NoError(t, o.negotiate(t.Context(), w.n))
	require.Equal(t, `API                   CLUSTER   REQUEST       FIELD         DIFFERENCE
widgets.example.com   c2        --narrow c2   spec.b[*].z   the field is missing
widgets.example.com   c2        --narrow c2   spec.c        the field is missing
widgets.example.com   c3        <none>        <none>        spec.a: the types differ: string, integer
widgets.example.com   c5        <none>        <none>        spec.a: the field is missing; and 7 more
`, w.out.String())
	require.Contains(t, w.errs.String(), `cluster "c5" has at most three differences for each API here: cluster "c5" is not in kcp.yaml, so kcpctl cannot read its schemas`)

	w = newNegotiation(t, map[string]string{"c1": ab})
	w.fields["c1"] = abd
	o = &workloadsNegotiateOptions{env: w.n.env}
	require.NoError(t, o.negotiate(t.Context(), w.n))
	require.Contains(t, w.out.String(), "widgets.example.com   <none>    --widen   spec.d   the field is missing\n")

	w = newNegotiation(t, map[string]string{"c1": ab})
	o = &workloadsNegotiateOptions{env: w.n.env, output: outputJSON}
	require.NoError(t, o.negotiate(t.Context(), w.n))
	require.Contains(t, w.out.String(), `"items": []`)
}

// What is listed is what the schema loses, and the next time there is nothing to do.
func TestNegotiateNarrow(t *testing.T) {
	w := newNegotiation(t, map[string]string{"c1": abc, "c2": ab})
	w.object(t, "q1", "{metadata: {name: one}, spec: {a: q, b: [{x: q}, {z: q}], c: q}}")
	w.object(t, "q1", "{metadata: {name: two}, spec: {c: q}}")
	w.object(t, "q2", "{metadata: {name: one}, spec: {c: q}}")
	w.object(t, "q2", "{metadata: {name: two}, spec: {a: q, b: [{x: q}]}}")
	leaf := w.object(t, "q1", "{metadata: {name: one--c1, ownerReferences: [{name: one}]}, spec: {c: q}}")
	leaf.SetAnnotations(map[string]string{"kcp.io/cluster": "q1", "workloads.kcp.dev/name": "one"})
	w.put(t, "q1", "{apiVersion: core.kcp.io/v1alpha1, kind: LogicalCluster, metadata: {name: cluster, annotations: {kcp.io/path: 'root:team'}}}")

	o := &workloadsNegotiateOptions{env: w.n.env, narrow: "c2", yes: true}
	require.NoError(t, o.negotiate(t.Context(), w.n))
	require.Equal(t, `API                   FIELD         DIFFERENCE             OBJECTS   WORKSPACES
widgets.example.com   spec.b[*].z   the field is missing   1         root:team (1)
widgets.example.com   spec.c        the field is missing   3         root:team (2), q2 (1)
`, w.out.String())
	require.Equal(t, "the published schema of widgets.example.com permits cluster \"c2\" to serve it.\n", w.errs.String())

	require.NoError(t, o.negotiate(t.Context(), w.n))
	require.Contains(t, w.errs.String(), "nothing changes: cluster \"c2\" accepts every object of the published schemas.\n")
}

func TestNegotiateAsks(t *testing.T) {
	w := newNegotiation(t, map[string]string{"c1": abc, "c2": ab})
	w.object(t, "q1", "{metadata: {name: one}, spec: {c: q}}")
	o := &workloadsNegotiateOptions{env: w.n.env, narrow: "c2"}
	require.ErrorContains(t, o.negotiate(t.Context(), w.n), "there is no terminal; use --yes")
	streams := w.n.env.Streams
	streams.In, streams.InTTY, streams.Err.TTY = strings.NewReader("no\n"), true, true
	require.NoError(t, o.negotiate(t.Context(), w.n))
	require.Contains(t, w.errs.String(), "Make the published schemas of widgets.example.com narrower, for cluster")
	require.Contains(t, w.errs.String(), "The fields of 1 object in 1 workspace are dropped at the next write, or it is refused. This cannot be undone.")
	r := &schemaRequest{narrow: true, cluster: "c2", changes: []negotiate.Change{{API: widgets}}}
	require.Contains(t, r.question(), "No object has these fields.")
	r.narrow = false
	require.Equal(t, "Publish these fields of widgets.example.com in all workspaces?", r.question())
}

// Two operators cannot replace the request of each other, and a change of the status does not prevent a request.
func TestNegotiateRequestsAreNotReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		other map[string]string
		want  string
	}{
		"the status has changed":     {nil, ""},
		"another operator was first": {map[string]string{"workloads.kcp.dev/accept-schema": "services"}, "has a request for services that the controller has not fulfilled"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNegotiation(t, map[string]string{"c1": abc, "c2": ab})
			live := w.fakeCompute.objects["root:compute Cluster/c2"]
			live.SetResourceVersion("1")
			w.patching = func() {
				w.patching = nil
				live.SetResourceVersion("2")
				live.SetAnnotations(tc.other)
			}
			o := &workloadsNegotiateOptions{env: w.n.env, narrow: "c2", yes: true}
			err := o.negotiate(t.Context(), w.n)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, clierr.Conflict, clierr.Code(err))
			require.Equal(t, tc.other, live.GetAnnotations(), "it stays")
		})
	}
}

func TestNegotiateWiden(t *testing.T) {
	w := newNegotiation(t, map[string]string{"c1": ab, "c2": ab})
	w.fields["c1"], w.fields["c2"] = abd, abd+", e: {type: string}"
	o := &workloadsNegotiateOptions{env: w.n.env, widen: true, yes: true, output: "jsonpath={.items[*].path} {.items[*].request}"}
	require.NoError(t, o.negotiate(t.Context(), w.n))
	require.Equal(t, "spec.d Widen", strings.TrimSpace(w.out.String()))
	require.Contains(t, w.errs.String(), "the published schema of widgets.example.com has 1 difference less to those of the clusters.\n")
}

func TestNegotiateFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		o          workloadsNegotiateOptions
		change     func(t *testing.T, w *negotiationWorld)
		code       int
		want, hint string
	}{
		"unknown cluster": {o: workloadsNegotiateOptions{narrow: "c22"}, code: clierr.BadInput, want: `there is no cluster "c22"`, hint: "did you mean c2?"},
		"unknown API": {
			o: workloadsNegotiateOptions{narrow: "c2", apis: []schema.GroupResource{{Resource: "widgets"}}}, code: clierr.BadInput,
			want: `there is no published API "widgets"`, hint: "widgets.example.com",
		},
		"not in the file": {
			o: workloadsNegotiateOptions{widen: true}, change: func(t *testing.T, w *negotiationWorld) { w.cluster(t, "c3", "Pull") },
			code: clierr.BadInput, want: `cluster "c3" is not in kcp.yaml`, hint: "add it to the setup file",
		},
		"unreachable": {
			o: workloadsNegotiateOptions{narrow: "c2"}, change: func(_ *testing.T, w *negotiationWorld) { w.fields["c2"] = "" },
			code: clierr.Failed, want: `cluster "c2" does not answer`,
		},
		"other types": {
			o: workloadsNegotiateOptions{narrow: "c2"}, change: func(_ *testing.T, w *negotiationWorld) { w.fields["c2"] = "a: {type: integer}" },
			code: clierr.Failed, want: "widgets.example.com: spec.a: the types differ: string, integer", hint: "change the APIs of the cluster",
		},
		"would become narrower": {
			o: workloadsNegotiateOptions{widen: true}, code: clierr.Failed,
			want: "the schemas cannot become wider:\nwidgets.example.com: the common schema of the clusters is narrower than the published one",
			hint: "workloads negotiate",
		},
		"objects cannot be listed": {
			o: workloadsNegotiateOptions{narrow: "c2", yes: true}, code: clierr.Failed, want: "count the objects of widgets.example.com: shard/alpha does not answer",
			change: func(_ *testing.T, w *negotiationWorld) {
				w.n.each = func(context.Context, schema.GroupResource, func(*unstructured.Unstructured)) error {
					return fmt.Errorf("shard/alpha does not answer")
				}
			},
		},
		"another request": {
			o: workloadsNegotiateOptions{narrow: "c2", yes: true}, code: clierr.Conflict, want: "has a request for services that the controller has not fulfilled",
			hint: "kubectl annotate clusters.workloads.kcp.dev c2 workloads.kcp.dev/accept-schema-",
			change: func(_ *testing.T, w *negotiationWorld) {
				w.fakeCompute.objects["root:compute Cluster/c2"].SetAnnotations(map[string]string{"workloads.kcp.dev/accept-schema": "services"})
			},
		},
		"no controller": {
			o: workloadsNegotiateOptions{narrow: "c2", yes: true}, change: func(_ *testing.T, w *negotiationWorld) { w.deaf = true },
			code: clierr.NotReady, want: "the controller has not changed the schemas after 1m0s; the request is withdrawn", hint: "logs workloads/controller",
		},
		"nothing is published": {
			code: clierr.NotReady, want: "APIExport kubernetes in root:compute does not exist", hint: "status",
			change: func(_ *testing.T, w *negotiationWorld) {
				delete(w.fakeCompute.objects, "root:compute APIExport/kubernetes")
			},
		},
		"the cluster changes in the meantime": {
			o: workloadsNegotiateOptions{narrow: "c2", yes: true}, code: clierr.Failed, want: "widgets.example.com has also changed: spec.a: the field is missing",
			hint: "in the meantime",
			change: func(t *testing.T, w *negotiationWorld) {
				w.changed = func(o *unstructured.Unstructured) {
					w.fields["c2"] = "e: {type: string}, b: {type: array, items: {type: object, properties: {x: {type: string}}}}"
					w.fulfil(t, o)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newNegotiation(t, map[string]string{"c1": abc, "c2": ab})
				if tc.change != nil {
					tc.change(t, w)
				}
				tc.o.env = w.n.env
				err := tc.o.negotiate(t.Context(), w.n)
				require.ErrorContains(t, err, tc.want)
				require.Contains(t, clierr.Hint(err), tc.hint)
				require.Equal(t, tc.code, clierr.Code(err))
				if w.deaf {
					require.Empty(t, w.fakeCompute.objects["root:compute Cluster/c2"].GetAnnotations())
				}
			})
		})
	}
}

func TestClusterAddAcceptsTheSchema(t *testing.T) {
	w := newNegotiation(t, map[string]string{"c1": abc, "c2": ab})
	o := &clusterAddOptions{env: w.n.env, name: "c2", yes: true}
	require.NoError(t, o.accept(t.Context(), w.n))
	require.Regexp(t, `widgets.example.com +spec.c +the field is missing +0 +<none>\n`, w.errs.String())
	require.Contains(t, w.errs.String(), `permits cluster "c2" to serve it`)
	require.Empty(t, w.out.String(), "stdout may have events")
	require.NoError(t, o.accept(t.Context(), w.n), "it needs nothing")

	o = &clusterAddOptions{env: w.n.env, name: "c3", mode: modeNone, acceptSchema: true, setup: *w.n.flags}
	o.edit.dryRun = dryRunNone
	err := o.run(t.Context())
	require.ErrorContains(t, err, "--accept-schema cannot be used with --mode none")
	require.Equal(t, clierr.BadInput, clierr.Code(err))
}

// The APIs of a cluster are read with its kubeconfig in the setup file.
func TestNegotiationReadsClusters(t *testing.T) {
	server := fakeapi.New(t)
	server.Serve("/version", "gitVersion: v1.36.3")
	server.Serve("/apis", `groups: [{name: apps, versions: [{version: v1}], preferredVersion: {version: v1}}]`)
	server.Serve("/apis/apps/v1", `resources: [{name: deployments, kind: Deployment, namespaced: true}]`)
	server.Serve("/api/v1", `resources: []`)
	server.Serve("/api/v1/namespaces/kube-system", `{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, uid: one}}`)
	server.Serve("/openapi/v3", `paths: {apis/apps/v1: {serverRelativeURL: "/openapi?hash=1"}}`)
	server.Serve("/openapi?hash=1", `components: {schemas: {Deployment: {type: object, x-kubernetes-group-version-kind: [{group: apps, version: v1, kind: Deployment}], properties: {spec: {type: object}}}}}`)
	dir := t.TempDir()
	kubeconfig, file := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "kcp.yaml")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(strings.ReplaceAll(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
  clusters: [{name: a, cluster: {server: "URL"}}], users: [{name: a, user: {token: of-the-user}}]}`, "URL", server.URL)), 0o600))
	require.NoError(t, os.WriteFile(file, []byte(`apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec: {external: {hostname: kcp.example.com}, workloads: {apis: [deployments.apps], clusters: [{name: c1, kubeconfig: `+kubeconfig+`}]}}
`), 0o600))
	loaded, err := setup.Load(file, nil)
	require.NoError(t, err)
	env, _, _ := fakeEnv()
	s, err := (&session{env: env, flags: &setupFlags{file: file}, reporter: &reporter{env: env}}).with(loaded)
	require.NoError(t, err)
	n := s.negotiation(nil, time.Minute)
	for range 2 { // the second time without a request
		own, err := n.pull(t.Context(), "c1", []schema.GroupResource{{Group: "apps", Resource: "deployments"}, {Resource: "services"}})
		require.NoError(t, err)
		require.Len(t, own.APIs, 1)
		require.Equal(t, "Deployment", own.APIs[0].Names.Kind)
		require.NotEmpty(t, own.Problems[schema.GroupResource{Resource: "services"}])
		server.Close()
	}
	require.Equal(t, []string{"c1"}, n.inFile)
}

// Objects are listed in the virtual workspaces of all shards with workspaces that use the APIs.
func TestNegotiationListsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _, _ := newClusterSession(t)
		rt := bringUp(t)
		openAs(s.env, rt)
		compute := kcpapi.Workspace.New("compute")
		compute.Object["status"] = map[string]any{"phase": "Ready"}
		rt.Kcp.PutIn("root/workspaces/compute", compute)
		s, c, err := openCompute(t.Context(), s.env, s.flags)
		require.NoError(t, err)
		defer s.close()
		names := func() (out []string, err error) {
			err = s.eachObject(t.Context(), c, schema.GroupResource{Group: "apps", Resource: "deployments"},
				func(o *unstructured.Unstructured) { out = append(out, o.GetName()) })
			return out, err
		}
		_, err = names()
		require.ErrorContains(t, err, "APIExportEndpointSlice kubernetes in root:compute does not exist")

		const path = "/services/apiexport/abc/kubernetes"
		serve := func(urls ...any) {
			slice := kcpapi.APIExportEndpointSlice.New("kubernetes")
			slice.Object["status"] = map[string]any{"endpoints": urls}
			rt.Kcp.PutIn("root:compute/apiexportendpointslices/kubernetes", slice)
		}
		serve(map[string]any{"url": s.topology.Root().VirtualWorkspaceURL + path})
		rt.Kcp.Always("GET "+path+"/clusters/*/apis/apps", fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"preferredVersion": map[string]any{"version": "v1"}}})
		list := "GET " + path + "/clusters/*/apis/apps/v1/deployments"
		rt.Kcp.Always(list, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
			"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": map[string]any{},
			"items": []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"}}},
		}})
		found, err := names()
		require.NoError(t, err)
		require.Equal(t, []string{"web"}, found)

		rt.Kcp.Always(list, fakekcp.Answer{Code: http.StatusForbidden, Body: map[string]any{"kind": "Status", "reason": "Forbidden", "code": 403}})
		_, err = names()
		require.ErrorContains(t, err, "root-shard: list deployments.apps")
		serve(map[string]any{"url": "https://elsewhere.example.com" + path})
		_, err = names()
		require.ErrorContains(t, err, "elsewhere.example.com"+path+" belongs to no shard of the setup")
	})
}
