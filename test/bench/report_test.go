package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	for name, tc := range map[string]struct {
		samples  []float64
		want     float64
		inMiddle int
	}{
		"one":  {[]float64{7}, 7, 0},
		"odd":  {[]float64{9, 1, 4}, 4, 2},
		"even": {[]float64{8, 1, 2, 4}, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			require.InDelta(t, tc.want, median(tc.samples), 0)
			require.Equal(t, tc.inMiddle, inMiddle(tc.samples))
		})
	}
}

func TestReportComparesMedians(t *testing.T) {
	var r report
	require.InDelta(t, 3, r.add("up", "s", []float64{5, 2, 3}, limit(6), reference("peer", 2)), 0)
	require.Equal(t, []against{{"limit", 6, 0.5}, {"peer", 2, 1.5}}, r.Rows[0].Against)
	require.Contains(t, r.text(), "    2.000     3.000     5.000   6.000 limit                       0.50\n")
}

func TestReportScale(t *testing.T) {
	var r report
	r.addScaled([]scaled{
		{1, []float64{30}, []float64{700}}, {2, []float64{40}, []float64{1200}}, {5, []float64{110}, []float64{2700}},
	})
	ratios := map[string][]float64{}
	for _, row := range r.Rows {
		for _, a := range row.Against {
			ratios[row.Case] = append(ratios[row.Case], a.Ratio)
		}
	}
	require.Equal(t, map[string][]float64{
		"local-scale, shards: 2, start":                  {40. / 60},
		"local-scale, shards: 5, start":                  {110. / 150},
		"local-scale, shards: 5, start per further one":  {2},
		"local-scale, shards: 2, memory":                 {1200. / 1400},
		"local-scale, shards: 5, memory":                 {2700. / 3500},
		"local-scale, shards: 5, memory per further one": {1},
	}, ratios)
	require.Len(t, r.Rows, 10)
}
