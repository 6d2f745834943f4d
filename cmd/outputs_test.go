package cmd

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/docs"
	"github.com/kcpctl/kcpctl/internal/testutil/schema"
)

// Every output conforms to its schema with all fields set. The test scripts validate real outputs.
func TestOutputsConformToTheirSchemas(t *testing.T) {
	for _, o := range Outputs() {
		t.Run(o.Name, func(t *testing.T) {
			text, ok := docs.OutputSchema(o.Name)
			require.True(t, ok, "run make generate")
			v := reflect.New(reflect.TypeOf(o.Value))
			fill(v.Elem(), 0)
			document, err := json.Marshal(v.Interface())
			require.NoError(t, err)
			problems := schema.Problems([]byte(text), document)
			require.Empty(t, slices.DeleteFunc(problems, func(p string) bool {
				return strings.Contains(p, "x is not one of") // fill knows no enumerations
			}))
		})
	}
}

// fill sets all fields of a value.
func fill(v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(0, 0).UTC()))
		return
	case metav1.ObjectMeta:
		v.Set(reflect.ValueOf(metav1.ObjectMeta{Name: "x"}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		if depth < 12 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface:
		if v.Type() == reflect.TypeFor[error]() {
			v.Set(reflect.ValueOf(errors.New("x")))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth+1)
			}
		}
	}
}

// The documentation lists all outputs, and every schema belongs to one.
func TestOutputsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/machines.md")
	require.NoError(t, err)
	for _, name := range outputNames() {
		require.Contains(t, string(page), "`"+name+"`")
	}
	files, err := filepath.Glob("../docs/schemas/*.json")
	require.NoError(t, err)
	require.Len(t, files, len(Outputs()))
}
