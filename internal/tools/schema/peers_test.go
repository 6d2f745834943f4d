package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every field of kcp-operator's objects and every value of the chart has a row, and each row says what becomes of the
// field. The lists of fields are written from the APIs and the chart, not from the tables.
func TestEveryFieldOfPeersHasARow(t *testing.T) {
	page := string(peersPage())
	operator, chart, ok := strings.Cut(page, "\n## The chart\n")
	require.True(t, ok)
	lists, err := filepath.Glob(filepath.Join(root, "internal/file/importer/testdata/fields/*.txt"))
	require.NoError(t, err)
	require.Len(t, lists, 7)
	groups := kindGroups(peerRows())
	require.Len(t, groups[0].kinds, 8)
	require.Len(t, groups[1].kinds, 5)
	for _, list := range lists {
		name := strings.TrimSuffix(filepath.Base(list), ".txt")
		fields := fieldsOfKind(t, operator, name, groups)
		if name == "chart" {
			fields = columns(t, chart, 2)
		}
		text, err := os.ReadFile(list)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			path := strings.ReplaceAll(strings.Fields(line)[0], "[]", "")
			require.True(t, slices.ContainsFunc(fields, func(row []string) bool { return covers(row[0], path) }),
				"%s: no row for %s", name, path)
		}
	}
}

// fieldsOfKind returns the rows for a kind of object.
func fieldsOfKind(t *testing.T, text, kind string, groups []kindGroup) [][]string {
	return slices.DeleteFunc(columns(t, text, 3), func(row []string) bool {
		for _, g := range groups {
			if row[1] == g.name {
				return !slices.Contains(g.kinds, kind)
			}
		}
		return !slices.Contains(strings.Split(row[1], ", "), "`"+kind+"`")
	})
}

// columns returns the rows of the tables with a number of columns, without the marks of fields.
func columns(t *testing.T, text string, number int) [][]string {
	var out [][]string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != number {
			continue
		}
		for i, c := range cells {
			cells[i] = strings.TrimSpace(c)
			require.NotEmpty(t, cells[i], line)
		}
		cells[0] = strings.Trim(cells[0], "`")
		out = append(out, cells)
	}
	require.NotEmpty(t, out)
	return out
}

// covers reports whether the row of a field is also about another one: one of them is above the other.
func covers(row, field string) bool {
	of, want := strings.Split(row, "."), strings.Split(field, ".")
	for i := range min(len(of), len(want)) {
		if of[i] != "*" && of[i] != want[i] {
			return false
		}
	}
	return true
}

func TestCovers(t *testing.T) {
	for row, want := range map[string]bool{
		"spec.etcd": true, "spec.etcd.endpoints": true, "spec.etcd.prefix": false, "spec.*.endpoints": true, "spec": true,
		"spec.etcd.endpoints.more": true, "endpoints": false,
	} {
		require.Equal(t, want, covers(row, "spec.etcd.endpoints"), row)
	}
}
