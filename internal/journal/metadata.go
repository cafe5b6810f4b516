// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"math"
)

// Entry is one piece of client metadata kept with a frame. Keys may repeat.
type Entry struct{ Key, Value string }

// maxTenant is the longest tenant name in bytes: what STATE has room for.
const maxTenant = 128

// tenantKey is the key of entry 0.
const tenantKey = "tenant"

// tenantPrefix is how many bytes of metadata hold the tenant at most.
const tenantPrefix = 1 + 1 + len(tenantKey) + 2 + maxTenant

// Metadata of a frame:
//
//	u8 count, then per entry: u8 key length, key, u16 value length, value
//
// Entry 0 is "tenant".

// EncodeMetadata encodes a frame's metadata. It fails when the tenant is
// longer than 128 bytes, a key longer than 255, a value or the whole longer
// than 65535, or there are more than 254 entries.
func EncodeMetadata(tenant string, kept []Entry) ([]byte, error) {
	if len(tenant) > maxTenant {
		return nil, fmt.Errorf("tenant of %d bytes: at most %d", len(tenant), maxTenant)
	}
	if len(kept) > math.MaxUint8-1 {
		return nil, fmt.Errorf("%d metadata entries: at most %d", len(kept), math.MaxUint8-1)
	}
	n := 1 + 1 + len(tenantKey) + 2 + len(tenant)
	for i := range kept {
		if len(kept[i].Key) > math.MaxUint8 || len(kept[i].Value) > math.MaxUint16 {
			return nil, fmt.Errorf("metadata entry %q: key of %d bytes, value of %d", kept[i].Key, len(kept[i].Key), len(kept[i].Value))
		}
		n += 1 + len(kept[i].Key) + 2 + len(kept[i].Value)
	}
	if n > math.MaxUint16 {
		return nil, fmt.Errorf("metadata of %d bytes: at most %d", n, math.MaxUint16)
	}
	b := make([]byte, 0, n)
	b = append(b, byte(1+len(kept)))
	b = appendEntry(b, tenantKey, tenant)
	for i := range kept {
		b = appendEntry(b, kept[i].Key, kept[i].Value)
	}
	return b, nil
}

func appendEntry(b []byte, key, value string) []byte {
	b = append(append(b, byte(len(key))), key...)
	return append(le.AppendUint16(b, uint16(len(value))), value...)
}

var errMetadata = errors.New("malformed frame metadata")

// DecodeMetadata is the inverse of EncodeMetadata.
func DecodeMetadata(b []byte) (tenant string, kept []Entry, err error) {
	if len(b) == 0 || b[0] == 0 {
		return "", nil, errMetadata
	}
	count, b := int(b[0]), b[1:]
	for i := range count {
		key, value, rest, ok := nextEntry(b)
		if !ok || (i == 0 && string(key) != tenantKey) {
			return "", nil, errMetadata
		}
		if i == 0 {
			tenant = string(value)
		} else {
			kept = append(kept, Entry{string(key), string(value)})
		}
		b = rest
	}
	if len(b) != 0 {
		return "", nil, errMetadata
	}
	return tenant, kept, nil
}

func nextEntry(b []byte) (key, value, rest []byte, ok bool) {
	if len(b) < 1 || len(b) < 1+int(b[0])+2 {
		return nil, nil, nil, false
	}
	key, b = b[1:1+int(b[0])], b[1+int(b[0]):]
	n := int(le.Uint16(b))
	if len(b) < 2+n {
		return nil, nil, nil, false
	}
	return key, b[2 : 2+n], b[2+n:], true
}

// tenantOf finds entry 0's value in the first bytes of metadata; it does not
// allocate.
func tenantOf(b []byte) ([]byte, bool) {
	if len(b) == 0 || b[0] == 0 {
		return nil, false
	}
	key, value, _, ok := nextEntry(b[1:])
	return value, ok && string(key) == tenantKey && len(value) <= maxTenant
}
