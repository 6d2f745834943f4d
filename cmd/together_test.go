package cmd

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// A flag that has no effect with another one, or without it, is a mistake of the command line, and not ignored.
func TestFlagsThatMeanNothingTogether(t *testing.T) {
	x := newShell(t)
	for line, want := range map[string]string{
		"certs renew --print-cronjob --dry-run --parallel 3 --timeout 5m": "kcpctl: --dry-run and --parallel and --timeout cannot be used with --print-cronjob\n" +
			"hint: omit --print-cronjob, or --dry-run and --parallel and --timeout\n",
		"certs renew --print-cronjob --skip-canary --force-conflicts -o json": "--force-conflicts and --output and --skip-canary cannot be used with --print-cronjob",
		"certs renew --print-cronjob --offline --pki-dir pki":                 "--offline cannot be used with --print-cronjob",
		"certs renew --print-cronjob --as ann":                                "--as cannot be used with --print-cronjob",
		"certs renew --offline --pki-dir pki --parallel 2":                    "--parallel cannot be used with --offline",
		"certs renew --offline --local":                                       "--offline cannot be used with --local",
		"certs rotate-ca server --finish --pause":                             "--pause cannot be used with --finish",
		"certs rotate-ca server --finish --from dir":                          "--from cannot be used with --finish",
		"certs rotate-ca server --cancel --finish":                            "--finish cannot be used with --cancel",
		"certs rotate-service-account-key --finish --pause":                   "--pause cannot be used with --finish",
		"certs import --from-cluster --identity key":                          "--identity cannot be used with --from-cluster",
		"backup create --to s3://b --without-keys --print-cronjob -o json":    "--output cannot be used with --print-cronjob",
		"backup create --to backups --without-keys --recipient age1":          "--recipient cannot be used with --without-keys",
		"restore backups/demo-20261126T012016Z --local --image own":           "--image cannot be used with --local",
		"restore repair --adopt --delete-orphans":                             "--delete-orphans cannot be used with --adopt",
		"render --redact --secrets include":                                   "--secrets cannot be used with --redact",
		"logs root-shard --since 5m --since-time 2026-01-02T15:04:05Z":        "--since cannot be used with --since-time",
		"up --local --ephemeral --foreground":                                 "--foreground cannot be used with --ephemeral",
		"up --local --ephemeral --write-installation":                         "--write-installation cannot be used with --ephemeral",
		"up --local --foreground --dry-run":                                   "--foreground cannot be used with --dry-run",
		"up --only shard/a --prune-data shard/a":                              "--prune-data cannot be used with --only",
		"down --orphan agent/a":                                               "--orphan requires --purge",
		"history --write":                                                     "--write requires --revision",
		"history --revision 0 --write":                                        "--write requires --revision",
		"history --revision 1 --write --full -o yaml":                         "--full and --output cannot be used with --write",
		"workloads rebalance --timeout 5m":                                    "--timeout requires --dry-run",
		"workloads rebalance -o json":                                         "--output requires --dry-run",
		"workloads rebalance --in shop":                                       "--in requires --workspace",
		"kubeconfig admin --merge -o file":                                    "--output cannot be used with --merge",
		"kubeconfig admin --issuer https://a":                                 "--issuer requires --oidc",
		"import -f a.yaml --context eu --as ann":                              "--as and --context cannot be used with --filename",
		"import -f a.yaml --file kcp.yaml":                                    "--file requires --finish",
		"import --finish --name demo -o kcp.yaml":                             "--name and --output cannot be used with --finish",
		"import -f a.yaml --root-shard root":                                  "--root-shard requires --from-cluster",
		"status --local -n kcp --as ann":                                      "--as and --namespace cannot be used with --local",
	} {
		code, out := x.run(t, strings.Fields(line)...)
		require.Equal(t, 2, code, line)
		require.Contains(t, out, want, line)
	}
}

// The same flags with the values that they have by default change nothing.
func TestDefaultsGoTogether(t *testing.T) {
	x := newShell(t)
	code, out := x.run(t, "init", "--example", "minimal")
	require.Zero(t, code, out)
	for _, line := range []string{
		"certs renew --print-cronjob --dry-run=none --parallel 1", "render --pki-dir pki --redact=false --secrets omit",
		"cluster add c1 --local --context eu --dry-run=client",
	} {
		code, out := x.run(t, strings.Fields(line)...)
		require.Zero(t, code, "%s: %s", line, out)
	}
}

// What the help says about flags is what commands check.
func TestHelpSaysWhatFlagsRequire(t *testing.T) {
	with := regexp.MustCompile(`^with --([a-z-]+): `)
	for _, c := range runnable() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			for _, name := range slices.Concat(f.Annotations[onlyWith], f.Annotations[notWith]) {
				require.NotNil(t, c.Flags().Lookup(name), "--%s of %s", f.Name, c.CommandPath())
			}
			if m := with.FindStringSubmatch(f.Usage); m != nil {
				require.Equal(t, []string{m[1]}, f.Annotations[onlyWith], "--%s of %s", f.Name, c.CommandPath())
			}
		})
	}
}
