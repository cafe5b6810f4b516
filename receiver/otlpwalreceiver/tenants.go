// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelweir/weir/internal/refusal"
)

// tenantTable counts per tenant what the front counts in all, for
// tenant.metrics. A tenant is in it from its first acknowledged request until
// nothing is left of it in the log: senders cannot fill it with names.
type tenantTable struct {
	mu     sync.RWMutex
	byName map[string]*tenantFigures // guarded by mu
}

type tenantFigures struct {
	accepted [len(signals) + 1]accepted
	refusals refusals

	seen uint64 // items accepted, as of the last look; guarded by the table's mu
}

// newTenantTable returns nil unless tenants are counted.
func newTenantTable(c *Config) *tenantTable {
	if !c.Tenant.Metrics {
		return nil
	}
	return &tenantTable{byName: map[string]*tenantFigures{}}
}

// of returns the figures of a tenant, nil when it is not counted.
func (t *tenantTable) of(name string) *tenantFigures {
	if t == nil {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byName[name]
}

// accept counts an acknowledged request.
func (t *tenantTable) accept(name string, s signal, items, bytes uint64) {
	if t == nil {
		return
	}
	f := t.of(name)
	if f == nil {
		t.mu.Lock()
		if f = t.byName[name]; f == nil {
			f = &tenantFigures{}
			t.byName[name] = f
		}
		t.mu.Unlock()
	}
	f.accepted[s].items.Add(items)
	f.accepted[s].bytes.Add(bytes)
}

// refuse counts a refused request of a tenant that is known.
func (t *tenantTable) refuse(name string, reason refusal.Reason, s signal, tr transport) {
	if f := t.of(name); f != nil {
		f.refusals.add(reason, s, tr)
	}
}

// forget drops tenants of which the log has nothing any more and that sent
// nothing since the last call.
func (t *tenantTable) forget(inLog map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, f := range t.byName {
		now := uint64(0)
		for s := range f.accepted {
			now += f.accepted[s].items.Load()
		}
		if now == f.seen && !inLog[name] {
			delete(t.byName, name)
		}
		f.seen = now
	}
}

// each calls f for every tenant.
func (t *tenantTable) each(f func(name string, figures *tenantFigures)) {
	if t == nil {
		return
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for name, figures := range t.byName {
		f(name, figures)
	}
}

// byTenant observes total in parts, by tenant, and what is left of it, without
// that attribute: the sum is always the total, also when tenants are
// forgotten. Without parts it observes the total.
func byTenant(o metric.Int64Observer, total uint64, parts map[string]uint64, attributes ...attribute.KeyValue) {
	rest := total
	for name, n := range parts {
		rest -= min(n, rest)
		o.Observe(clamp(n), metric.WithAttributes(append(attributes[:len(attributes):len(attributes)], attribute.String("tenant", name))...))
	}
	o.Observe(clamp(rest), metric.WithAttributes(attributes...))
}
