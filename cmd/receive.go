package cmd

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/client/etcd/datadir"
	"github.com/kcpctl/kcpctl/internal/client/etcd/transfer"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

type receiveOptions struct {
	env *Env
	dir string
}

// newReceiveCmd returns the command of the pods with which restore writes to volumes. It is not for users.
func newReceiveCmd(env *Env) *cobra.Command {
	o := &receiveOptions{env: env}
	c := &cobra.Command{
		Use:   transfer.Command,
		Short: "Receive the data of an etcd, and write it to its volume",
		Long: `Wait for the data of an etcd, which kcpctl restore sends through a port-forward, and replace a data
directory with it. The previous directory is moved aside. The pods of kcpctl restore run this command.`,
		Example: "  kcpctl " + transfer.Command + " --" + transfer.FlagDirectory + " /var/lib/kcp/etcd",
		Args:    noArgs,
		Hidden:  true,
		RunE:    withoutArgs(o.run),
	}
	c.Flags().StringVar(&o.dir, transfer.FlagDirectory, "", "data directory of the etcd (required)")
	return c
}

func (o *receiveOptions) run(ctx context.Context) error {
	if o.dir == "" {
		return clierr.New(clierr.BadInput, "name the data directory of the etcd",
			"--%s is required", transfer.FlagDirectory)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(transfer.Port)))
	if err != nil {
		return err
	}
	log := func(message string) { fmt.Fprintln(o.env.Streams.Err, message) }
	log("listening on " + l.Addr().String())
	s := &transfer.Server{Directory: datadir.Directory{Path: o.dir}, Log: log}
	return s.Serve(ctx, l)
}
