package bytesize_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
)

func TestFormat(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 20 << 20: "20 MiB", 2 << 30: "2.0 GiB", 5 << 50: "5120 TiB"} {
		require.Equal(t, want, bytesize.Format(n))
	}
}

func TestOf(t *testing.T) { require.Equal(t, "512 B of 1.0 KiB", bytesize.Of(512, 1024)) }
