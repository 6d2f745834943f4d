package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/run"
)

// layoutHelp describes the folders of export and import.
const layoutHelp = `

  ca/server.crt              certificate; client, requestheader and etcd likewise
  ca/server.key              private key, readable only by its owner
  ca/server.bundle           further certificates that are trusted, if any
  service-account/sa.key     key that signs the tokens of service accounts`

// oneDir demands one argument.
func oneDir(c *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return clierr.New(clierr.BadInput, "run "+c.CommandPath()+" --help", "%s takes one folder, got %q", c.CommandPath(), args)
}

func newCertsExportCmd(g *globalOptions) *cobra.Command {
	o := &setupOptions{globalOptions: g}
	c := &cobra.Command{
		Use:   "export DIR",
		Short: "Write the authorities and service-account keys into a folder, as a backup",
		Long: `Export writes the authorities with their private keys, and the service-account keys, into a folder that only you can read.
It never overwrites others.` + layoutHelp,
		Args: oneDir,
		RunE: func(c *cobra.Command, args []string) error { return o.export(c.Context(), args[0]) },
	}
	o.addFlags(c.Flags())
	return c
}

func (o *setupOptions) export(ctx context.Context, dir string) error {
	return o.withState(ctx, func(s *session, _ pki.Store, state *pki.State) error {
		to := pki.DirectoryStore(dir)
		err := to.Save(ctx, state.Authorities())
		if errors.Is(err, pki.ErrChanged) {
			return clierr.New(clierr.Failed, "name another folder", "%s holds other authorities or keys: nothing was overwritten", dir)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(o.Streams.Err, "The authorities and service-account keys of kcp %q are in %s. Whoever has them is master of it: keep them safe.\n",
			s.Topology.Name, dir)
		return nil
	})
}

type certsImportOptions struct{ setupOptions }

func newCertsImportCmd(g *globalOptions) *cobra.Command {
	o := &certsImportOptions{setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "import DIR",
		Short: "Bring authorities and service-account keys of your own, or a backup",
		Long: `Import puts the authorities and keys of a folder into the setup's PKI. What the folder does not have is kept, or made by
kcpctl up. A certificate without its private key is accepted: then you also have to bring what it signs. An authority that
the setup has already is not replaced by another: rotate-ca --from does that.` + layoutHelp,
		Args: oneDir,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c.Context(), args[0]) },
	}
	o.addFlags(c.Flags())
	o.addOtherClusterFlag(c.Flags())
	return c
}

func (o *certsImportOptions) run(ctx context.Context, dir string) error {
	from, err := pki.DirectoryStore(dir).Load(ctx)
	if err != nil {
		return err
	}
	if len(from.CAs) == 0 && len(from.ServiceAccount.Key) == 0 {
		return clierr.New(clierr.BadInput, "see kcpctl certs import --help for the files", "%s holds no authority and no service-account key", dir)
	}
	s, err := o.load()
	if err != nil {
		return err
	}
	store, rt, err := s.openStore()
	if err != nil {
		return err
	}
	if rt != nil {
		defer rt.Close()
	}
	var did *pki.Brought
	change := func(to *pki.State) (*pki.State, error) {
		state, d, err := pki.Bring(to, from, o.Now())
		did = d
		return state, err
	}
	if rt != nil {
		err = run.ChangeStore(ctx, s.Topology, rt, change)
	} else {
		err = keep(ctx, store, change)
	}
	if err != nil {
		return err
	}
	o.tell(store, did)
	return nil
}

// keep changes a store that nothing has to be made for.
func keep(ctx context.Context, st pki.Store, change func(*pki.State) (*pki.State, error)) error {
	state, err := st.Load(ctx)
	if err != nil {
		return err
	}
	if state, err = change(state); err != nil {
		return err
	}
	return st.Save(ctx, state)
}

func (o *certsImportOptions) tell(st pki.Store, did *pki.Brought) {
	w := o.Streams.Err
	if len(did.Added) > 0 {
		fmt.Fprintf(w, "Added to %s: %s. kcpctl up issues certificates with what is there.\n", st, strings.Join(did.Added, ", "))
	}
	if len(did.Same) > 0 {
		fmt.Fprintf(w, "There already: %s.\n", strings.Join(did.Same, ", "))
	}
	for _, ca := range did.Keyless {
		fmt.Fprintf(w, "The %s CA has no private key here: bring the certificates that it signs too, or kcpctl up cannot issue them.\n", ca)
	}
}
