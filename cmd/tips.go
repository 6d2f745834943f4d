package cmd

import (
	"fmt"
	"strings"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// tips are the commands to run next, in the order in which they make sense.
func tips(program string, t *topology.Topology, flags string) []string {
	admin := ""
	if k := t.OfKind(topology.Kubeconfig); len(k) > 0 {
		admin = " " + k[0].Name
	}
	forward := " --port-forward"
	if t.Local {
		forward = ""
	}
	return []string{
		program + " status" + flags,
		program + " kubeconfig" + admin + flags + forward + " -- kubectl get shards,workspaces",
		program + " kubeconfig" + admin + flags + " --merge",
	}
}

// flagsForTip are the flags that lead to the same setup again.
func (o *setupOptions) flagsForTip() string {
	var b strings.Builder
	if o.local {
		b.WriteString(" --local")
	}
	for _, f := range []struct{ name, value, ordinary string }{
		{"-f", o.file, "kcp.yaml"}, {"--kubeconfig", o.kubeconfig, ""}, {"--context", o.context, ""},
		{"-n", o.namespace, ""}, {"--as", o.as, ""}, {"--pki-dir", o.pkiDir, ""},
	} {
		if f.value != f.ordinary {
			b.WriteString(" " + f.name + " " + quote(f.value))
		}
	}
	for _, g := range o.asGroups {
		b.WriteString(" --as-group " + quote(g))
	}
	return b.String()
}

// quote makes a value safe to paste into a shell.
func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,~") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// mostOffered is how many names a hint lists.
const mostOffered = 20

// oneOf is a hint that lists what could have been meant.
func oneOf(names []string) string {
	hint := "use one of " + strings.Join(names[:min(mostOffered, len(names))], ", ")
	if more := len(names) - mostOffered; more > 0 {
		hint += fmt.Sprintf(" and %d more", more)
	}
	return hint
}

// unknownName refuses the name of a thing that is not there.
func unknownName(what, name string, known []string) error {
	hint := oneOf(known)
	if meant := setup.Nearest(known, name); meant != "" {
		hint = fmt.Sprintf("did you mean %s?", meant)
	}
	return clierr.New(clierr.BadInput, hint, "there is no %s %q", what, name)
}
