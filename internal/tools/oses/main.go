// Oses type-checks packages for another operating system, with the sources of all that they import. It compiles
// nothing: a build for each system takes minutes without a cache.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	log.SetFlags(0)
	tests := flag.Bool("tests", false, "also check the tests of the packages")
	flag.Parse()
	if err := check(".", *tests, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// check prints the errors of packages of dir, if there are any, and fails. Args are GOOS/GOARCH and patterns of
// packages.
func check(dir string, tests bool, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: oses [-tests] GOOS/GOARCH PACKAGE...")
	}
	system, arch, _ := strings.Cut(args[0], "/")
	all, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax, Dir: dir, Tests: tests,
		Env: append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0"),
	}, args[1:]...)
	if err != nil {
		return err
	}
	if n := packages.PrintErrors(all); n > 0 {
		return fmt.Errorf("%d errors for %s", n, args[0])
	}
	return nil
}
