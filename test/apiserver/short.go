package apiserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// Skipped is why tests do not run with go test -short.
const Skipped = "needs a kube-apiserver: run without -short"

// Short reports whether the tests of a package run with -short, and therefore without a server. TestMain may call it.
func Short() bool {
	if !flag.Parsed() {
		flag.Parse()
	}
	return testing.Short()
}

// With runs the tests of a package with a server that prepare gets first, and stops it afterwards. The context of
// prepare ends before the server does. With -short there is no server and no call of prepare, and tests that need one
// call Need. It returns the exit code of the tests, or prints its own error and returns 1.
func With(m *testing.M, prepare func(context.Context, *Server) error) int {
	if Short() {
		return m.Run()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	code := 0
	server, err := Start(ctx)
	if err == nil {
		if err = prepare(ctx, server); err == nil {
			code = m.Run()
		}
		cancel()
		err = errors.Join(err, server.Stop())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Need skips a test that needs the server of its package if there is none.
func Need(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip(Skipped)
	}
}

// Remove deletes objects that other tests see, such as those without a namespace, at the end of a test, and waits until
// they are gone. A test calls it before it creates them: one that fails then leaves nothing to the others.
func Remove(t testing.TB, at dynamic.ResourceInterface, names ...string) {
	t.Helper()
	t.Cleanup(func() {
		for limit := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			var left []error
			for _, name := range names { // all at once: the server takes seconds to remove a CustomResourceDefinition
				if err := at.Delete(context.Background(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
					left = append(left, fmt.Errorf("%s is not gone: %v", name, err))
				}
			}
			if len(left) == 0 {
				return
			}
			if time.Now().After(limit) {
				t.Error(errors.Join(left...))
				return
			}
		}
	})
}
