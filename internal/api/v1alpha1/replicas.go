package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Replicas is the number of replicas of a component. Zero means that it is not set. In a setup file it may be null:
// then kcpctl leaves the number to others, such as a HorizontalPodAutoscaler.
type Replicas int32

// ReplicasUnmanaged is null.
const ReplicasUnmanaged Replicas = -1

// Managed reports whether kcpctl sets the number.
func (r Replicas) Managed() bool { return r != ReplicasUnmanaged }

// Count returns the number of replicas that a new component has. The default of Kubernetes is one.
func (r Replicas) Count() int32 { return max(1, int32(r)) }

// MarshalJSON implements json.Marshaler.
func (r Replicas) MarshalJSON() ([]byte, error) {
	if !r.Managed() {
		return []byte("null"), nil
	}
	return json.Marshal(int32(r))
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Replicas) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*r = ReplicasUnmanaged
		return nil
	}
	var n int32
	if err := json.Unmarshal(data, &n); err != nil {
		return errors.New("must be an integer or null")
	}
	if n < 1 {
		return fmt.Errorf("must be at least 1, not %d", n)
	}
	*r = Replicas(n)
	return nil
}

// Set reads the value of a flag.
func (r *Replicas) Set(value string) error { return r.UnmarshalJSON([]byte(value)) }

// String is the value of a flag. It is empty if the number is not set.
func (r *Replicas) String() string {
	if *r == 0 {
		return ""
	}
	text, _ := r.MarshalJSON() // it cannot fail
	return string(text)
}

// Type is the type of a flag, for its help.
func (*Replicas) Type() string { return "int" }
