package cmd_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kcpctl/kcpctl/cmd"
	"github.com/kcpctl/kcpctl/docs"
	"github.com/kcpctl/kcpctl/internal/testutil/schema"
)

// TestMain makes the test binary play kcpctl where a script runs it.
func TestMain(m *testing.M) {
	kcpctl := func() { os.Exit(cmd.Main(context.Background(), os.Args[1:], cmd.System())) }
	testscript.Main(m, map[string]func(){
		"kcpctl": kcpctl,
		// The same, but it crashes if it opens a socket or listens.
		"kcpctl-no-sockets":   func() { forbidSockets(); kcpctl() },
		"kcpctl-no-listening": func() { forbidListening(); kcpctl() },
	})
}

var update = flag.Bool("update-scripts", false, "write what the scripts see into them")

// TestScripts types what users type, and compares what they see.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			// No cluster, no home of anybody.
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("KUBECONFIG", env.WorkDir+"/no-kubeconfig")
			env.Setenv("LC_ALL", "C.UTF-8")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "conforms": conforms},
	})
}

// conforms OUTPUT validates what the last command printed: a document of JSON, or a line for each event.
func conforms(ts *testscript.TestScript, neg bool, args []string) {
	text, ok := docs.OutputSchema(args[0])
	if neg || !ok {
		ts.Fatalf("usage: conforms OUTPUT")
	}
	documents := []string{ts.ReadFile("stdout")}
	if args[0] == "events" {
		documents = strings.Split(strings.TrimSpace(documents[0]), "\n")
	}
	for _, document := range documents {
		if problems := schema.Problems([]byte(text), []byte(document)); len(problems) > 0 {
			ts.Fatalf("%s\n%s", strings.Join(problems, "\n"), document)
		}
	}
}

// exits CODE COMMAND... runs a command and compares its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = strconv.Itoa(exit.ExitCode())
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, want %s", code, args[0])
	}
}
