// Run writes the image of kcpctl: go run ./test/image/run -o FILE -name NAME:TAG [-arch amd64] DIRECTORY OF THE BINARY.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/kcpctl/kcpctl/test/image"
)

func main() {
	file := flag.String("o", "", "the archive to write")
	name := flag.String("name", "", "the name of the image with its tag")
	arch := flag.String("arch", runtime.GOARCH, "the architecture of the binary")
	flag.Parse()
	if *file == "" || *name == "" || flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := image.Kcpctl(*name, *arch).Write(*file, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
