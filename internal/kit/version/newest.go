package version

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// Releases is the page of the releases of kcpctl.
const Releases = "https://github.com/kcpctl/kcpctl/releases"

// Newest returns the newest release of a page of releases. The page redirects /latest to /tag/VERSION, so one request
// is enough. The request says nothing about this build.
func Newest(ctx context.Context, releases string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, releases+"/latest", nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("User-Agent", "kcpctl")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	_ = response.Body.Close() // it is empty
	location, err := response.Location()
	if errors.Is(err, http.ErrNoLocation) {
		return "", fmt.Errorf("%s has no release: %s", releases, response.Status)
	}
	if err != nil {
		return "", err
	}
	newest := path.Base(location.Path)
	if _, err := utilversion.ParseSemantic(newest); err != nil {
		return "", fmt.Errorf("%s has no release: %s redirects to %s", releases, request.URL, location)
	}
	return newest, nil
}

// IsOlder reports whether this build is an earlier release than another one. If it is not a release, known is false:
// git describe numbers the commits after a release as if they were before it.
func (i Info) IsOlder(release string) (older, known bool) {
	own, err := utilversion.ParseSemantic(i.Version)
	if err != nil || strings.Contains(own.PreRelease(), "-") || strings.HasSuffix(i.Version, "dirty") {
		return false, false
	}
	order, err := own.Compare(release)
	return order < 0, err == nil
}
