package cmd

func (o *kubeconfigOptions) mergeInto(_ *session, _ []byte) error { return nil }
