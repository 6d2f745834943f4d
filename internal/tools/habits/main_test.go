package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestHabits(t *testing.T) {
	long := "\tx := 1 // " + strings.Repeat("a", maxColumns-tabWidth-len("x := 1 // "))
	for name, tc := range map[string]struct {
		habit, line string
		matches     bool
	}{
		"a line that fits":       {"long-lines", long, false},
		"a line that does not":   {"long-lines", long + "a", true},
		"a pronoun":              {"those-of", "// It reads those of the setup.", true},
		"a pronoun in a message": {"those-of", `	return "those of the setup"`, false},
		"a clause as a noun":     {"what-it-is", "	// applied is what the run has applied", true},
		"its own":                {"of-its-own", "// It has a log of its own.", true},
		"progress":               {"how-far", "// how far an agent is", true},
		"a state":                {"stays", "// what runs stays", true},
		"no parts":               {"nothing-of", "// nothing of it is synced", true},
		"a request":              {"asks", "// It asks the shards whether they respond.", true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, h := range habits() {
				if h.name == tc.habit {
					require.Equal(t, tc.matches, h.matches(tc.line))
					return
				}
			}
			t.Fatal("there is no such habit")
		})
	}
}

func TestCheckOfBudgets(t *testing.T) {
	lines, err := read(fstest.MapFS{
		"main.go":                 {Data: []byte("package main\n// how far\n")},
		"cmd/up.go":               {Data: []byte("package cmd\n// how far\n")},
		"cmd/up_test.go":          {Data: []byte("package cmd\n// how far\n")},
		"internal/tools/x.go":     {Data: []byte("// how far\n")},
		"internal/testutil/x.go":  {Data: []byte("// how far\n")},
		"internal/x/testdata.txt": {Data: []byte("// how far\n")},
	}, "main.go", "cmd", "internal")
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, show(&out, lines, "how-far"))
	require.Equal(t, "main.go:2: // how far\ncmd/up.go:2: // how far\n", out.String())
	with := func(budget int) []habit { return []habit{{"how-far", budget, "write progress", comment("how far")}} }
	require.NoError(t, check(lines, with(2)))
	require.ErrorContains(t, check(lines, with(3)), "how-far: only 2 lines are left: lower the budget of 3")
	require.ErrorContains(t, check(lines, with(1)), "how-far: 2 lines, and the budget is 1: write progress")
	require.ErrorContains(t, show(&out, lines, "nothing"), `there is no habit "nothing"`)
}
