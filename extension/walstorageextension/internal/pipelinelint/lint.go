// SPDX-License-Identifier: Apache-2.0

// Package pipelinelint checks, before anything starts, that the pipelines
// behind a log only say "done" when they are.
//
// A log settles a frame when Consume returns nil. A batch processor, or an
// exporter with a sending queue that does not wait for results, returns nil
// while the data is still in memory: what the log then reclaims is lost with
// the process. Such a pipeline makes the promise "nothing acknowledged is
// lost" false, so it is refused unless the operator asked for it (contract §6,
// require_synchronous).
//
// An exporter that retries by itself loses nothing, so it is only named: for as
// long as it does, up to five minutes by default, its lane looks as if it were
// delivering, and nobody is told of the outage.
//
// The check works on the Collector's effective configuration, in which every
// default is filled in. It reads only the keys it knows and lets pass what it
// does not: a component it cannot judge is named, never refused.
package pipelinelint // import "github.com/otelweir/weir/extension/walstorageextension/internal/pipelinelint"

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
)

// Finding is one component that acknowledges data too early.
type Finding struct {
	Receiver  string // the otlp_wal receiver whose data it is
	Pipeline  string
	Via       string // the connector through which the pipeline is reached, if any
	Component string // `processor "batch"`
	Why       string
	Remedy    string // names the line to change
}

// Error is the finding as one sentence an operator can act on.
func (f Finding) Error() string {
	via := ""
	if f.Via != "" {
		via = fmt.Sprintf(" (reached through connector %q)", f.Via)
	}
	return fmt.Sprintf("pipeline %q%s: %s %s, so data that receiver %q has acknowledged can be lost with the process: %s; "+
		"to accept that loss set receivers::%s::delivery::require_synchronous: false",
		f.Pipeline, via, f.Component, f.Why, f.Receiver, f.Remedy, f.Receiver)
}

// Result is the outcome of one check.
type Result struct {
	Findings []Finding
	Unknown  []string // components that could not be judged, as `exporter "x"`, sorted
	Retrying []string // the retry_on_failure keys of exporters that retry by themselves, sorted
}

// receiverType is the type of the receivers that are checked.
const receiverType = "otlp_wal"

// buffering are the processors that always return before their data has gone
// on: known by name, because nothing in their configuration says so.
var buffering = map[string]string{
	"batch":         "returns as soon as it has queued its data",
	"groupbytrace":  "holds its data in memory until a trace is complete",
	"interval":      "holds its data in memory until its interval ends",
	"logdedup":      "holds its data in memory until its interval ends",
	"tail_sampling": "holds its data in memory until its decision",
}

// synchronous are the components known to return only after what follows them
// has. An exporter that shows a sending_queue is judged by that instead.
var synchronous = map[string]bool{
	"exporter debug": true, "exporter nop": true,
	"exporter parquet": true, // retains what it buffers, see package barrier

	"processor attributes": true, "processor filter": true, "processor k8sattributes": true,
	"processor memory_limiter": true, "processor probabilistic_sampler": true, "processor redaction": true,
	"processor resource": true, "processor resourcedetection": true, "processor span": true, "processor transform": true,

	"connector count": true, "connector forward": true, "connector roundrobin": true, "connector routing": true,
}

// Check looks at every otlp_wal receiver that extension maintains and that has
// require_synchronous set. conf is the effective configuration as a map.
func Check(conf map[string]any, extension component.ID) Result {
	w := walker{
		conf:       conf,
		connectors: section(conf, "connectors"),
		pipelines:  section(conf, "service", "pipelines"),
		unknown:    map[string]bool{},
		retrying:   map[string]bool{},
	}
	receivers := section(conf, "receivers")
	for _, id := range sortedKeys(receivers) {
		if typeOf(id) == receiverType && concerns(asMap(receivers[id]), extension) {
			w.receiver = id
			w.visited = map[string]bool{}
			w.follow(id, "")
		}
	}
	return Result{Findings: w.findings, Unknown: sortedKeys(w.unknown), Retrying: sortedKeys(w.retrying)}
}

// concerns reports whether a receiver is this extension's and wants the check.
// A missing key has the receiver's default.
func concerns(receiver map[string]any, extension component.ID) bool {
	return text(receiver["storage"], "wal_storage") == extension.String() &&
		text(receiver["maintenance"], "extension") == "extension" &&
		truth(asMap(receiver["delivery"])["require_synchronous"], true)
}

type walker struct {
	conf       map[string]any
	connectors map[string]any
	pipelines  map[string]any

	receiver string          // whose data is followed
	visited  map[string]bool // pipelines; connectors may lead back
	findings []Finding
	unknown  map[string]bool
	retrying map[string]bool
}

// follow checks every pipeline that source (a receiver, or a connector in a
// receiver's place) feeds, and goes on through the connectors that end it.
func (w *walker) follow(source, via string) {
	for _, id := range sortedKeys(w.pipelines) {
		p := asMap(w.pipelines[id])
		if w.visited[id] || !slices.Contains(list(p["receivers"]), source) {
			continue
		}
		w.visited[id] = true
		for _, processor := range list(p["processors"]) {
			w.processor(id, via, processor)
		}
		for _, exporter := range list(p["exporters"]) {
			if _, ok := w.connectors[exporter]; ok {
				w.judgeByName("connector", exporter)
				w.follow(exporter, exporter)
				continue
			}
			w.exporter(id, via, exporter)
		}
	}
}

func (w *walker) processor(pipeline, via, id string) {
	why, ok := buffering[typeOf(id)]
	if !ok {
		w.judgeByName("processor", id)
		return
	}
	remedy := fmt.Sprintf("remove %q from service::pipelines::%s::processors", id, pipeline)
	if typeOf(id) == "batch" {
		remedy += " and batch in the exporter instead (its sending_queue::batch, with sending_queue::wait_for_result: true)"
	}
	w.find(pipeline, via, fmt.Sprintf("processor %q", id), why, remedy)
}

func (w *walker) exporter(pipeline, via, id string) {
	conf := section(w.conf, "exporters", id)
	for _, r := range found(conf, "exporters::"+id, "retry_on_failure") {
		if r.enabled {
			w.retrying[r.path] = true
		}
	}
	queues := found(conf, "exporters::"+id, "sending_queue")
	if len(queues) == 0 {
		w.judgeByName("exporter", id)
		return
	}
	for _, q := range queues {
		name := fmt.Sprintf("exporter %q", id)
		switch {
		case !q.enabled:
		case q.storage != "":
			w.find(pipeline, via, name,
				fmt.Sprintf("returns as soon as its data is in its persistent sending_queue (storage: %s), which cannot wait for results", q.storage),
				fmt.Sprintf("set %s::enabled: false (what cannot be sent stays in the log)", q.path))
		case !q.waits:
			w.find(pipeline, via, name,
				"returns as soon as its data is in its sending_queue",
				fmt.Sprintf("set %s::wait_for_result: true, or %s::enabled: false", q.path, q.path))
		}
	}
}

func (w *walker) judgeByName(kind, id string) {
	if !synchronous[kind+" "+typeOf(id)] {
		w.unknown[fmt.Sprintf("%s %q", kind, id)] = true
	}
}

func (w *walker) find(pipeline, via, name, why, remedy string) {
	w.findings = append(w.findings, Finding{
		Receiver: w.receiver, Pipeline: pipeline, Via: via, Component: name, Why: why, Remedy: remedy,
	})
}

// setting is one section of an exporter, such as its sending_queue.
type setting struct {
	path    string // as the configuration spells it
	enabled bool
	waits   bool   // of a queue
	storage string // of a queue
}

// found are the sections of a name in an exporter. Exporters that wrap others
// (a load balancer around otlp, say) have theirs further down.
func found(conf map[string]any, path, name string) (settings []setting) {
	for _, key := range sortedKeys(conf) {
		at := path + "::" + key
		if key != name {
			if sub, ok := conf[key].(map[string]any); ok {
				settings = append(settings, found(sub, at, name)...)
			}
			continue
		}
		c := asMap(conf[key]) // null or empty: it is off
		settings = append(settings, setting{
			path:    at,
			enabled: len(c) > 0 && truth(c["enabled"], true),
			waits:   truth(c["wait_for_result"], false),
			storage: text(c["storage"], ""),
		})
	}
	return settings
}

// The rest reads a configuration map whose leaves may be anything that
// marshals: a value of an unexpected kind counts as missing.

func section(conf map[string]any, path ...string) map[string]any {
	for _, key := range path {
		conf = asMap(conf[key])
	}
	return conf
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func list(v any) (ids []string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			ids = append(ids, text(e, ""))
		}
	case []string:
		ids = v
	}
	return ids
}

func text(v any, missing string) string {
	switch v := v.(type) {
	case nil:
		return missing
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
}

func truth(v any, missing bool) bool {
	if b, ok := v.(bool); ok {
		return b
	}
	return missing
}

func typeOf(id string) string {
	typ, _, _ := strings.Cut(id, "/")
	return typ
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
