package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A member of a later release may say more than is known here.
func TestFieldsPassOverWhatIsUnknown(t *testing.T) {
	b := appendUint(nil, 1, 300)
	b = append(b, 7<<3|wire64, 1, 2, 3, 4, 5, 6, 7, 8)
	b = append(b, 9<<3|wire32, 1, 2, 3, 4)
	b = appendBytes(b, 2, "name")
	m, err := memberOf(appendBool(b, 5, true))
	require.NoError(t, err)
	require.Equal(t, Member{ID: 300, Name: "name", Learner: true}, m)
}

func TestFieldsRefuseWhatIsMalformed(t *testing.T) {
	whole := appendBytes(appendUint(nil, 1, 300), 2, "name")
	for name, b := range map[string][]byte{
		"cut in a number":    whole[:2],
		"cut in content":     whole[:len(whole)-1],
		"cut after a tag":    whole[:1],
		"length beyond it":   {2<<3 | wireBytes, 200, 1},
		"enormous length":    {2<<3 | wireBytes, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		"group, long gone":   {2<<3 | 3},
		"number without end": {1 << 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := memberOf(b)
			require.ErrorIs(t, err, errMalformed)
		})
	}
}
