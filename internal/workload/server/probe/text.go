package probe

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// text returns metrics in the text format (prometheus.io/docs/instrumenting/exposition_formats).
func text(all []Metric) string {
	var b strings.Builder
	last := ""
	for _, m := range all {
		if m.Name != last {
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, m.kind())
			last = m.Name
		}
		if d := m.Distribution; d != nil {
			d.write(&b, m)
			continue
		}
		b.WriteString(m.Name + labels(m.Labels) + " " + number(m.Value) + "\n")
	}
	return b.String()
}

func (m Metric) kind() string {
	switch {
	case m.Distribution != nil:
		return "histogram"
	case strings.HasSuffix(m.Name, "_total"):
		return "counter"
	}
	return "gauge"
}

// write writes the lines of a histogram.
func (d *Distribution) write(b *strings.Builder, m Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	below := uint64(0)
	for i, n := range d.counts {
		below += n
		le := "+Inf"
		if i < len(buckets) {
			le = number(buckets[i].Seconds())
		}
		with := maps.Clone(m.Labels)
		if with == nil {
			with = map[string]string{}
		}
		with["le"] = le
		fmt.Fprintf(b, "%s_bucket%s %d\n", m.Name, labels(with), below)
	}
	fmt.Fprintf(b, "%s_sum%s %s\n%s_count%s %d\n", m.Name, labels(m.Labels), number(d.sum.Seconds()), m.Name,
		labels(m.Labels), below)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// labels returns labels in braces, or nothing if there are none.
func labels(all map[string]string) string {
	if len(all) == 0 {
		return ""
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, name+`="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(all[name])+`"`)
	}
	return "{" + strings.Join(out, ",") + "}"
}
