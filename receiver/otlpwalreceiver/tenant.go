// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/collector/client"

	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/refusal"
)

// Bounds of what is kept of a client's metadata with each frame.
const (
	maxTenantLength    = 128 // bytes
	maxMetadataEntries = 64
	maxMetadataSize    = 16 << 10 // bytes, as encoded
	maxMetadataKey     = 255      // bytes; a frame states it in one byte
)

// identity reads from the client metadata of a request what its frame keeps:
// the tenant, and the configured further keys.
type identity struct {
	tenantKey string
	required  bool
	keys      []string // lower case, as client.Metadata has them

	// anonymous is the encoded metadata of a request of tenant "" with
	// nothing kept.
	anonymous []byte
}

func newIdentity(c *Config) (*identity, error) {
	anonymous, err := journal.EncodeMetadata("", nil)
	if err != nil {
		return nil, fmt.Errorf("encode empty metadata: %w", err)
	}
	id := &identity{tenantKey: c.Tenant.MetadataKey, required: c.Tenant.Required, anonymous: anonymous}
	for _, k := range c.MetadataKeys {
		id.keys = append(id.keys, strings.ToLower(k))
	}
	return id, nil
}

// of returns the tenant of the request behind ctx and its metadata as encoded
// for the frame. The metadata must not be modified.
func (id *identity) of(ctx context.Context) (tenant string, metadata []byte, err error) {
	if id.tenantKey == "" && len(id.keys) == 0 {
		return "", id.anonymous, nil
	}
	md := client.FromContext(ctx).Metadata
	if id.tenantKey != "" {
		if tenant, err = id.tenant(md.Get(id.tenantKey)); err != nil {
			return "", nil, err
		}
	}
	var kept []journal.Entry
	for _, k := range id.keys {
		for _, v := range md.Get(k) {
			kept = append(kept, journal.Entry{Key: k, Value: v})
		}
	}
	if len(kept) > maxMetadataEntries {
		return "", nil, &refusal.Error{
			Reason: refusal.InvalidMetadata, Pre: uint64(len(kept)), Limit: maxMetadataEntries,
			Text: fmt.Sprintf("invalid metadata: %d entries of metadata_keys exceed %d", len(kept), maxMetadataEntries),
		}
	}
	size := 0
	for _, e := range kept {
		size += len(e.Key) + len(e.Value)
	}
	if size <= maxMetadataSize {
		if metadata, err = journal.EncodeMetadata(tenant, kept); err != nil {
			return "", nil, &refusal.Error{Reason: refusal.InvalidMetadata, Cause: err, Text: fmt.Sprintf("invalid metadata: %v", err)}
		}
		size = len(metadata)
	}
	if size > maxMetadataSize {
		return "", nil, &refusal.Error{
			Reason: refusal.InvalidMetadata, Pre: uint64(size), Limit: maxMetadataSize,
			Text: fmt.Sprintf("invalid metadata: %d bytes of metadata_keys exceed %d", size, maxMetadataSize),
		}
	}
	return tenant, metadata, nil
}

// tenant applies the grammar: 1–128 bytes of printable ASCII without space,
// exactly one value.
func (id *identity) tenant(values []string) (string, error) {
	switch {
	case len(values) == 0 && id.required:
		return "", id.invalid("is missing and tenant.required is set")
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", id.invalid(fmt.Sprintf("has %d values instead of one", len(values)))
	}
	tenant := values[0]
	if n := len(tenant); n == 0 || n > maxTenantLength {
		return "", id.invalid(fmt.Sprintf("has %d bytes, not 1..%d", n, maxTenantLength))
	}
	for i := range len(tenant) {
		if c := tenant[i]; c <= ' ' || c > '~' {
			return "", id.invalid(fmt.Sprintf("has byte 0x%02x at %d; only printable ASCII without space is allowed", c, i))
		}
	}
	return tenant, nil
}

func (id *identity) invalid(what string) error {
	return &refusal.Error{Reason: refusal.InvalidTenant, Text: fmt.Sprintf("invalid tenant: %s %s", id.tenantKey, what)}
}

func (c *Config) validateTenant(p *problems) {
	if k := c.Tenant.MetadataKey; k != "" {
		validateMetadataKey(p, "tenant.metadata_key", k)
	} else if c.Tenant.Required {
		p.add("tenant.required", true, "needs tenant.metadata_key: no request could ever name its tenant")
	}
	inRange(p, "tenant.max_tenants", c.Tenant.MaxTenants, 1, 65536, "the log's record of its tenants is written at every barrier")

	if n := len(c.MetadataKeys); n > maxMetadataEntries {
		p.add("metadata_keys", fmt.Sprintf("%d keys", n), fmt.Sprintf("must be at most %d: no frame keeps more", maxMetadataEntries))
	}
	seen := map[string]bool{strings.ToLower(c.Tenant.MetadataKey): true}
	for _, k := range c.MetadataKeys {
		validateMetadataKey(p, "metadata_keys", k)
		if seen[strings.ToLower(k)] {
			p.add("metadata_keys", k, "is kept already, as tenant.metadata_key or under another case")
		}
		seen[strings.ToLower(k)] = true
	}
}

// validateMetadataKey wants a name that both an HTTP header and gRPC metadata
// can have.
func validateMetadataKey(p *problems, key, name string) {
	if name == "" || len(name) > maxMetadataKey {
		p.add(key, fmt.Sprintf("%q", name), fmt.Sprintf("must have 1..%d bytes", maxMetadataKey))
		return
	}
	for _, c := range strings.ToLower(name) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.ContainsRune("-_.", c)) {
			p.add(key, fmt.Sprintf("%q", name), "may have only letters, digits, '-', '_' and '.', as names of gRPC metadata do")
			return
		}
	}
}
