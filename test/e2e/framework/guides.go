package framework

// Exposed is a cluster whose load balancers clients reach.
type Exposed struct{ *Cluster }

func (e *Exposed) Flags(string) []string { return []string{"--namespace", e.Namespace} }
