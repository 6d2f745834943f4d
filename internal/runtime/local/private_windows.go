package local

import "os"

// PrivateDir creates a directory for secrets that this process needs while it is running, among the temporary files of
// this user. Other users cannot read those.
func PrivateDir(func(string) string) (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "kcpctl-*")
	if err != nil {
		return "", nil, explain(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}
