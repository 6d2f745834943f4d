package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report has all measurements.
type report struct {
	// Machine describes the machine.
	Machine string `json:"machine"`
	Rows    []row  `json:"rows"`
	Paths   []path `json:"paths,omitempty"`
}

// row is one line of the table.
type row struct {
	Case string `json:"case"`
	// Unit is s, MB (1 000 000 bytes), x (a plain ratio) or n (a number).
	Unit    string    `json:"unit"`
	Samples []float64 `json:"samples"`
	Min     float64   `json:"min"`
	Median  float64   `json:"median"`
	Max     float64   `json:"max"`
	Against []against `json:"against,omitempty"`
}

// against is a value with which a median is compared.
type against struct {
	// Name is limit, aim, or the origin of the value.
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Ratio is the median divided by the value: below 1 is better.
	Ratio float64 `json:"ratio"`
}

func limit(value float64) against                  { return against{Name: "limit", Value: value} }
func reference(name string, value float64) against { return against{Name: name, Value: value} }

// add adds a row and returns its median.
func (r *report) add(name, unit string, samples []float64, bounds ...against) float64 {
	row := row{
		Case: name, Unit: unit, Samples: samples,
		Min: slices.Min(samples), Median: median(samples), Max: slices.Max(samples), Against: slices.Clone(bounds),
	}
	for i := range row.Against {
		row.Against[i].Ratio = row.Median / row.Against[i].Value
	}
	r.Rows = append(r.Rows, row)
	return row.Median
}

// median returns the middle sample, or the mean of the two in the middle.
func median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// inMiddle returns the index of the sample nearest to the median.
func inMiddle(samples []float64) int {
	m, at := median(samples), 0
	for i, s := range samples {
		if abs(s-m) < abs(samples[at]-m) {
			at = i
		}
	}
	return at
}

func abs(f float64) float64 { return max(f, -f) }

func (r *report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	if len(r.Rows) == 0 {
		return nil
	}
	_, err := io.WriteString(w, r.text())
	return err
}

// text returns the table and the critical paths.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n", r.Machine)
	fmt.Fprintf(&b, "%-42s %4s %4s %9s %9s %9s   %-32s %5s\n",
		"CASE", "RUNS", "UNIT", "MIN", "MEDIAN", "MAX", "AGAINST", "RATIO")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%-42s %4d %4s %9s %9s %9s", row.Case, len(row.Samples), row.Unit,
			row.figure(row.Min), row.figure(row.Median), row.figure(row.Max))
		for i, a := range row.Against {
			if i > 0 {
				fmt.Fprintf(&b, "\n%82s", "")
			}
			fmt.Fprintf(&b, "   %-32s %5.2f", row.figure(a.Value)+" "+a.Name, a.Ratio)
		}
		b.WriteByte('\n')
	}
	for _, p := range r.Paths {
		b.WriteString(p.text())
	}
	return b.String()
}

// figure formats a value with the precision of its unit.
func (r row) figure(v float64) string {
	decimals := map[string]int{"s": 3, "MB": 1, "x": 2}[r.Unit]
	return fmt.Sprintf("%.*f", decimals, v)
}

// machine describes the machine and its load, without which the values have no meaning.
func machine() string {
	load, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%s/%s, %d CPUs, load %s at the start, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		cmp.Or(one, "unknown"), time.Now().UTC().Format(time.RFC3339))
}

// series collects samples of usages.
type series struct{ wall, cpu, rss []float64 }

func (s *series) add(u usage) {
	s.wall = append(s.wall, u.wall.Seconds())
	s.cpu = append(s.cpu, u.cpu.Seconds())
	s.rss = append(s.rss, megabytes(u.rss))
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }
