package cmd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/risk"
)

func TestAllow(t *testing.T) {
	for name, tc := range map[string]struct {
		values []string
		err    string
		change bool
		data   []string
	}{
		"a risk of the command":    {values: []string{"release-change"}, change: true},
		"for a component":          {values: []string{"data-change=etcd/root"}, data: []string{"etcd/root"}},
		"for several":              {values: []string{"data-change=etcd/root,shard/alpha", "data-change=etcd/alpha", "release-change"}, change: true, data: []string{"etcd/root", "shard/alpha", "etcd/alpha"}},
		"unknown":                  {values: []string{"data-chnge=etcd/root"}, err: `unknown risk "data-chnge": use data-change=COMPONENT, release-change`},
		"two in one":               {values: []string{"release-change,data-change=etcd/root"}, err: `unknown risk "release-change,data-change": use data-change=COMPONENT, release-change`},
		"for nothing":              {values: []string{"data-change"}, err: "data-change needs what it is accepted for: use --allow data-change=COMPONENT"},
		"an empty name":            {values: []string{"data-change="}, err: "data-change needs what it is accepted for: use --allow data-change=COMPONENT"},
		"a name that has no place": {values: []string{"release-change=v0.32.3"}, err: "release-change has no value: use --allow release-change"},
	} {
		t.Run(name, func(t *testing.T) {
			var change bool
			var data []string
			all := acceptances{
				{risk: risk.DataChange, value: "COMPONENT", accept: collect(&data)},
				{risk: risk.ReleaseChange, accept: set(&change)},
			}
			var err error
			for _, v := range tc.values {
				if err = all.Set(v); err != nil {
					break
				}
			}
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.change, change)
			require.Equal(t, tc.data, data)
		})
	}
}

func TestAllowLostRecord(t *testing.T) {
	const two = "a setup has one installation, and demo-1 and demo-2 are two: give only the ID from the message that refuses the run"
	for name, tc := range map[string]struct {
		values    []string
		want, err string
	}{
		"one":                {values: []string{"lost-record=demo-1"}, want: "demo-1"},
		"the same one twice": {values: []string{"lost-record=demo-1", "lost-record=demo-1"}, want: "demo-1"},
		"two in one":         {values: []string{"lost-record=demo-1,demo-2"}, err: two},
		"two":                {values: []string{"lost-record=demo-1", "lost-record=demo-2"}, err: two},
	} {
		t.Run(name, func(t *testing.T) {
			o := &upOptions{}
			all := acceptances{{risk: risk.LostRecord, value: "ID", accept: o.replaceLost}}
			var err error
			for _, v := range tc.values {
				err = errors.Join(err, all.Set(v))
			}
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, o.setup.allowLostRecord)
		})
	}
}
