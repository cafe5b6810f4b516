// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelweir/weir/internal/refusal"
)

// maxKeptTenants bounds the memory that tenants of the past take: 1.5 KiB each
// here, and less for their lanes in delivery.
const maxKeptTenants = 4096

// keptTenants is up to how many tenants go on to be counted by name when
// nothing is left of them in the log: as many as there may be at once, but not
// so many that they alone are too many series.
func (c *Config) keptTenants() int {
	if !c.Tenant.Metrics {
		return 0
	}
	n := min(c.Tenant.MaxTenants, maxKeptTenants)
	if limit := seriesLimit(); limit > 0 {
		n = min(n, seriesTenants(limit))
	}
	return n
}

// tenantTable counts per tenant what the front counts in all, for
// tenant.metrics. A tenant is in it from its first acknowledged request on:
// senders cannot fill it with names. When nothing is left of it in the log it
// may be forgotten, and then counts from 0 when it comes back; what it had
// counted is then counted without its name, so that whoever adds up the rates
// of all series sees it twice. So that is done only beyond kept.
type tenantTable struct {
	kept int // tenants up to which none is forgotten

	mu     sync.RWMutex              // counting holds it for reading
	byName map[string]*tenantFigures // guarded by mu
	gone   tenantFigures             // what forgotten tenants had counted; guarded by mu
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
	return &tenantTable{kept: c.keptTenants(), byName: map[string]*tenantFigures{}}
}

// accept counts an acknowledged request.
func (t *tenantTable) accept(name string, s signal, items, bytes uint64) {
	count := func(f *tenantFigures) {
		f.accepted[s].items.Add(items)
		f.accepted[s].bytes.Add(bytes)
	}
	if t == nil || t.count(name, count) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.byName[name]
	if f == nil {
		f = &tenantFigures{}
		t.byName[name] = f
	}
	count(f)
}

// refuse counts a refused request of a tenant that is known, and reports
// whether it did. A failing disk is no tenant's: that is counted where there is
// a series from the start, so that an alert sees the first.
func (t *tenantTable) refuse(name string, reason refusal.Reason, s signal, tr transport) bool {
	return t != nil && reason != refusal.SyncIO && reason != refusal.AppendIO && t.count(name, func(f *tenantFigures) { f.refusals.add(reason, s, tr) })
}

// count calls add for a tenant that is known, and reports whether it is.
func (t *tenantTable) count(name string, add func(*tenantFigures)) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	f := t.byName[name]
	if f != nil {
		add(f)
	}
	return f != nil
}

// forget drops, of more than kept, tenants of which the log has nothing any
// more and that sent nothing since the last call.
func (t *tenantTable) forget(inLog map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, f := range t.byName {
		now := uint64(0)
		for s := range f.accepted {
			now += f.accepted[s].items.Load()
		}
		if now == f.seen && !inLog[name] && len(t.byName) > t.kept {
			t.gone.add(f)
			delete(t.byName, name)
		}
		f.seen = now
	}
}

// parts is a figure of every tenant of which it is not 0, and of all that were
// forgotten together.
func (t *tenantTable) parts(figure func(*tenantFigures) uint64) (parts map[string]uint64, forgotten uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	parts = map[string]uint64{}
	for name, f := range t.byName {
		if n := figure(f); n > 0 {
			parts[name] = n
		}
	}
	return parts, figure(&t.gone)
}

func (f *tenantFigures) add(more *tenantFigures) {
	for s := range f.accepted {
		f.accepted[s].items.Add(more.accepted[s].items.Load())
		f.accepted[s].bytes.Add(more.accepted[s].bytes.Load())
	}
	eachRefusal(func(reason refusal.Reason, s signal, tr transport) {
		f.refusals.counts[reason][s][tr].Add(more.refusals.count(reason, s, tr))
	})
}

// byTenant observes parts, by tenant, and the rest without that attribute: what
// is of no tenant, or of one that was forgotten. The rest is counted as such,
// not what is left of a total: that would go down between two looks, which
// nothing that only grows may.
func byTenant(o metric.Int64Observer, rest uint64, parts map[string]uint64, attributes ...attribute.KeyValue) {
	o.Observe(clamp(rest), metric.WithAttributes(attributes...))
	for name, n := range parts {
		o.Observe(clamp(n), metric.WithAttributes(append(attributes[:len(attributes):len(attributes)], attribute.String("tenant", name))...))
	}
}
