package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/file/importer"
)

const peersHeader = `<!-- Generated from the tables of import by internal/tools/schema: run make generate. -->

# Fields of kcp-operator and of the chart

All fields of kcp-operator's objects and all values of the chart ` + "`kcp`" + `, and what becomes of them in a [setup file](setup.md).
[` + "`kcpctl import`" + `](import.md) does this, and lists the fields of its input with one of these remarks:

* *Review*: the field of the setup file does not mean exactly the same.
* *Not mapped*: the field has an effect that the setup file does not repeat.
* *Not needed*: the field has no effect, or kcpctl does the same without a setting.

A row is also about all fields below its field, and ` + "`*`" + ` is any key. Flags in ` + "`extraArgs`" + ` and ` + "`extraFlags`" +
	` that a field of the setup file says
become this field ([the flags](import.md#from-kcp-operator)).

## kcp-operator

Fields of the setup file are fields of the component that an object describes, unless they begin with ` + "`spec` or `metadata`" + `:

| object | field of the setup file |
|---|---|
`

const chartHeader = `
## The chart

A value has no effect while the value that turns it on is off, such as ` + "`etcd.enabled`" + ` for all values below ` + "`etcd`" + `.

| value | setup file |
|---|---|
`

// peersPage returns the page with all fields of kcp-operator and all values of the chart.
func peersPage() []byte {
	var out bytes.Buffer
	out.WriteString(peersHeader)
	for _, d := range importer.AllDescribed() {
		fmt.Fprintf(&out, "| `%s` | `%s` |\n", d.Kind, d.Field)
	}
	rows := peerRows()
	groups := kindGroups(rows)
	fmt.Fprintf(&out, "\nIn the table, *components* are %s, and *all* are also %s.\n\n| field | of | setup file |\n|---|---|---|\n",
		quoted(groups[1].kinds), quoted(slices.DeleteFunc(slices.Clone(groups[0].kinds),
			func(k string) bool { return slices.Contains(groups[1].kinds, k) })))
	for _, r := range rows {
		if r.kinds[0] != "" {
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", r.field, ofKinds(r.kinds, groups), escape(r.text))
		}
	}
	out.WriteString(chartHeader)
	for _, r := range rows {
		if r.kinds[0] == "" {
			fmt.Fprintf(&out, "| `%s` | %s |\n", r.field, escape(r.text))
		}
	}
	return out.Bytes()
}

// peerRow is a row of the page: a field, the kinds of objects with it for which the text is the same, and the text.
type peerRow struct {
	field string
	kinds []string
	text  string
}

// peerRows returns the rows by field. Values of the chart have the kind "".
func peerRows() []peerRow {
	var out []peerRow
	for _, m := range importer.Mappings() {
		text := outcome(m)
		i := slices.IndexFunc(out, func(r peerRow) bool {
			return r.field == m.Field && r.text == text && (r.kinds[0] == "") == (m.Of == "")
		})
		if i < 0 {
			out = append(out, peerRow{m.Field, []string{m.Of}, text})
			continue
		}
		out[i].kinds = append(out[i].kinds, m.Of)
	}
	slices.SortStableFunc(out, func(a, b peerRow) int { return cmp.Compare(a.field, b.field) })
	return out
}

// outcome says what becomes of a field.
func outcome(m importer.Mapping) string {
	var parts []string
	if m.To != "" {
		parts = append(parts, "`"+m.To+"`")
	}
	if m.Note != "" {
		parts = append(parts, m.Note)
	}
	text := strings.Join(parts, ", ")
	if m.Kind == "" {
		return text
	}
	if text != "" {
		text += ". "
	}
	text += "*" + strings.ToUpper(string(m.Kind[:1])) + string(m.Kind[1:]) + "*: " + m.Reason
	if m.Instead != "" {
		text += "; " + m.Instead
	}
	return text
}

// kindGroup is a name for several kinds.
type kindGroup struct {
	name  string
	kinds []string
}

// kindGroups are all kinds of objects, and the kinds that describe components.
func kindGroups(rows []peerRow) []kindGroup {
	all, components := kindGroup{name: "all"}, kindGroup{name: "components"}
	for _, r := range rows {
		for _, k := range r.kinds {
			if k != "" && !slices.Contains(all.kinds, k) {
				all.kinds = append(all.kinds, k)
			}
		}
		if r.field == "spec.replicas" {
			components.kinds = r.kinds
		}
	}
	return []kindGroup{all, components}
}

// ofKinds names kinds.
func ofKinds(kinds []string, groups []kindGroup) string {
	for _, g := range groups {
		if slices.Equal(kinds, g.kinds) {
			return g.name
		}
	}
	return quoted(kinds)
}

func quoted(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
