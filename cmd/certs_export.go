package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// pkiFilesHelp describes the directories of export and import.
const pkiFilesHelp = `

  ca/server.crt              certificate; client, requestheader and etcd likewise,
                             with the chain of an intermediate after it
  ca/server.key              private key, readable only by its owner
  ca/server.bundle           further trusted certificates, if any
  service-account/sa.key     key that signs service-account tokens
  encryption/encryption.key  key that encrypts objects in etcd`

type certsExportOptions struct {
	env   *Env
	setup setupFlags
	dir   string
}

func newCertsExportCmd(env *Env) *cobra.Command {
	o := &certsExportOptions{env: env}
	c := &cobra.Command{
		Use:   "export DIR",
		Short: "Back up the authorities and service-account keys to a directory",
		Long: `Write the authorities with their private keys, and the service-account keys, to a directory that only you
can read. Other authorities or keys are not overwritten.` + pkiFilesHelp,
		Example: "  kcpctl certs export pki-backup",
		Args:    oneArg("directory"),
		RunE:    withArg(&o.dir, o.run),
	}
	o.setup.add(c.Flags())
	return c
}

func (o *certsExportOptions) run(ctx context.Context) error {
	s, err := openStore(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	if _, err := s.leaveOut(ctx); err != nil {
		return err
	}
	state, err := s.loadPKI(ctx)
	if err != nil {
		return err
	}
	err = pki.DirectoryStore(o.dir).Save(ctx, state.Authorities())
	if errors.Is(err, pki.ErrChanged) {
		return clierr.New(clierr.Failed, "name another directory",
			"%s holds other authorities or keys; nothing was overwritten", o.dir)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(o.env.Streams.Err, "Exported the authorities and service-account keys of kcp %q to %s. "+
		"They give full control over it: keep them safe.\n", s.topology.Name, o.dir)
	return nil
}

type certsImportOptions struct {
	env   *Env
	setup setupFlags
	dir   string
	// identity is a file with a private key, for the PKI in a backup of kcpctl.
	identity string
	// fromCluster reads the Secrets of kcp-operator instead of a directory.
	fromCluster bool
	// replace replaces authorities and keys that the setup has.
	replace bool
	dryRun  bool
}

func newCertsImportCmd(env *Env) *cobra.Command {
	o := &certsImportOptions{env: env}
	c := &cobra.Command{
		Use:   "import {DIR | BACKUP --identity FILE | --from-cluster}",
		Short: "Import your own authorities and service-account keys, or a backup",
		Long: `Add the authorities and keys of a directory to the setup's PKI. kcpctl up creates those that are
missing. A certificate without its private key is accepted; you must then put the certificates that it
signs into the PKI store yourself. Import does not replace an authority that the setup already has:
use rotate-ca --from. Only if that authority has expired or is lost, use --replace-authorities, and then
up --replace-authorities.

With --identity, the argument is a backup of kcpctl backup create, and the authorities and keys in it are
imported. It changes no data, and kcp keeps serving.

With --from-cluster, it takes over those of the installation of kcp-operator from which the setup was
imported (spec.takeOver), in the home namespace: its server, client and requestheader CAs, which are
intermediates under one root, and the service-account keys of its shards. That of the root shard signs
from then on.
` + pkiFilesHelp,
		Example: `  kcpctl certs import pki-backup
  kcpctl certs import ./backups/demo-20261123T221500Z --identity key.txt
  kcpctl certs import --from-cluster`,
		Args: func(c *cobra.Command, args []string) error {
			if o.fromCluster {
				return noArgs(c, args)
			}
			return oneArg("directory")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if !o.fromCluster {
				o.dir = args[0]
			}
			return o.run(c.Context())
		},
	}
	o.setup.add(c.Flags())
	o.setup.addAllowOtherCluster(c)
	c.Flags().BoolVar(&o.replace, record.FlagReplaceAuthorities, false,
		"replace authorities and keys in the store, whatever the installation uses")
	listUnder(c.Flags(), GroupRisk, record.FlagReplaceAuthorities)
	c.Flags().BoolVar(&o.fromCluster, "from-cluster", false,
		"take over the authorities and keys of a kcp-operator installation")
	c.Flags().StringVar(&o.identity, "identity", "",
		"import from a backup of kcpctl: file with a private key of age that decrypts it")
	excludeFlag(c.Flags(), "from-cluster", "identity")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would be imported, and change nothing")
	return c
}

func (o *certsImportOptions) run(ctx context.Context) error {
	s, err := openStore(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	from, err := o.read(ctx, s)
	if err != nil {
		return err
	}
	var result *pki.ImportResult
	change := deploy.ChangeStore
	add := pki.Import
	if o.replace {
		change = deploy.ReplaceInStore
		add = pki.ImportReplacing
	}
	if o.dryRun {
		return o.preview(ctx, s, func(to *pki.State) (*pki.State, *pki.ImportResult, error) {
			return add(to, from, o.env.Now())
		})
	}
	err = change(ctx, s.topology, s.runtime, s.store(), func(to *pki.State) (state *pki.State, err error) {
		state, result, err = add(to, from, o.env.Now())
		return state, err
	})
	if err != nil {
		return err
	}
	o.printResult(s.store(), result)
	return nil
}

// preview prints what add would import, unless the installation refuses it. It takes no lock.
func (o *certsImportOptions) preview(
	ctx context.Context, s *session, add func(*pki.State) (*pki.State, *pki.ImportResult, error),
) error {
	to, err := s.store().Load(ctx)
	if err != nil {
		return err
	}
	after, result, err := add(to)
	if err != nil {
		return err
	}
	if s.runtime != nil {
		known, err := s.runtime.Record(ctx)
		switch {
		case err != nil:
		case o.replace:
			err = known.CheckEncryption(after, s.store().String())
		default:
			err = errors.Join(known.CheckRestored(), known.CheckAuthorities(after, s.store().String()))
		}
		if err != nil {
			return err
		}
	}
	o.printResult(s.store(), result)
	return nil
}

func (o *certsImportOptions) read(ctx context.Context, s *session) (*pki.State, error) {
	if o.fromCluster {
		installation, origin, err := openPredecessor(o.env, &o.setup, s.topology)
		if err != nil {
			return nil, err
		}
		return installation.PKI(ctx, origin)
	}
	if o.identity != "" {
		return o.readBackup(ctx)
	}
	from, err := pki.DirectoryStore(o.dir).Load(ctx)
	if err == nil && len(from.Fingerprints()) == 0 {
		hint := "run kcpctl certs import --help to see which files it reads"
		if _, err := os.Stat(filepath.Join(o.dir, archive.FileKeys)); err == nil {
			hint = "it is a backup: add --identity with the file with the private key of one of its recipients"
		}
		err = clierr.New(clierr.BadInput, hint, "%s holds no authorities and no keys", o.dir)
	}
	return from, err
}

func (o *certsImportOptions) readBackup(ctx context.Context) (*pki.State, error) {
	target, name, err := splitArchive(o.env, o.dir)
	if err != nil {
		return nil, err
	}
	m, err := archive.Load(ctx, target, name)
	if err != nil {
		return nil, err
	}
	identities, err := archive.Identities(o.identity)
	if err != nil {
		return nil, err
	}
	from, _, err := backup.Keys(ctx, target, m, identities)
	return from, err
}

func (o *certsImportOptions) printResult(store pki.Store, r *pki.ImportResult) {
	w := o.env.Streams.Err
	if len(r.Added) > 0 {
		next := "up"
		if o.replace {
			next += " --" + record.FlagReplaceAuthorities
		}
		done := "Imported"
		if o.dryRun {
			done = "Dry run: would be imported"
		}
		fmt.Fprintf(w, "%s into %s: %s. To issue certificates with them, run %s.\n",
			done, store, strings.Join(r.Added, ", "), o.setup.command(next))
	}
	if len(r.Same) > 0 {
		fmt.Fprintf(w, "Already present: %s.\n", strings.Join(r.Same, ", "))
	}
	for _, ca := range r.Keyless {
		fmt.Fprintf(w, "The %s CA has no private key, so kcpctl cannot issue its certificates: "+
			"put them into the PKI store yourself.\n", ca)
	}
}
