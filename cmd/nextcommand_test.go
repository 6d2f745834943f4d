package cmd

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Hints of packages that know no flags can be pasted: each command in them has the flags that lead to the same setup.
func TestNextSteps(t *testing.T) {
	env := &Env{root: docsRoot(), session: &session{flags: &setupFlags{
		file: "my file.yaml", context: "eu", local: localFlags{enabled: true},
	}}}
	const flags = "--local -f 'my file.yaml' --context eu"
	const logs = "--local --file 'my file.yaml' --context eu"
	for text, want := range map[string]string{
		"":                              "",
		"kcpctl":                        "kcpctl",
		"upgrade kcpctl to v9":          "upgrade kcpctl to v9",
		"run kcpctl up":                 "run kcpctl up " + flags,
		"run kcpctl up first: it":       "run kcpctl up " + flags + " first: it",
		"run kcpctl up.":                "run kcpctl up " + flags + ".",
		"(kcpctl restore); or":          "(kcpctl restore " + flags + "); or",
		"run kcpctl up --only shard/a,": "run kcpctl up --only shard/a " + flags + ",",
		"run kcpctl up --allow lost-record=demo-qmzalrtd, if": "run kcpctl up --allow lost-record=demo-qmzalrtd " + flags + ", if",
		"run kcpctl up --force-conflicts if it":               "run kcpctl up --force-conflicts " + flags + " if it",
		"run kcpctl remove-shard a b, with --drain if it":     "run kcpctl remove-shard a b " + flags + ", with --drain if it",
		"kcpctl certs import DIR --dry-run shows them":        "kcpctl certs import DIR --dry-run " + flags + " shows them",
		"run kcpctl remove-shard {names}, with":               "run kcpctl remove-shard {names} " + flags + ", with",
		"kcpctl certs rotate-ca server":                       "kcpctl certs rotate-ca server " + flags,
		"see kcpctl logs of it, and kcpctl status":            "see kcpctl logs " + logs + " of it, and kcpctl status " + flags,
		"kcpctl logs shard/a shows why":                       "kcpctl logs shard/a " + logs + " shows why",
		"run kcpctl up " + flags + " first":                   "run kcpctl up " + flags + " first",
		"see kcpctl schema":                                   "see kcpctl schema",
		"kcpctl backup list --from DIR shows them":            "kcpctl backup list --from DIR shows them",
		"see kcpctl certs import --help for the files":        "see kcpctl certs import --help for the files",
		"kcpctl kubeconfig admin -- kubectl get ws":           "kcpctl kubeconfig " + flags + " admin -- kubectl get ws",
		"kcpctl kubeconfig --target shard/NAME --workspace a-id --port-forward -- kubectl get ws": "kcpctl kubeconfig --target " +
			"shard/NAME --workspace a-id --port-forward " + flags + " -- kubectl get ws",
	} {
		require.Equal(t, want, env.nextSteps(text))
		require.Equal(t, want, env.nextSteps(want), "a second time")
	}
	require.Equal(t, "run kcpctl up", (&Env{}).nextSteps("run kcpctl up"), "the setup is not known")
	err := env.withNextSteps(clierr.Also(clierr.New(clierr.Failed, "run kcpctl diff", "no"), "then kcpctl up"))
	require.Equal(t, "run kcpctl diff "+flags+"; then kcpctl up "+flags, clierr.Hint(err))
}

// In the fix of each check, no word of the sentence is taken for an argument of the command before it.
func TestNextStepsOfChecks(t *testing.T) {
	const flag = " --local"
	env := &Env{root: docsRoot(), session: &session{flags: &setupFlags{file: defaultFile, local: localFlags{enabled: true}}}}
	argument := regexp.MustCompile(`[^a-z]|^(` + strings.Join(commandWords(), "|") + `)$`)
	for _, c := range check.All() {
		parts := strings.Split(env.nextSteps(c.Fix), flag)
		for _, before := range parts[:len(parts)-1] {
			words := strings.Fields(before)
			require.Regexp(t, argument, words[len(words)-1], "%s: %s%s", c.ID, before, flag)
		}
	}
}

// commandWords are the names of all commands.
func commandWords() (words []string) {
	for _, c := range all(docsRoot()) {
		words = append(words, c.Name())
	}
	return words
}

// kubectl runs the binary kubectl-kcpctl as kubectl kcpctl: what users are told to type begins with that.
func TestPluginOfKubectl(t *testing.T) {
	for program, want := range map[string]string{
		"/bin/kubectl-kcpctl": "kubectl kcpctl", "kubectl-kcpctl.exe": "kubectl kcpctl", "bin/kcpctl": "kcpctl", "": "kcpctl",
	} {
		require.Equal(t, want, (&Env{Program: program}).program())
	}
	types := func(code int, args ...string) string {
		env, out, errs := fakeEnv()
		env.Program = "/bin/kubectl-kcpctl"
		require.Equal(t, code, Main(t.Context(), args, env), errs)
		return out.String() + errs.String()
	}
	t.Chdir(t.TempDir())
	require.Contains(t, types(0, "version", "--help"), "  kubectl kcpctl version --check\n")
	require.Contains(t, types(0, "--help"), "kcpctl deploys kcp")
	require.Contains(t, types(0, "--help"), `Use "kubectl kcpctl [command] --help"`)
	require.Contains(t, types(2, "diff"), "create one with kubectl kcpctl init")
	require.Contains(t, types(2, "statsu"), "did you mean kubectl kcpctl status?")
	require.Contains(t, types(0, "init"), "then run: kubectl kcpctl up -f kcp.yaml")
	require.Contains(t, types(2, "up", "-o", "json", "-f", "none"), `"command":"up"`)

	env := &Env{Program: "kubectl-kcpctl", root: docsRoot(), session: &session{flags: &setupFlags{file: "a.yaml", program: plugin}}}
	const up = "run kubectl kcpctl up -f a.yaml"
	require.Equal(t, up, env.nextSteps("run kcpctl up"))
	require.Equal(t, up, env.nextSteps(up), "a second time")
	require.Equal(t, up, "run "+env.session.flags.command("up"))
	require.Equal(t, "upgrade kcpctl to v9", env.nextSteps("upgrade kcpctl to v9"))
}

// The history, events and locks have the names of commands, however kcpctl was started.
func TestPathOf(t *testing.T) {
	env, _, _ := fakeEnv()
	env.Program = "kubectl-kcpctl"
	c, _, err := newRootCmd(env).Find([]string{"certs", "renew"})
	require.NoError(t, err)
	require.Equal(t, "kubectl kcpctl certs renew", c.CommandPath())
	require.Equal(t, "kcpctl certs renew", pathOf(c))
}

// In each command, the flag that kcpctl writes for the setup file names the setup file.
func TestFileFlagOfEachCommand(t *testing.T) {
	for _, c := range all(docsRoot()) {
		if c.Flags().Lookup("file") == nil || c.Flags().Lookup("local") == nil {
			continue
		}
		shorthand := c.Flags().ShorthandLookup("f")
		isFile := shorthand != nil && shorthand.Name == "file"
		require.Equal(t, isFile, fileFlag(firstWord(c)) == "-f", c.CommandPath())
	}
}

// firstWord is the first word of a command after kcpctl.
func firstWord(c *cobra.Command) string {
	for c.HasParent() && c.Parent().HasParent() {
		c = c.Parent()
	}
	return c.Name()
}
