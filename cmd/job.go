package cmd

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// loadForJob loads a setup whose job is printed. It contacts no cluster.
func loadForJob(env *Env, flags *setupFlags) (*session, error) {
	if flags.local.enabled {
		return nil, clierr.New(clierr.BadInput, omitLocal, "--print-cronjob is for setups on a Kubernetes cluster")
	}
	return loadSetup(env, flags)
}

// mayRunInCluster fails if a job in the cluster of the setup could not reach everything. The hint is another way.
func (s *session) mayRunInCluster(hint string) error {
	spec := s.file.Setup.Spec
	switch {
	case s.directory != nil:
		return clierr.New(clierr.BadInput, hint, "a job in the cluster cannot read the directory with the certificates")
	case kubernetesClusters(&spec) > 1:
		return clierr.New(clierr.BadInput, hint,
			"a job has access to its own cluster only, and the setup has %d clusters", kubernetesClusters(&spec))
	}
	for _, c := range spec.Clusters {
		if c.As != "" {
			return clierr.New(clierr.BadInput, "omit as in spec.clusters, or "+hint,
				"a job cannot act as the user %q of spec.clusters", c.As)
		}
	}
	return nil
}

// printJob prints a job for the cluster of the setup, and everything that it needs. It completes the job.
func (s *session) printJob(j render.Job) error {
	j.Topology = s.topology
	j.Image = setup.KcpctlImage(&s.file.Setup.Spec)
	all, err := j.Objects()
	if err != nil {
		return err
	}
	for _, object := range all {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.env.Streams.Out, "---\n%s", text)
	}
	return nil
}
