// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"go.opentelemetry.io/collector/confmap"
)

// Size is a number of bytes in a configuration: a plain count, or a string
// with a unit such as 128MiB or 1.5GiB (units of 1024) or 100MB (of 1000). It
// is always a whole number of bytes.
type Size uint64

// Units of configured sizes.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

var (
	_ confmap.ScalarUnmarshaler = (*Size)(nil)
	_ confmap.ScalarMarshaler   = Size(0)
)

var (
	errNegative = errors.New("a size cannot be negative")
	errFraction = errors.New("a size is a whole number of bytes")
	errTooLarge = fmt.Errorf("a size is at most %d bytes", uint64(math.MaxUint64))
	errNotASize = errors.New("a size is a count of bytes, or a number with a unit such as 128MiB")
)

// UnmarshalScalar reads a size as it stands in a configuration.
func (s *Size) UnmarshalScalar(v confmap.ScalarValue) error {
	raw := v.GetRaw()
	n, err := sizeOf(raw)
	if err != nil {
		return fmt.Errorf("%v is not a size: %w", raw, err)
	}
	*s = n
	return nil
}

// MarshalScalar writes a size so that reading it gives the same size.
func (s Size) MarshalScalar(v confmap.ScalarValue) error { return v.Marshal(s.String()) }

func sizeOf(raw any) (Size, error) {
	switch n := raw.(type) {
	case int:
		return sizeOf(int64(n))
	case int64:
		if n < 0 {
			return 0, errNegative
		}
		return Size(n), nil
	case uint64:
		return Size(n), nil
	case float64: // how YAML reads 1e9 and what does not fit an integer
		switch {
		case n < 0:
			return 0, errNegative
		case n != math.Trunc(n):
			return 0, errFraction
		case n >= math.MaxUint64:
			return 0, errTooLarge
		}
		return Size(n), nil
	case string:
		return parseSize(n)
	}
	return 0, errNotASize
}

func parseSize(text string) (Size, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "-") {
		return 0, errNegative
	}
	n, err := humanize.ParseBytes(text)
	if err != nil {
		if strings.Contains(err.Error(), "too large") || errors.Is(err, strconv.ErrRange) {
			return 0, errTooLarge
		}
		return 0, errNotASize
	}
	if strings.Contains(text, ".") && !wholeBytes(text, n) {
		return 0, errFraction
	}
	return Size(n), nil
}

// wholeBytes says whether text, a number with a fraction, is n bytes exactly:
// humanize cuts off what is left over.
func wholeBytes(text string, n uint64) bool {
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != ',' })
	if end < 0 {
		end = len(text)
	}
	number, err := strconv.ParseFloat(strings.ReplaceAll(text[:end], ",", ""), 64)
	if err != nil {
		return false
	}
	unit, err := humanize.ParseBytes("1" + text[end:])
	return err == nil && number*float64(unit) == float64(n)
}

// String is the size in the largest unit that expresses it exactly.
func (s Size) String() string {
	for _, u := range []struct {
		size Size
		name string
	}{{GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if s >= u.size && s%u.size == 0 {
			return strconv.FormatUint(uint64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(s), 10)
}
