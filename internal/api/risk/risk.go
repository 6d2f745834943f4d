// Package risk names what commands refuse unless a user accepts it with --allow.
package risk

// Risk is a value of --allow, or the part before = of one.
type Risk string

// The risks.
const (
	// DataChange: a component starts without its data, or is removed from its data.
	DataChange Risk = "data-change"
	// LostInstallation: what a restored installation uses outside of kcp is taken from one that may still run.
	LostInstallation Risk = "lost-installation"
	// LostRecord: an installation whose record is lost for good is replaced.
	LostRecord Risk = "lost-record"
	// OtherBackup: a backup takes the place of another one, whose restore was interrupted.
	OtherBackup Risk = "other-backup"
	// OtherCluster: a cluster is not the one that the setup was applied to.
	OtherCluster Risk = "other-cluster"
	// ReleaseChange: a kcp release skips a minor release, or is older than the running one.
	ReleaseChange Risk = "release-change"
	// RestoredRecord: the record of the installation was restored from a backup.
	RestoredRecord Risk = "restored-record"
	// TrustChange: a certificate or key becomes trusted, or stops being trusted.
	TrustChange Risk = "trust-change"
	// Unreachable: a cluster is left out because it cannot be reached.
	Unreachable Risk = "unreachable"
	// UnverifiedCopy: a moved workspace could not be compared with the original.
	UnverifiedCopy Risk = "unverified-copy"
	// WorkspaceLoss: a shard is removed whose workspaces cannot be listed.
	WorkspaceLoss Risk = "workspace-loss"
)

// Flag returns the flag that accepts the risk.
func (r Risk) Flag() string { return "--allow " + string(r) }

// Of returns the flag that accepts the risk for something, or for several things separated by commas.
func (r Risk) Of(name string) string { return r.Flag() + "=" + name }
