package topology

import "regexp"

// IsInstallationID reports whether a text has the form of the ID of an installation, such as demo-x7k2m9qd.
func IsInstallationID(id string) bool {
	return len(id) <= 63 && regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?-[a-z0-9]{8}$`).MatchString(id)
}

// Installation returns the ID of the installation that the setup file names, "" if it names none.
func (t *Topology) Installation() string {
	if t.Setup == nil {
		return ""
	}
	return t.Setup.Metadata.Installation
}
