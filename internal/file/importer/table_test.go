package importer

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Every field of kcp-operator's API and every value of the chart is mapped, or has a reason. The lists are written from
// the API and the chart, not from the tables.
func TestEveryFieldHasARow(t *testing.T) {
	all := map[string][]row{"chart": chartRows()}
	for _, table := range tables() {
		if table.group == groupOperator {
			all[table.kind] = table.rows
		}
	}
	require.Len(t, all, 7)
	for name, rows := range all {
		text, err := os.ReadFile("testdata/fields/" + name + ".txt")
		require.NoError(t, err)
		var paths []string
		for line := range strings.Lines(string(text)) {
			paths = append(paths, strings.Fields(line)[0])
		}
		require.Greater(t, len(paths), 30)
		tree := newBranch(rows)
		for _, path := range paths {
			require.True(t, tree.covers(path), "%s: no row for %s", name, path)
		}
	}
}

// covers reports whether a field has a row, is below one, or is above some.
func (b *branch) covers(path string) bool {
	at := b
	for segment := range strings.SplitSeq(strings.ReplaceAll(path, "[]", ""), ".") {
		if at = at.child(segment); at == nil || at.row != nil {
			return at != nil
		}
	}
	return true
}

// Every row says what becomes of its field.
func TestRows(t *testing.T) {
	for _, table := range append(tables(), table{chart, "values", chartRows()}) {
		seen := map[string]bool{}
		for _, r := range table.rows {
			at := table.kind + " " + r.path
			require.False(t, seen[r.path], "%s has two rows", at)
			seen[r.path] = true
			require.True(t, r.set != nil || r.why != "", "%s is neither mapped nor explained", at)
			require.Equal(t, r.kind == "", r.why == "", "%s has a kind without a reason, or the reverse", at)
			require.False(t, r.set == nil && r.to != "", "%s has a target and is not mapped", at)
			require.False(t, r.set == nil && r.note != "", "%s has a note and is not mapped", at)
			require.False(t, r.set != nil && r.to+r.note == "", "%s has no target, and no note why not", at)
			require.False(t, r.kind == NotMapped && r.instead == "", "%s does not say what to do", at)
		}
	}
}

// The target of each mapped field is a field of the setup file, is above fields, or is in an overlay.
func TestTargetsAreFields(t *testing.T) {
	fields := fieldsOf("", reflect.TypeFor[v1alpha1.Setup](), nil)
	component := map[string]string{"": "spec"}
	for _, d := range AllDescribed() {
		component[d.Kind] = d.Field
	}
	known := func(to string) bool {
		return slices.ContainsFunc(fields, func(f string) bool {
			rest, above := strings.CutPrefix(f, to)
			return above && (rest == "" || rest[0] == '.' || rest[0] == '[') || strings.HasPrefix(to, f+".")
		})
	}
	require.False(t, known("spec.rootShard.replica"))
	mapped := 0
	for _, m := range Mappings() {
		if m.To == "" {
			continue
		}
		mapped++
		o := object{prefix: component[m.Of]}
		to := strings.ReplaceAll(o.absolute(m.To), "[0]", "[]")
		require.True(t, known(to), "%s %s: the setup file does not have %s", m.Of, m.Field, to)
	}
	require.Greater(t, mapped, 300)
}
