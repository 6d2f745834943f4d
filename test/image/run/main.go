// Run writes the image of kcpctl for several architectures, and prints the digest of its index:
// go run ./test/image/run -o FILE -name NAME:TAG DIRECTORY ARCHITECTURE...
// The binaries are DIRECTORY/ARCHITECTURE/kcpctl.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/kcpctl/kcpctl/test/image"
)

func main() {
	file := flag.String("o", "", "the archive to write")
	name := flag.String("name", "", "the name of the image with its tag")
	flag.Parse()
	if *file == "" || *name == "" || flag.NArg() < 2 {
		flag.Usage()
		os.Exit(2)
	}
	var images []image.Image
	for _, arch := range flag.Args()[1:] {
		images = append(images, image.Kcpctl(*name, arch))
	}
	digest, err := image.WriteIndex(*file, flag.Arg(0), images)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(digest)
}
