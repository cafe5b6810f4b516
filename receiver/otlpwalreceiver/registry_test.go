// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap/zaptest/observer"
	"go.yaml.in/yaml/v3"
)

// entry is an instrument or an event of the registry: its attributes and what
// is said of each.
type entry struct {
	attributes map[string]attributeOf

	// Of instruments, as a reader shows them.
	kind, unit string
	bounds     []float64
}

type attributeOf struct {
	values   []string // all there are; nil = any
	optional bool
}

// instruments are metadata.yaml, by full name.
func instruments(t *testing.T) map[string]entry {
	t.Helper()
	b, err := os.ReadFile("../../metadata.yaml")
	require.NoError(t, err)
	type number struct {
		Type      string    `yaml:"value_type"`
		Monotonic bool      `yaml:"monotonic"`
		Bounds    []float64 `yaml:"bucket_boundaries"`
	}
	var file struct {
		Attributes map[string]struct {
			Name  string   `yaml:"name_override"`
			Enum  []string `yaml:"enum"`
			Level string   `yaml:"requirement_level"`
		} `yaml:"attributes"`
		Telemetry struct {
			Metrics map[string]struct {
				Prefix     string   `yaml:"prefix"`
				Unit       string   `yaml:"unit"`
				Attributes []string `yaml:"attributes"`
				Gauge      *number  `yaml:"gauge"`
				Sum        *number  `yaml:"sum"`
				Histogram  *number  `yaml:"histogram"`
			} `yaml:"metrics"`
		} `yaml:"telemetry"`
	}
	require.NoError(t, yaml.Unmarshal(b, &file))
	all := map[string]entry{}
	for name, m := range file.Telemetry.Metrics {
		e := entry{unit: m.Unit, attributes: map[string]attributeOf{}}
		switch {
		case m.Gauge != nil:
			e.kind = m.Gauge.Type + " gauge"
		case m.Sum != nil:
			e.kind = fmt.Sprintf("%s sum, monotonic %t", m.Sum.Type, m.Sum.Monotonic)
		case m.Histogram != nil:
			e.kind, e.bounds = m.Histogram.Type+" histogram", m.Histogram.Bounds
		}
		for _, key := range m.Attributes {
			a := file.Attributes[key]
			if a.Name == "" {
				a.Name = key
			}
			e.attributes[a.Name] = attributeOf{values: a.Enum, optional: a.Level == "opt_in"}
		}
		all[m.Prefix+name] = e
	}
	require.NotEmpty(t, all)
	return all
}

var (
	eventSection = regexp.MustCompile(`(?m)^### (\S+)\n((?:[^#\n].*\n|\n)*)`)
	eventRow     = regexp.MustCompile("(?m)^\\| (`.*`) \\| (.*?) \\| (.*?) ?\\|$")
	inCode       = regexp.MustCompile("`([^`]+)`")
	inBrackets   = regexp.MustCompile(`\([^)]*\)`)
)

// events are docs/events.md, by name.
func events(t *testing.T) map[string]entry {
	t.Helper()
	b, err := os.ReadFile("../../docs/events.md")
	require.NoError(t, err)
	all := map[string]entry{}
	for _, section := range eventSection.FindAllStringSubmatch(string(b), -1) {
		e := entry{attributes: map[string]attributeOf{}}
		for _, row := range eventRow.FindAllStringSubmatch(section[2], -1) {
			a := attributeOf{optional: row[3] != ""}
			for _, v := range inCode.FindAllStringSubmatch(inBrackets.ReplaceAllString(row[2], ""), -1) {
				a.values = append(a.values, v[1])
			}
			for _, key := range inCode.FindAllStringSubmatch(row[1], -1) {
				e.attributes[key[1]] = a
			}
		}
		require.NotEmpty(t, e.attributes, section[1])
		all[section[1]] = e
	}
	require.NotEmpty(t, all)
	return all
}

// fact is what a data point or the record of an event says.
type fact struct {
	name       string
	attributes map[string]string
	zero       bool // a point that says 0, or a histogram without an observation
}

// against lists where f is not as the registry has it.
func (f fact) against(registry map[string]entry) (bad []string) {
	e, ok := registry[f.name]
	if !ok {
		return []string{f.name + " is not registered"}
	}
	for key, value := range f.attributes {
		a, ok := e.attributes[key]
		switch {
		case !ok:
			bad = append(bad, fmt.Sprintf("%s has an attribute %s that is not registered", f.name, key))
		case a.values != nil && !slices.Contains(a.values, value):
			bad = append(bad, fmt.Sprintf("%s: %s=%s is not registered", f.name, key, value))
		}
	}
	for key, a := range e.attributes {
		if _, ok := f.attributes[key]; !ok && !a.optional {
			bad = append(bad, fmt.Sprintf("%s lacks the attribute %s", f.name, key))
		}
	}
	return bad
}

// pointsOf are an instrument's points, and its kind as the registry words it.
func pointsOf(m metricdata.Metrics) (points []fact, kind string, bounds []float64) {
	add := func(set attribute.Set, zero bool) {
		f := fact{name: m.Name, attributes: map[string]string{}, zero: zero}
		for _, kv := range set.ToSlice() {
			f.attributes[string(kv.Key)] = kv.Value.AsString()
		}
		points = append(points, f)
	}
	switch d := m.Data.(type) {
	case metricdata.Gauge[int64]:
		kind = "int gauge"
		for _, p := range d.DataPoints {
			add(p.Attributes, p.Value == 0)
		}
	case metricdata.Gauge[float64]:
		kind = "double gauge"
		for _, p := range d.DataPoints {
			add(p.Attributes, p.Value == 0)
		}
	case metricdata.Sum[int64]:
		kind = fmt.Sprintf("int sum, monotonic %t", d.IsMonotonic)
		for _, p := range d.DataPoints {
			add(p.Attributes, p.Value == 0)
		}
	case metricdata.Histogram[int64]:
		kind = "int histogram"
		for _, p := range d.DataPoints {
			add(p.Attributes, p.Count == 0)
			bounds = p.Bounds
		}
	case metricdata.Histogram[float64]:
		kind = "double histogram"
		for _, p := range d.DataPoints {
			add(p.Attributes, p.Count == 0)
			bounds = p.Bounds
		}
	default:
		kind = fmt.Sprintf("%T", m.Data)
	}
	return points, kind, bounds
}

// factOf is the event behind a log record, if it is one.
func factOf(r observer.LoggedEntry) (f fact, ok bool) {
	values := r.ContextMap()
	name, ok := values["event.name"]
	if !ok {
		return f, false
	}
	f = fact{name: fmt.Sprint(name), attributes: map[string]string{}}
	for _, field := range r.Context {
		if field.Key != "event.name" {
			f.attributes[field.Key] = fmt.Sprint(values[field.Key])
		}
	}
	return f, true
}

// pattern is what a fact is to be: a name and attributes, "*" = any value.
type pattern struct {
	name       string
	attributes map[string]string
}

func (p pattern) String() string {
	s := p.name
	for _, key := range slices.Sorted(maps.Keys(p.attributes)) {
		s += " " + key + "=" + p.attributes[key]
	}
	return s
}

func (p pattern) matches(f fact) bool {
	if p.name != f.name || f.zero {
		return false
	}
	for key, want := range p.attributes {
		if got, ok := f.attributes[key]; !ok || want != "*" && want != got {
			return false
		}
	}
	return true
}

// patterns reads "name key=value key=*". Where the registry enumerates a key's
// values, * is each of them in turn.
func patterns(registry map[string]entry, text string) []pattern {
	words := strings.Fields(text)
	all := []pattern{{name: words[0], attributes: map[string]string{}}}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		values := []string{value}
		if enum := registry[words[0]].attributes[key].values; value == "*" && enum != nil {
			values = enum
		}
		var next []pattern
		for _, p := range all {
			for _, v := range values {
				attributes := maps.Clone(p.attributes)
				attributes[key] = v
				next = append(next, pattern{p.name, attributes})
			}
		}
		all = next
	}
	return all
}

// unproved lists what of the registry no pattern speaks of: every entry, every
// optional attribute and every enumerated value has to be in one.
func unproved(registry map[string]entry, proved []pattern) (missing []string) {
	need := map[string]bool{}
	for name, e := range registry {
		need[name] = true
		for key, a := range e.attributes {
			if a.optional {
				need[name+" "+key+"=*"] = true
			}
			for _, v := range a.values {
				need[name+" "+key+"="+v] = true
			}
		}
	}
	for _, p := range proved {
		delete(need, p.name)
		for key, v := range p.attributes {
			delete(need, p.name+" "+key+"="+v)
			delete(need, p.name+" "+key+"=*")
		}
	}
	return slices.Sorted(maps.Keys(need))
}
