// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/otlpwire"
)

func TestD14_Tenant(t *testing.T) {
	log := &fakeLog{}
	optional := newRig(t, log, func(c *Config) { c.Tenant.MetadataKey = "X-Scope-OrgID" })
	required := newRig(t, log, func(c *Config) { c.Tenant.MetadataKey, c.Tenant.Required = "x-scope-orgid", true })
	payload, json := sample(t, otlpwire.Metrics)

	for name, c := range map[string]struct {
		rig     *rig
		values  []string
		tenant  string
		refused string // in the message; empty = accepted
		// What net/http's own client or grpc-go does not send, or what the
		// protocol trims.
		noHTTP, noGRPC bool
	}{
		"named":              {rig: optional, values: []string{"team-a"}, tenant: "team-a"},
		"missing":            {rig: optional, tenant: ""},
		"missing, required":  {rig: required, refused: "is missing and tenant.required is set"},
		"named, required":    {rig: required, values: []string{"team-b"}, tenant: "team-b"},
		"all printable":      {rig: optional, values: []string{"!~{}/?,;\"'"}, tenant: "!~{}/?,;\"'"},
		"twice":              {rig: optional, values: []string{"a", "a"}, refused: "has 2 values instead of one"},
		"empty":              {rig: optional, values: []string{""}, refused: "has 0 bytes, not 1..128"},
		"128 bytes":          {rig: optional, values: []string{strings.Repeat("t", 128)}, tenant: strings.Repeat("t", 128)},
		"129 bytes":          {rig: optional, values: []string{strings.Repeat("t", 129)}, refused: "has 129 bytes, not 1..128"},
		"space":              {rig: optional, values: []string{"a b"}, refused: "has byte 0x20 at 1"},
		"tab":                {rig: optional, values: []string{"a\tb"}, refused: "has byte 0x09 at 1", noGRPC: true},
		"delete":             {rig: optional, values: []string{"a\x7f"}, refused: "has byte 0x7f at 1", noHTTP: true, noGRPC: true},
		"not ASCII":          {rig: optional, values: []string{"caf\u00e9"}, refused: "has byte 0xc3 at 3", noGRPC: true},
		"not UTF-8":          {rig: optional, values: []string{"a\xff"}, refused: "has byte 0xff at 1", noGRPC: true},
		"several, separated": {rig: optional, values: []string{"a,b"}, tenant: "a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(t *testing.T, refused bool, message string) {
				t.Helper()
				frames := log.take()
				if c.refused != "" {
					assert.True(t, refused)
					assert.Contains(t, strings.ToLower(message), "invalid tenant: x-scope-orgid "+c.refused)
					assert.Empty(t, frames)
					return
				}
				require.False(t, refused, message)
				require.Len(t, frames, 1)
				assert.Equal(t, c.tenant, frames[0].frame.Tenant)
				tenant, kept, err := journal.DecodeMetadata(frames[0].frame.Metadata)
				require.NoError(t, err)
				assert.Equal(t, c.tenant, tenant)
				assert.Empty(t, kept)
			}
			if !c.noGRPC {
				t.Run("grpc", func(t *testing.T) {
					var pairs []string
					for _, v := range c.values {
						pairs = append(pairs, "x-scope-orgid", v)
					}
					ctx := grpcmetadata.AppendToOutgoingContext(t.Context(), pairs...)
					err := c.rig.export(ctx, otlpwire.Metrics, payload)
					if err != nil {
						assert.Equal(t, codes.InvalidArgument, status.Code(err))
						info, _ := details(t, status.Convert(err).Proto())
						assert.Equal(t, "invalid_tenant", info.GetReason())
					}
					check(t, err != nil, status.Convert(err).Message())
				})
			}
			if !c.noHTTP {
				for contentType, body := range map[string][]byte{contentProtobuf: payload, contentJSON: json} {
					t.Run(contentType, func(t *testing.T) {
						var header []string
						for _, v := range c.values {
							header = append(header, "X-Scope-OrgID", v)
						}
						a := c.rig.post(otlpwire.Metrics, contentType, body, header...)
						if a.code == 200 {
							check(t, false, "")
							return
						}
						assert.Equal(t, 400, a.code)
						s := a.status(t)
						info, _ := details(t, s)
						assert.Equal(t, "invalid_tenant", info.GetReason())
						check(t, true, s.GetMessage())
					})
				}
			}
		})
	}
}

func TestD14_EmptyRequestNeedsNoTenant(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, func(c *Config) { c.Tenant.MetadataKey, c.Tenant.Required = "x-scope-orgid", true })
	require.NoError(t, r.export(t.Context(), otlpwire.Logs, nil))
	assert.Equal(t, 200, r.post(otlpwire.Logs, contentProtobuf, nil).code)
	assert.Equal(t, 200, r.post(otlpwire.Logs, contentJSON, []byte("{}")).code)
	assert.Empty(t, log.take())
	r.atRest()
}

func TestD14_KeptMetadata(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, func(c *Config) {
		c.Tenant.MetadataKey = "x-scope-orgid"
		c.MetadataKeys = []string{"X-Region", "x-zone", "x-absent"}
	})
	payload, _ := sample(t, otlpwire.Traces)
	many := func(n int, value string) (header []string) {
		for range n {
			header = append(header, "x-zone", value)
		}
		return header
	}
	for name, c := range map[string]struct {
		header  []string
		kept    []journal.Entry
		refused string
	}{
		"in the order of the keys": {
			header: []string{"x-zone", "z1", "x-region", "eu", "x-zone", "z2", "x-other", "no"},
			kept:   []journal.Entry{{Key: "x-region", Value: "eu"}, {Key: "x-zone", Value: "z1"}, {Key: "x-zone", Value: "z2"}},
		},
		"nothing":    {},
		"64 entries": {header: many(64, "z"), kept: entries(64, "x-zone", "z")},
		"65 entries": {header: many(65, "z"), refused: "65 entries of metadata_keys exceed 64"},
		"16 KiB":     {header: many(2, strings.Repeat("z", 8<<10)), refused: "bytes of metadata_keys exceed 16384"},
		"just less than 16 KiB, encoded": {
			// 1 + "tenant" 6+3 + 2 entries of 6+3 bytes and their values
			header: many(2, strings.Repeat("z", (16<<10-1-9-18)/2)), kept: entries(2, "x-zone", strings.Repeat("z", (16<<10-1-9-18)/2)),
		},
		"one value too long to encode": {header: many(1, strings.Repeat("z", 70_000)), refused: "bytes of metadata_keys exceed 16384"},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(t *testing.T, message string) {
				t.Helper()
				frames := log.take()
				if c.refused != "" {
					assert.Contains(t, message, c.refused)
					assert.Empty(t, frames)
					return
				}
				require.Empty(t, message)
				require.Len(t, frames, 1)
				tenant, kept, err := journal.DecodeMetadata(frames[0].frame.Metadata)
				require.NoError(t, err)
				assert.Empty(t, tenant)
				assert.Equal(t, c.kept, kept)
				assert.LessOrEqual(t, len(frames[0].frame.Metadata), 16<<10)
			}
			t.Run("grpc", func(t *testing.T) {
				ctx := grpcmetadata.AppendToOutgoingContext(t.Context(), c.header...)
				err := r.export(ctx, otlpwire.Traces, payload)
				if err != nil {
					info, _ := details(t, status.Convert(err).Proto())
					assert.Equal(t, "invalid_metadata", info.GetReason())
				}
				check(t, status.Convert(err).Message())
			})
			t.Run("http", func(t *testing.T) {
				a := r.post(otlpwire.Traces, contentProtobuf, payload, c.header...)
				message := ""
				if a.code != 200 {
					assert.Equal(t, 400, a.code)
					message = a.status(t).GetMessage()
				}
				check(t, message)
			})
		})
	}
}

func entries(n int, key, value string) (e []journal.Entry) {
	for range n {
		e = append(e, journal.Entry{Key: key, Value: value})
	}
	return e
}
