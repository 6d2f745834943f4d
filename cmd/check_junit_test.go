package cmd

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/check"
)

func TestJUnit(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, printJUnit(&out, &check.Report{Name: "demo", Where: "eu", Results: []check.Result{
		{ID: "KCP001", Category: "Clusters", Title: "answers", Status: check.OK},
		{ID: "KCP002", Category: "Clusters", Title: "is new", Status: check.Fail, Cause: "v1.20 < v1.30\non eu", Fix: "upgrade"},
		{ID: "KCP003", Category: "Clusters", Title: "is fast", Status: check.Warn, Cause: "slow"},
		{ID: "KCP004", Category: "Clusters", Title: "is near", Status: check.Skipped, Cause: "KCP002 failed"},
	}}))
	require.Equal(t, `<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="kcpctl check: kcp &#34;demo&#34;, eu" tests="4" failures="1" skipped="1">
    <testcase classname="Clusters" name="KCP001 answers"></testcase>
    <testcase classname="Clusters" name="KCP002 is new">
      <failure message="v1.20 &lt; v1.30">v1.20 &lt; v1.30&#xA;on eu&#xA;fix: upgrade</failure>
    </testcase>
    <testcase classname="Clusters" name="KCP003 is fast">
      <system-out>warning: slow</system-out>
    </testcase>
    <testcase classname="Clusters" name="KCP004 is near">
      <skipped message="KCP002 failed"></skipped>
    </testcase>
  </testsuite>
</testsuites>
`, out.String())
}
