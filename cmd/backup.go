package cmd

import (
	"context"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/client/etcd"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/workspace"
)

func newBackupCmd(env *Env) *cobra.Command {
	return newGroup("backup", "Take, list, verify and prune backups of all shards",
		newBackupCreateCmd(env), newBackupListCmd(env), newBackupVerifyCmd(env), newBackupPruneCmd(env))
}

// snapshots returns what the etcds of the setup are read through.
func (s *session) snapshots() (backup.Source, error) {
	if source, ok := workspace.Below(s.runtime).(backup.Source); ok {
		return source, nil
	}
	members, err := s.members()
	return &backup.Managed{Topology: s.topology, Members: members}, err
}

// etcdOf returns a client of the etcd of a shard. It returns nil if kcpctl cannot read it: an external etcd, or an
// embedded one in a pod.
func (s *session) etcdOf(ctx context.Context, c *topology.Component) (*etcd.Client, error) {
	source, err := s.snapshots()
	if err != nil || c.Storage.Etcd == "" && !s.topology.Local() {
		return nil, nil
	}
	client, _, err := source.Snapshots(ctx, c) // without a majority, it lists no keys
	return client, err
}

// openTarget opens the place of backups that a flag names.
func openTarget(env *Env, flag, place string) (archive.Target, error) {
	if place == "" {
		return nil, clierr.New(clierr.BadInput, "name a directory, such as "+flag+" ./backups, or a bucket",
			"%s is required", flag)
	}
	return archive.Open(place, env.Getenv)
}

// splitArchive divides the argument of a command into the target and the name of a backup in it: DIR/NAME, or a URL
// with its parameters at the end.
func splitArchive(env *Env, arg string) (archive.Target, string, error) {
	at, query, _ := strings.Cut(arg, "?")
	dir, name := path.Split(strings.TrimRight(at, "/"))
	if !archive.IsName(name) {
		return nil, "", clierr.New(clierr.BadInput,
			"kcpctl backup list --from DIR shows them: DIR/demo-20261123T221500Z", "%q is not a backup", arg)
	}
	if dir = strings.TrimRight(dir, "/"); dir == "" {
		dir = "."
	}
	if query != "" {
		dir += "?" + query
	}
	target, err := archive.Open(dir, env.Getenv)
	return target, name, err
}
