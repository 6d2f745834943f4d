package facts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// reference is the use of a Secret or ConfigMap by a pod.
type reference struct {
	kind kind.Kind
	name string
	// key is the entry in use; empty is all of them.
	key string
	// user is the object that has the reference, and its field.
	user string
}

// References returns an error with all Secrets and ConfigMaps that pods on a cluster use, and that neither
// exist nor are among the objects to apply.
func References(ctx context.Context, cl *cluster.Client, objects []render.Object) error {
	if err := cl.Connect(ctx); err != nil {
		return err
	}
	all, err := externalReferences(objects)
	if err != nil {
		return err
	}
	missing := make([]string, len(all))
	if err := parallel.Each(ctx, parallel.Indices(all), func(ctx context.Context, i int) error {
		live, err := cl.Get(ctx, all[i].kind, all[i].name)
		missing[i] = all[i].missing(cl.Namespace, live)
		return err
	}); err != nil {
		return err
	}
	users := map[string][]string{}
	for i, m := range missing {
		if m != "" {
			users[m] = append(users[m], all[i].user)
		}
	}
	if len(users) == 0 {
		return nil
	}
	var lines []string
	for _, m := range slices.Sorted(maps.Keys(users)) {
		line := "\n  " + m + ", used by " + users[m][0]
		if n := len(users[m]) - 1; n > 0 {
			line += fmt.Sprintf(" and %d more", n)
		}
		lines = append(lines, line)
	}
	return clierr.New(clierr.Failed, "create the missing objects, or correct the setup file",
		"the setup refers to objects that do not exist (%s):%s", cl.Where(), strings.Join(lines, ""))
}

// externalReferences are the references of pods to objects that are not among the objects to apply.
func externalReferences(objects []render.Object) ([]reference, error) {
	var all []reference
	own := map[string]bool{}
	for _, o := range objects {
		own[o.GetKind()+"/"+o.GetName()] = true
		refs, err := podReferences(o.Unstructured)
		if err != nil {
			return nil, err
		}
		all = append(all, refs...)
	}
	return slices.DeleteFunc(all, func(r reference) bool { return own[r.kind.Kind+"/"+r.name] }), nil
}

// Referenced returns the Secrets and ConfigMaps that pods use, and that are not among the objects: their kinds, their
// names and what uses them.
func Referenced(objects []render.Object, each func(k kind.Kind, name, user string)) error {
	all, err := externalReferences(objects)
	for _, r := range all {
		each(r.kind, r.name, r.user)
	}
	return err
}

// missing returns what is missing of a reference: nothing if it is empty.
func (r reference) missing(namespace string, live *unstructured.Unstructured) string {
	object := r.kind.Kind + "/" + namespace + "/" + r.name
	if live == nil {
		return object
	}
	for _, field := range []string{"data", "binaryData"} {
		entries, _, _ := unstructured.NestedMap(live.Object, field)
		if _, ok := entries[r.key]; ok || r.key == "" {
			return ""
		}
	}
	return "key " + r.key + " of " + object
}

// podReferences are the Secrets and ConfigMaps that the pods of a workload cannot start without.
func podReferences(o *unstructured.Unstructured) ([]reference, error) {
	spec, err := podSpec(o)
	if spec == nil || err != nil {
		return nil, err
	}
	c := collector{owner: o.GetKind() + "/" + o.GetName()}
	for _, s := range spec.ImagePullSecrets {
		c.add(kind.Secret, s.Name, "", nil, "imagePullSecrets")
	}
	for _, v := range spec.Volumes {
		c.volume(v)
	}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		c.container(container)
	}
	return c.found, nil
}

// collector collects the references of a workload.
type collector struct {
	owner string
	found []reference
}

func (c *collector) add(k kind.Kind, name, key string, optional *bool, field string) {
	if name != "" && (optional == nil || !*optional) {
		c.found = append(c.found, reference{kind: k, name: name, key: key, user: c.owner + " (" + field + ")"})
	}
}

func (c *collector) items(k kind.Kind, name string, items []corev1.KeyToPath, optional *bool, field string) {
	if len(items) == 0 {
		c.add(k, name, "", optional, field)
	}
	for _, i := range items {
		c.add(k, name, i.Key, optional, field)
	}
}

func (c *collector) volume(v corev1.Volume) {
	field := "volume " + v.Name
	if s := v.Secret; s != nil {
		c.items(kind.Secret, s.SecretName, s.Items, s.Optional, field)
	}
	if m := v.ConfigMap; m != nil {
		c.items(kind.ConfigMap, m.Name, m.Items, m.Optional, field)
	}
	if v.Projected == nil {
		return
	}
	for _, src := range v.Projected.Sources {
		if s := src.Secret; s != nil {
			c.items(kind.Secret, s.Name, s.Items, s.Optional, field)
		}
		if m := src.ConfigMap; m != nil {
			c.items(kind.ConfigMap, m.Name, m.Items, m.Optional, field)
		}
	}
}

func (c *collector) container(from corev1.Container) {
	for _, e := range from.Env {
		field := "variable " + e.Name + " of container " + from.Name
		if e.ValueFrom == nil {
			continue
		}
		if s := e.ValueFrom.SecretKeyRef; s != nil {
			c.add(kind.Secret, s.Name, s.Key, s.Optional, field)
		}
		if m := e.ValueFrom.ConfigMapKeyRef; m != nil {
			c.add(kind.ConfigMap, m.Name, m.Key, m.Optional, field)
		}
	}
	for _, e := range from.EnvFrom {
		field := "variables of container " + from.Name
		if s := e.SecretRef; s != nil {
			c.add(kind.Secret, s.Name, "", s.Optional, field)
		}
		if m := e.ConfigMapRef; m != nil {
			c.add(kind.ConfigMap, m.Name, "", m.Optional, field)
		}
	}
}
