package strategic_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/kit/strategic"
)

func TestMerge(t *testing.T) {
	for name, tc := range map[string]struct{ object, patch, want string }{
		"a field":                         {`{nodeName: a, priority: 1}`, `{nodeName: b}`, `{nodeName: b, priority: 1}`},
		"null":                            {`{nodeName: a}`, `{nodeName: null}`, `{}`},
		"null where there is nothing":     {`{}`, `{nodeSelector: {a: null}}`, `{nodeSelector: {}}`},
		"a map":                           {`{nodeSelector: {a: b}}`, `{nodeSelector: {c: d}}`, `{nodeSelector: {a: b, c: d}}`},
		"a map is replaced":               {`{nodeSelector: {a: b}}`, `{nodeSelector: {$patch: replace, c: d}}`, `{nodeSelector: {c: d}}`},
		"a map that is not there":         {`{}`, `{nodeSelector: {$patch: replace, c: d}}`, `{nodeSelector: {c: d}}`},
		"a map is emptied":                {`{nodeSelector: {a: b}}`, `{nodeSelector: {$patch: delete}}`, `{nodeSelector: {}}`},
		"items by key":                    {`{containers: [{name: a, image: x, tty: true}]}`, `{containers: [{name: a, image: y}]}`, `{containers: [{name: a, image: y, tty: true}]}`},
		"new items are first":             {`{containers: [{name: a}]}`, `{containers: [{name: b}]}`, `{containers: [{name: b}, {name: a}]}`},
		"the patch has the order":         {`{containers: [{name: a}, {name: b}, {name: c}]}`, `{containers: [{name: c}, {name: a}]}`, `{containers: [{name: b}, {name: c}, {name: a}]}`},
		"a new item, then a known one":    {`{containers: [{name: a}, {name: b}]}`, `{containers: [{name: n}, {name: a}]}`, `{containers: [{name: n}, {name: a}, {name: b}]}`},
		"an item is deleted":              {`{containers: [{name: a}, {name: b}]}`, `{containers: [{name: a, $patch: delete}]}`, `{containers: [{name: b}]}`},
		"an item that is not there":       {`{}`, `{containers: [{name: a, $patch: delete}]}`, `{containers: []}`},
		"a list is replaced":              {`{containers: [{name: a}]}`, `{containers: [{$patch: replace}, {name: b}]}`, `{containers: [{name: b}]}`},
		"a list that is not merged":       {`{tolerations: [{key: a}]}`, `{tolerations: [{key: b, value: null}]}`, `{tolerations: [{key: b}]}`},
		"a list of strings":               {`{containers: [{name: a, args: [x]}]}`, `{containers: [{name: a, args: [y]}]}`, `{containers: [{name: a, args: [y]}]}`},
		"an item in an item":              {`{containers: [{name: a, env: [{name: A, value: x}]}]}`, `{containers: [{name: a, env: [{name: B, value: y}]}]}`, `{containers: [{name: a, env: [{name: B, value: y}, {name: A, value: x}]}]}`},
		"another kind of value":           {`{nodeSelector: {a: b}}`, `{nodeSelector: x}`, `{nodeSelector: x}`},
		"a field that the type has not":   {`{mine: {a: [1]}}`, `{mine: {b: [2]}}`, `{mine: {a: [1], b: [2]}}`},
		"nulls and directives in an item": {`{}`, `{containers: [{name: a, image: null, resources: {$patch: replace, limits: {cpu: 1}}}]}`, `{containers: [{name: a, resources: {limits: {cpu: 1}}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			object, patch := parse(t, tc.object), parse(t, tc.patch)
			require.Equal(t, parse(t, tc.want), strategic.Merge(object, patch, reflect.TypeFor[corev1.PodSpec]()))
			require.Equal(t, parse(t, tc.object), object, "the object was modified")
			require.Equal(t, parse(t, tc.patch), patch, "the patch was modified")
		})
	}
}

// A later overlay can refer to ports by number: numbers of Go and of JSON are equal.
func TestMergeByNumber(t *testing.T) {
	object := map[string]any{"ports": []any{map[string]any{"port": int64(443), "name": "https"}}}
	got := strategic.Merge(object, parse(t, `{ports: [{port: 443, nodePort: 30443}]}`), reflect.TypeFor[corev1.ServiceSpec]())
	require.Len(t, got["ports"], 1)
}

// Lists of strings are replaced: none of the merged types has one that strategic merge would merge.
func TestNoListOfStringsIsMerged(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] || !strings.HasPrefix(typ.PkgPath(), "k8s.io/api/") {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			if strings.Contains(f.Tag.Get("patchStrategy"), "merge") && f.Type.Kind() == reflect.Slice {
				require.NotEmpty(t, f.Tag.Get("patchMergeKey"), "%s.%s", typ, f.Name)
			}
			look(f.Type)
		}
	}
	look(reflect.TypeFor[corev1.PodSpec]())
	look(reflect.TypeFor[corev1.ServiceSpec]())
	require.Greater(t, len(seen), 100)
}

// Merge does what apimachinery does, which leaves directives where the object has nothing to merge with.
func TestMergeAsAPIMachinery(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		object, patch := podSpec(r, "object", false), podSpec(r, "patch", true)
		theirs, err := strategicpatch.StrategicMergeMapPatch(parse(r, encode(r, object)), parse(r, encode(r, patch)), corev1.PodSpec{})
		require.NoError(r, err)
		ours := strategic.Merge(object, patch, reflect.TypeFor[corev1.PodSpec]())
		withoutDirectives(theirs)
		require.Equal(r, encode(r, theirs), encode(r, ours), "patch %s into %s", encode(r, patch), encode(r, object))
	})
}

func withoutDirectives(object map[string]any) {
	for k, v := range object {
		list, ok := v.([]any)
		if !ok {
			continue
		}
		list = slices.DeleteFunc(list, func(item any) bool {
			m, ok := item.(map[string]any)
			return ok && m[strategic.Directive] != nil
		})
		for _, item := range list {
			if m, ok := item.(map[string]any); ok {
				withoutDirectives(m)
			}
		}
		object[k] = list
	}
}

// podSpec draws a part of a PodSpec: fields, a map, a list that is replaced, and lists in lists with keys.
func podSpec(r *rapid.T, label string, patch bool) map[string]any {
	out := map[string]any{}
	if rapid.Bool().Draw(r, label+" node") {
		out["nodeName"] = text(r, label)
	}
	if patch && rapid.Bool().Draw(r, label+" null") {
		out["priorityClassName"] = nil
	}
	out["nodeSelector"] = map[string]any{text(r, label): text(r, label)}
	out["tolerations"] = []any{map[string]any{"key": text(r, label)}}
	out["containers"] = items(r, label+" container", patch, func(m map[string]any) {
		m["env"] = items(r, label+" env", patch, func(m map[string]any) { m["value"] = text(r, label) })
		if rapid.Bool().Draw(r, label+" args") {
			m["args"] = []any{text(r, label)}
		}
	})
	return out
}

// items draws a list of items with names, with fields. Some of a patch delete an item or replace the list.
func items(r *rapid.T, label string, patch bool, fields func(map[string]any)) []any {
	out := []any{}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 4, rapid.ID).Draw(r, label) {
		m := map[string]any{"name": name}
		if patch && rapid.IntRange(0, 5).Draw(r, label+" delete") == 0 {
			m[strategic.Directive] = strategic.Delete
		} else {
			fields(m)
		}
		out = append(out, m)
	}
	if patch && rapid.IntRange(0, 9).Draw(r, label+" replace") == 0 {
		out = append(out, map[string]any{strategic.Directive: strategic.Replace})
	}
	return out
}

func text(r *rapid.T, label string) string {
	return rapid.SampledFrom([]string{"x", "y", "z"}).Draw(r, label)
}

type test interface {
	require.TestingT
	Helper()
}

func parse(t test, doc string) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(doc), &out))
	return out
}

func encode(t test, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return string(out)
}
