// Package version identifies the build of kcpctl.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Set by the linker: -ldflags "-X github.com/kcpctl/kcpctl/internal/kit/version.version=v0.1.0". Unset values come from
// the build information that Go embeds in every binary, so that `go install` and `go build` work too.
var version, commit, date string

// imageDigest is the digest of the image of this release. The linker sets it in releases only.
var imageDigest string

// Info describes a build.
type Info struct {
	// Version is the release, or "devel".
	Version string `json:"version"`
	// Commit is the git commit, with the suffix "-dirty" if files were modified.
	Commit string `json:"commit,omitempty"`
	// Date is the date of the commit, in RFC 3339.
	Date     string `json:"date,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// KCP is the default kcp release, and KnownKCP are all supported releases. Etcd is the default image of managed
	// etcds. The caller sets them.
	KCP      string   `json:"kcp,omitempty"`
	KnownKCP []string `json:"knownKCP,omitempty"`
	Etcd     string   `json:"etcd,omitempty"`
	// ImageDigest is the digest of the image of this release. It is empty in other builds.
	ImageDigest string `json:"-"`
	// Image is the image of kcpctl that setups use by default. The caller sets it.
	Image string `json:"image,omitempty"`
	// Newest is the newest release of kcpctl. Only version --check sets it.
	Newest string `json:"newest,omitempty"`
}

// Get returns the build of the running binary.
func Get() Info {
	build, _ := debug.ReadBuildInfo()
	return info(build)
}

// info merges the values of the linker with the build information, which is nil in a binary that was built without
// modules.
func info(build *debug.BuildInfo) Info {
	i := Info{Version: version, Commit: commit, Date: date, ImageDigest: imageDigest, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build != nil {
		vcs := map[string]string{}
		for _, s := range build.Settings {
			vcs[s.Key] = s.Value
		}
		revision := vcs["vcs.revision"]
		if revision != "" && vcs["vcs.modified"] == "true" {
			revision += "-dirty"
		}
		i.Version = cmp.Or(i.Version, strings.Trim(build.Main.Version, "()"))
		i.Commit = cmp.Or(i.Commit, revision)
		i.Date = cmp.Or(i.Date, vcs["vcs.time"])
	}
	i.Version = cmp.Or(i.Version, "devel")
	return i
}

// Text returns one value per line, without unknown ones.
func (i Info) Text() string {
	var b strings.Builder
	for _, f := range []struct{ name, value string }{
		{"kcpctl", i.Version},
		{"commit", i.Commit},
		{"date", i.Date},
		{"go", i.Go},
		{"platform", i.Platform},
		{"kcp", i.kcp()},
		{"etcd", i.Etcd},
		{"image", i.image()},
		{"newest", i.Newest},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", f.name, f.value)
		}
	}
	return b.String()
}

// image returns the image, and a note if there is no digest: in builds that are not a release, and in the image.
func (i Info) image() string {
	if i.Image == "" || i.ImageDigest != "" {
		return i.Image
	}
	return i.Image + " (this build does not know its digest)"
}

// kcp is the default release, followed by all supported ones.
func (i Info) kcp() string {
	if len(i.KnownKCP) == 0 {
		return i.KCP
	}
	return strings.TrimSpace(fmt.Sprintf("%s (supports %s)", i.KCP, strings.Join(i.KnownKCP, ", ")))
}
