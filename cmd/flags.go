package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// defaultFile is the setup file where no flag names another.
const defaultFile = "kcp.yaml"

// setupFlags lead to a setup: its file, its cluster or this machine, and its PKI.
type setupFlags struct {
	file       string
	kubeconfig string
	context    string
	namespace  string
	as         string
	asGroups   []string
	pkiDir     string
	// allowOtherCluster is a flag of commands that write: see addAllowOtherCluster.
	allowOtherCluster bool
	// allowLostRecord is the ID of an installation whose record is lost for good.
	allowLostRecord string
	// forgetClusters are clusters that are lost for good.
	forgetClusters []string
	local          localFlags
	// program is what users type to run kcpctl, or empty. loadSetup sets it.
	program string
}

func (f *setupFlags) add(flags *pflag.FlagSet) { f.addWithShorthand(flags, "f") }

// addStarting adds the flags of a command that can start something on this machine.
func (f *setupFlags) addStarting(flags *pflag.FlagSet) {
	f.add(flags)
	f.local.addBasePort(flags)
	f.local.addBinDir(flags)
	f.local.addURL(flags)
}

// addComparing adds the flags of a command that shows what up would start on this machine: another base port or other
// binaries are a difference.
func (f *setupFlags) addComparing(flags *pflag.FlagSet) {
	f.add(flags)
	f.local.addBasePort(flags)
	f.local.addBinDir(flags)
}

// addWithShorthand is for a command in which -f means something else than the setup file.
func (f *setupFlags) addWithShorthand(flags *pflag.FlagSet, file string) {
	flags.StringVarP(&f.file, "file", file, defaultFile, "setup file, or - for stdin")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "path to the kubeconfig (single-cluster setups only)")
	flags.StringVar(&f.context, "context", "", "kubeconfig context to use (single-cluster setups only)")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace to use (single-cluster setups only)")
	flags.StringVar(&f.as, "as", "", "user to impersonate on the clusters")
	flags.StringArrayVar(&f.asGroups, "as-group", nil, "group to impersonate together with --as (repeatable)")
	flags.StringVar(&f.pkiDir, "pki-dir", "",
		"directory with the certificates and keys, instead of the setup's PKI store")
	allow(flags, anywhere, "file", "kubeconfig", "context", "namespace", "as", "as-group")
	// The configuration file is shared by all setups, and each setup has its own certificates.
	allow(flags, []source{environment}, "pki-dir")
	listUnder(flags, GroupConnection, "file", "kubeconfig", "context", "namespace", "as", "as-group", "pki-dir")
	f.local.add(flags)
	requireFlag(flags, "as", "as-group")
	excludeFlag(flags, "local", "kubeconfig", "context", "namespace", "as", "as-group")
}

// addAll adds --all to a command that shows many things as one if they are alike.
func addAll(flags *pflag.FlagSet, all *bool, thing, common string) {
	flags.BoolVarP(all, "all", "A", false, fmt.Sprintf("list each %s, also many with the same %s", thing, common))
}

func (f *setupFlags) addAllowOtherCluster(c *cobra.Command) {
	addRisk(c, acceptance{risk: risk.OtherCluster, accept: set(&f.allowOtherCluster),
		usage: "use a cluster other than the one that the setup was applied to"})
}

// placeOnCluster writes where the flags say that the setup's only Kubernetes cluster is into the setup. The namespace
// is the root shard's.
func (f *setupFlags) placeOnCluster(file *setup.File) error {
	if f.kubeconfig == "" && f.context == "" && f.namespace == "" {
		return nil
	}
	spec := &file.Setup.Spec
	if n := kubernetesClusters(spec); n > 1 {
		return clierr.New(clierr.BadInput, "set them in the file, under spec.clusters, and omit the flags; they can "+
			"also come from variables such as KCPCTL_NAMESPACE or the configuration file: -n '' overrides it",
			"--kubeconfig, --context and --namespace work for single-cluster setups only, and %s has %d clusters",
			file.Name, n)
	}
	for i := range spec.Clusters {
		c := &spec.Clusters[i]
		c.Kubeconfig = cmp.Or(f.kubeconfig, c.Kubeconfig)
		c.Context = cmp.Or(f.context, c.Context)
		if c.Name == spec.RootShard.Cluster {
			c.Namespace = cmp.Or(f.namespace, c.Namespace)
		}
	}
	return nil
}

// kubernetesClusters returns how many Kubernetes clusters a setup has, as far as the setup file tells: an item of
// spec.clusters can be another namespace of a cluster, for example for agents.
func kubernetesClusters(spec *v1alpha1.Spec) int {
	seen := map[[2]string]bool{}
	for _, c := range spec.Clusters {
		seen[[2]string{c.Kubeconfig, c.Context}] = true
	}
	return len(seen)
}

// directory is the directory of the setup file, or the current one for stdin.
func (f *setupFlags) directory() string {
	if f.file == setup.Stdin {
		return "."
	}
	return filepath.Dir(f.file)
}

// pkiDirectory is the store of the PKI if the flags or the setup name a directory, else nil.
func (f *setupFlags) pkiDirectory(file *setup.File) pki.Store {
	dir := f.pkiDir
	if spec := file.Setup.Spec.PKI; dir == "" && spec.Store == v1alpha1.PKIStoreDirectory {
		dir = spec.Directory
		if !filepath.IsAbs(dir) && f.file != setup.Stdin {
			dir = filepath.Join(filepath.Dir(f.file), dir)
		}
	}
	if dir == "" {
		return nil
	}
	return pki.DirectoryStore(dir)
}

// waitFlags are the flags of commands that apply something and wait until it is ready.
type waitFlags struct {
	timeout    time.Duration
	skipCanary bool
	output     string
	// parallel is a flag of commands that change what runs: see addParallel.
	parallel number
}

// add adds the flags of a command that waits until something holds.
func (w *waitFlags) add(c *cobra.Command, until string) {
	addTimeout(c.Flags(), &w.timeout, "wait until "+until)
	c.Flags().BoolVar(&w.skipCanary, "skip-canary", false, "skip the test that creates a workspace on each shard")
	addEvents(c, &w.output)
}

// addParallel adds the flag of a command that may change many running shards.
func (w *waitFlags) addParallel(flags *pflag.FlagSet) {
	w.parallel = 1
	flags.Var(&w.parallel, "parallel", "how many shards to change at the same time")
}

// defaultTimeout is the default value of --timeout, in all commands: the longest of them move all workspaces of a
// shard, or change all components one after another.
const defaultTimeout = 30 * time.Minute

// limited limits a context to the value of --timeout. not completes the cause: not removed after 30m0s.
func limited(ctx context.Context, timeout time.Duration, not string) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not %s after %s", not, timeout))
}

// addTimeout adds --timeout. what completes a sentence that begins with the longest time to.
func addTimeout(flags *pflag.FlagSet, value *time.Duration, what string) {
	addDuration(flags, value, "timeout", defaultTimeout, "the longest time to "+what+" (0 means no limit)")
	allow(flags, anywhere, "timeout")
}

func addYes(flags *pflag.FlagSet, value *bool) {
	flags.BoolVarP(value, "yes", "y", false, "do not ask for confirmation")
}

// overrideFlags accept what a run refuses by default, because it loses something.
type overrideFlags struct {
	dataChange         []string
	releaseChange      bool
	replaceAuthorities bool
	trustChange        []string
	restoredRecord     bool
}

func (o *overrideFlags) add(c *cobra.Command, components completer) {
	addRisk(c, acceptance{risk: risk.DataChange, value: "COMPONENT", names: components, accept: collect(&o.dataChange),
		usage: "start it without its existing data, or remove it from its data"})
	addReleaseChange(c, &o.releaseChange)
	addRisk(c, acceptance{risk: risk.TrustChange, value: "FINGERPRINT", accept: o.trust,
		usage: "let this certificate or key become trusted, or stop being trusted"})
	addRisk(c, acceptance{risk: risk.RestoredRecord, accept: set(&o.restoredRecord),
		usage: "use a record of the installation that was restored from a backup and is older than the last change"})
	f := c.Flags()
	f.BoolVar(&o.replaceAuthorities, record.FlagReplaceAuthorities, false,
		"accept other certificate authorities and service-account keys than those in use, and create those that are "+
			"lost or have expired")
	listUnder(f, GroupRisk, record.FlagReplaceAuthorities)
}

func addReleaseChange(c *cobra.Command, value *bool) {
	addRisk(c, acceptance{risk: risk.ReleaseChange, accept: set(value),
		usage: "run a kcp release that skips a minor release or is older than the running one"})
}

func (o *overrideFlags) dataChanges() []topology.ID { return idsOfNames(o.dataChange) }

// trust adds fingerprints to trustChange, as messages have them.
func (o *overrideFlags) trust(fingerprints []string) error {
	for _, f := range fingerprints {
		digits := strings.TrimPrefix(strings.ToLower(f), "sha256:")
		if !regexp.MustCompile("^[0-9a-f]{16,64}$").MatchString(digits) {
			return fmt.Errorf("%q must be a fingerprint with at least 16 digits, such as sha256:0123456789abcdef: "+
				"copy it from the message that refuses it", f)
		}
		o.trustChange = append(o.trustChange, "sha256:"+digits)
	}
	return nil
}

func idsOfNames(names []string) []topology.ID {
	return mapped(names, func(name string) topology.ID { return topology.ID(name) })
}

// number is a number of things, at least one.
type number int

func (n *number) Type() string { return "int" }

func (n *number) String() string { return strconv.Itoa(int(*n)) }

func (n *number) Set(text string) error {
	v, err := strconv.ParseUint(text, 10, 15)
	if err != nil || v == 0 {
		return fmt.Errorf("invalid number %q: use 1 or more", text)
	}
	*n = number(v)
	return nil
}

// addDuration adds a flag with a duration, which cannot be negative.
func addDuration(flags *pflag.FlagSet, value *time.Duration, name string, byDefault time.Duration, usage string) {
	*value = byDefault
	flags.Var((*period)(value), name, usage)
}

// period is a duration that is not negative.
type period time.Duration

func (p *period) Type() string { return "duration" }

// String returns 0 for no time, which the help does not print as a default.
func (p *period) String() string {
	if *p == 0 {
		return "0"
	}
	return time.Duration(*p).String()
}

func (p *period) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d < 0 {
		return errors.New("must not be negative")
	}
	*p = period(d)
	return nil
}

const day = 24 * time.Hour

// days is a duration that can also be given in days: 30d, 1d12h, 720h.
type days time.Duration

func (d *days) Type() string { return "duration" }

func (d *days) String() string {
	if v := time.Duration(*d); v%day != 0 || v == 0 {
		return v.String()
	}
	return fmt.Sprintf("%dd", time.Duration(*d)/day)
}

func (d *days) Set(text string) error {
	n, rest, ok := strings.Cut(text, "d")
	total := time.Duration(0)
	if ok {
		whole, err := strconv.ParseUint(n, 10, 15)
		if err != nil {
			return invalidDuration(text)
		}
		total = time.Duration(whole) * day
	} else {
		rest = text
	}
	if rest != "" || !ok {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 {
			return invalidDuration(text)
		}
		total += more
	}
	*d = days(total)
	return nil
}

func invalidDuration(text string) error {
	return fmt.Errorf("invalid duration %q: use one such as 30d or 720h", text)
}
