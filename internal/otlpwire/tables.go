// SPDX-License-Identifier: Apache-2.0

package otlpwire

// The tables below are OTLP as pdata v1.71.0 (profiles: v0.165.0, v1development)
// decodes it: which fields it knows, what it accepts for each, and what it
// allocates for it. Everything the walk does follows from them.
//
// Two tests hold them to pdata. Sizes and element types are compared with the
// real structs by reflection; fields, wire types and item counts by comparing
// verdicts on generated and mutated requests.

// kind is what a field is on the wire and what pdata makes of it.
type kind uint8

const (
	unknown       kind = iota // not in the table
	varint                    // integer, bool, enum
	fixed64                   //
	fixed32                   //
	text                      // string or bytes; copied
	texts                     // repeated string; []string
	id                        // bytes of the length in column of, or none; an array in the parent
	packedVarint              // repeated integer of as many bytes as column of says; packed or not
	packedFixed64             // repeated fixed64; packed or not

	// Messages, up to the last.
	embedded // a struct in the parent, merged when repeated
	pointer  // a member of a oneof; *T, replaced when repeated
	pointers // repeated; []*T
	values   // repeated; []T
)

// note is what else there is to know about a field.
type note uint8

const (
	plain      note = iota
	oneof8          // a member of a oneof, in a wrapper of 8 bytes
	oneof16         // of 16
	oneof24         // of 24
	data            // a metric's data: oneof8, and its items replace those of a data before it
	item            // counts as an item
	scopes          // wins over deprecated
	deprecated      // old number of scopes: read if there are none
	referring       // may refer to the string table of profiles
	dictionary      // has the table
	table           // the string table of profiles
)

// field is a row: number, name, kind, and message, length or element size.
type field struct {
	number int
	name   string
	kind   kind
	of     int
	note   note
}

// layout is one message: its name, the size of pdata's struct, its fields.
type layout struct {
	name   string
	size   int
	fields []field
}

const (
	exportLogs = iota
	resourceLogs
	resource
	keyValue
	anyValue
	arrayValue
	keyValueList
	entityRef
	scopeLogs
	scope
	logRecord
	exportTraces
	resourceSpans
	scopeSpans
	span
	spanEvent
	spanLink
	status
	exportMetrics
	resourceMetrics
	scopeMetrics
	metric
	gauge
	numberDataPoint
	exemplar
	sum
	histogram
	histogramDataPoint
	expHistogram
	expHistogramDataPoint
	buckets
	summary
	summaryDataPoint
	quantile
	exportProfiles
	resourceProfiles
	profilesResource
	scopeProfiles
	profilesScope
	profile
	valueType
	sample
	profilesDictionary
	mapping
	location
	line
	function
	link
	keyValueAndUnit
	stack
)

var layouts = [...]layout{
	exportLogs: {"ExportLogsServiceRequest", 24, []field{
		{1, "resource_logs", pointers, resourceLogs, plain},
	}},
	resourceLogs: {"ResourceLogs", 120, []field{
		{1, "resource", embedded, resource, plain},
		{2, "scope_logs", pointers, scopeLogs, scopes},
		{3, "schema_url", text, 0, plain},
		{1000, "deprecated_scope_logs", pointers, scopeLogs, deprecated},
	}},
	resource: {"Resource", 56, []field{
		{1, "attributes", values, keyValue, plain},
		{2, "dropped_attributes_count", varint, 0, plain},
		{3, "entity_refs", pointers, entityRef, plain},
	}},
	keyValue: {"KeyValue", 40, []field{
		{1, "key", text, 0, plain},
		{2, "value", embedded, anyValue, plain},
		{3, "key_strindex", varint, 0, plain},
	}},
	anyValue: {"AnyValue", 16, []field{
		{1, "string_value", text, 0, oneof16},
		{2, "bool_value", varint, 0, oneof8},
		{3, "int_value", varint, 0, oneof8},
		{4, "double_value", fixed64, 0, oneof8},
		{5, "array_value", pointer, arrayValue, oneof8},
		{6, "kvlist_value", pointer, keyValueList, oneof8},
		{7, "bytes_value", text, 0, oneof24},
		{8, "string_value_strindex", varint, 0, oneof16},
	}},
	arrayValue: {"ArrayValue", 24, []field{
		{1, "values", values, anyValue, plain},
	}},
	keyValueList: {"KeyValueList", 24, []field{
		{1, "values", values, keyValue, plain},
	}},
	entityRef: {"EntityRef", 80, []field{
		{1, "schema_url", text, 0, plain},
		{2, "type", text, 0, plain},
		{3, "id_keys", texts, 0, plain},
		{4, "description_keys", texts, 0, plain},
	}},
	scopeLogs: {"ScopeLogs", 104, []field{
		{1, "scope", embedded, scope, plain},
		{2, "log_records", pointers, logRecord, item},
		{3, "schema_url", text, 0, plain},
	}},
	scope: {"InstrumentationScope", 64, []field{
		{1, "name", text, 0, plain},
		{2, "version", text, 0, plain},
		{3, "attributes", values, keyValue, plain},
		{4, "dropped_attributes_count", varint, 0, plain},
	}},
	logRecord: {"LogRecord", 128, []field{
		{1, "time_unix_nano", fixed64, 0, plain},
		{2, "severity_number", varint, 0, plain},
		{3, "severity_text", text, 0, plain},
		{5, "body", embedded, anyValue, plain},
		{6, "attributes", values, keyValue, plain},
		{7, "dropped_attributes_count", varint, 0, plain},
		{8, "flags", fixed32, 0, plain},
		{9, "trace_id", id, 16, plain},
		{10, "span_id", id, 8, plain},
		{11, "observed_time_unix_nano", fixed64, 0, plain},
		{12, "event_name", text, 0, plain},
	}},
	exportTraces: {"ExportTraceServiceRequest", 24, []field{
		{1, "resource_spans", pointers, resourceSpans, plain},
	}},
	resourceSpans: {"ResourceSpans", 120, []field{
		{1, "resource", embedded, resource, plain},
		{2, "scope_spans", pointers, scopeSpans, scopes},
		{3, "schema_url", text, 0, plain},
		{1000, "deprecated_scope_spans", pointers, scopeSpans, deprecated},
	}},
	scopeSpans: {"ScopeSpans", 104, []field{
		{1, "scope", embedded, scope, plain},
		{2, "spans", pointers, span, item},
		{3, "schema_url", text, 0, plain},
	}},
	span: {"Span", 200, []field{
		{1, "trace_id", id, 16, plain},
		{2, "span_id", id, 8, plain},
		{3, "trace_state", text, 0, plain},
		{4, "parent_span_id", id, 8, plain},
		{5, "name", text, 0, plain},
		{6, "kind", varint, 0, plain},
		{7, "start_time_unix_nano", fixed64, 0, plain},
		{8, "end_time_unix_nano", fixed64, 0, plain},
		{9, "attributes", values, keyValue, plain},
		{10, "dropped_attributes_count", varint, 0, plain},
		{11, "events", pointers, spanEvent, plain},
		{12, "dropped_events_count", varint, 0, plain},
		{13, "links", pointers, spanLink, plain},
		{14, "dropped_links_count", varint, 0, plain},
		{15, "status", embedded, status, plain},
		{16, "flags", fixed32, 0, plain},
	}},
	spanEvent: {"SpanEvent", 56, []field{
		{1, "time_unix_nano", fixed64, 0, plain},
		{2, "name", text, 0, plain},
		{3, "attributes", values, keyValue, plain},
		{4, "dropped_attributes_count", varint, 0, plain},
	}},
	spanLink: {"SpanLink", 72, []field{
		{1, "trace_id", id, 16, plain},
		{2, "span_id", id, 8, plain},
		{3, "trace_state", text, 0, plain},
		{4, "attributes", values, keyValue, plain},
		{5, "dropped_attributes_count", varint, 0, plain},
		{6, "flags", fixed32, 0, plain},
	}},
	status: {"Status", 24, []field{
		{2, "message", text, 0, plain},
		{3, "code", varint, 0, plain},
	}},
	exportMetrics: {"ExportMetricsServiceRequest", 24, []field{
		{1, "resource_metrics", pointers, resourceMetrics, plain},
	}},
	resourceMetrics: {"ResourceMetrics", 120, []field{
		{1, "resource", embedded, resource, plain},
		{2, "scope_metrics", pointers, scopeMetrics, scopes},
		{3, "schema_url", text, 0, plain},
		{1000, "deprecated_scope_metrics", pointers, scopeMetrics, deprecated},
	}},
	scopeMetrics: {"ScopeMetrics", 104, []field{
		{1, "scope", embedded, scope, plain},
		{2, "metrics", pointers, metric, plain},
		{3, "schema_url", text, 0, plain},
	}},
	metric: {"Metric", 88, []field{
		{1, "name", text, 0, plain},
		{2, "description", text, 0, plain},
		{3, "unit", text, 0, plain},
		{5, "gauge", pointer, gauge, data},
		{7, "sum", pointer, sum, data},
		{9, "histogram", pointer, histogram, data},
		{10, "exponential_histogram", pointer, expHistogram, data},
		{11, "summary", pointer, summary, data},
		{12, "metadata", values, keyValue, plain},
	}},
	gauge: {"Gauge", 24, []field{
		{1, "data_points", pointers, numberDataPoint, item},
	}},
	numberDataPoint: {"NumberDataPoint", 88, []field{
		{2, "start_time_unix_nano", fixed64, 0, plain},
		{3, "time_unix_nano", fixed64, 0, plain},
		{4, "as_double", fixed64, 0, oneof8},
		{5, "exemplars", values, exemplar, plain},
		{6, "as_int", fixed64, 0, oneof8},
		{7, "attributes", values, keyValue, plain},
		{8, "flags", varint, 0, plain},
	}},
	exemplar: {"Exemplar", 72, []field{
		{2, "time_unix_nano", fixed64, 0, plain},
		{3, "as_double", fixed64, 0, oneof8},
		{4, "span_id", id, 8, plain},
		{5, "trace_id", id, 16, plain},
		{6, "as_int", fixed64, 0, oneof8},
		{7, "filtered_attributes", values, keyValue, plain},
	}},
	sum: {"Sum", 32, []field{
		{1, "data_points", pointers, numberDataPoint, item},
		{2, "aggregation_temporality", varint, 0, plain},
		{3, "is_monotonic", varint, 0, plain},
	}},
	histogram: {"Histogram", 32, []field{
		{1, "data_points", pointers, histogramDataPoint, item},
		{2, "aggregation_temporality", varint, 0, plain},
	}},
	histogramDataPoint: {"HistogramDataPoint", 160, []field{
		{2, "start_time_unix_nano", fixed64, 0, plain},
		{3, "time_unix_nano", fixed64, 0, plain},
		{4, "count", fixed64, 0, plain},
		{5, "sum", fixed64, 0, plain},
		{6, "bucket_counts", packedFixed64, 8, plain},
		{7, "explicit_bounds", packedFixed64, 8, plain},
		{8, "exemplars", values, exemplar, plain},
		{9, "attributes", values, keyValue, plain},
		{10, "flags", varint, 0, plain},
		{11, "min", fixed64, 0, plain},
		{12, "max", fixed64, 0, plain},
	}},
	expHistogram: {"ExponentialHistogram", 32, []field{
		{1, "data_points", pointers, expHistogramDataPoint, item},
		{2, "aggregation_temporality", varint, 0, plain},
	}},
	expHistogramDataPoint: {"ExponentialHistogramDataPoint", 192, []field{
		{1, "attributes", values, keyValue, plain},
		{2, "start_time_unix_nano", fixed64, 0, plain},
		{3, "time_unix_nano", fixed64, 0, plain},
		{4, "count", fixed64, 0, plain},
		{5, "sum", fixed64, 0, plain},
		{6, "scale", varint, 0, plain},
		{7, "zero_count", fixed64, 0, plain},
		{8, "positive", embedded, buckets, plain},
		{9, "negative", embedded, buckets, plain},
		{10, "flags", varint, 0, plain},
		{11, "exemplars", values, exemplar, plain},
		{12, "min", fixed64, 0, plain},
		{13, "max", fixed64, 0, plain},
		{14, "zero_threshold", fixed64, 0, plain},
	}},
	buckets: {"ExponentialHistogramDataPointBuckets", 32, []field{
		{1, "offset", varint, 0, plain},
		{2, "bucket_counts", packedVarint, 8, plain},
	}},
	summary: {"Summary", 24, []field{
		{1, "data_points", pointers, summaryDataPoint, item},
	}},
	summaryDataPoint: {"SummaryDataPoint", 88, []field{
		{2, "start_time_unix_nano", fixed64, 0, plain},
		{3, "time_unix_nano", fixed64, 0, plain},
		{4, "count", fixed64, 0, plain},
		{5, "sum", fixed64, 0, plain},
		{6, "quantile_values", pointers, quantile, plain},
		{7, "attributes", values, keyValue, plain},
		{8, "flags", varint, 0, plain},
	}},
	quantile: {"SummaryDataPointValueAtQuantile", 16, []field{
		{1, "quantile", fixed64, 0, plain},
		{2, "value", fixed64, 0, plain},
	}},
	exportProfiles: {"ExportProfilesServiceRequest", 192, []field{
		{1, "resource_profiles", pointers, resourceProfiles, plain},
		{2, "dictionary", embedded, profilesDictionary, dictionary},
	}},
	resourceProfiles: {"ResourceProfiles", 96, []field{
		{1, "resource", embedded, profilesResource, plain},
		{2, "scope_profiles", pointers, scopeProfiles, plain},
		{3, "schema_url", text, 0, plain},
	}},
	profilesResource: {"Resource", 56, []field{
		{1, "attributes", values, keyValue, referring},
		{2, "dropped_attributes_count", varint, 0, plain},
		{3, "entity_refs", pointers, entityRef, plain},
	}},
	scopeProfiles: {"ScopeProfiles", 104, []field{
		{1, "scope", embedded, profilesScope, plain},
		{2, "profiles", pointers, profile, plain},
		{3, "schema_url", text, 0, plain},
	}},
	profilesScope: {"InstrumentationScope", 64, []field{
		{1, "name", text, 0, plain},
		{2, "version", text, 0, plain},
		{3, "attributes", values, keyValue, referring},
		{4, "dropped_attributes_count", varint, 0, plain},
	}},
	profile: {"Profile", 152, []field{
		{1, "sample_type", embedded, valueType, plain},
		{2, "samples", pointers, sample, item},
		{3, "time_unix_nano", fixed64, 0, plain},
		{4, "duration_nano", varint, 0, plain},
		{5, "period_type", embedded, valueType, plain},
		{6, "period", varint, 0, plain},
		{7, "profile_id", id, 16, plain},
		{8, "dropped_attributes_count", varint, 0, plain},
		{9, "original_payload_format", text, 0, plain},
		{10, "original_payload", text, 0, plain},
		{11, "attribute_indices", packedVarint, 4, plain},
	}},
	valueType: {"ValueType", 8, []field{
		{1, "type_strindex", varint, 0, plain},
		{2, "unit_strindex", varint, 0, plain},
	}},
	sample: {"Sample", 80, []field{
		{1, "stack_index", varint, 0, plain},
		{2, "attribute_indices", packedVarint, 4, plain},
		{3, "link_index", varint, 0, plain},
		{4, "values", packedVarint, 8, plain},
		{5, "timestamps_unix_nano", packedFixed64, 8, plain},
	}},
	profilesDictionary: {"ProfilesDictionary", 168, []field{
		{1, "mapping_table", pointers, mapping, plain},
		{2, "location_table", pointers, location, plain},
		{3, "function_table", pointers, function, plain},
		{4, "link_table", pointers, link, plain},
		{5, "string_table", texts, 0, table},
		{6, "attribute_table", pointers, keyValueAndUnit, plain},
		{7, "stack_table", pointers, stack, plain},
	}},
	mapping: {"Mapping", 56, []field{
		{1, "memory_start", varint, 0, plain},
		{2, "memory_limit", varint, 0, plain},
		{3, "file_offset", varint, 0, plain},
		{4, "filename_strindex", varint, 0, plain},
		{5, "attribute_indices", packedVarint, 4, plain},
	}},
	location: {"Location", 64, []field{
		{1, "mapping_index", varint, 0, plain},
		{2, "address", varint, 0, plain},
		{3, "lines", pointers, line, plain},
		{4, "attribute_indices", packedVarint, 4, plain},
	}},
	line: {"Line", 24, []field{
		{1, "function_index", varint, 0, plain},
		{2, "line", varint, 0, plain},
		{3, "column", varint, 0, plain},
	}},
	function: {"Function", 24, []field{
		{1, "name_strindex", varint, 0, plain},
		{2, "system_name_strindex", varint, 0, plain},
		{3, "filename_strindex", varint, 0, plain},
		{4, "start_line", varint, 0, plain},
	}},
	link: {"Link", 24, []field{
		{1, "trace_id", id, 16, plain},
		{2, "span_id", id, 8, plain},
	}},
	keyValueAndUnit: {"KeyValueAndUnit", 24, []field{
		{1, "key_strindex", varint, 0, plain},
		{2, "value", embedded, anyValue, plain},
		{3, "unit_strindex", varint, 0, plain},
	}},
	stack: {"Stack", 24, []field{
		{1, "location_indices", packedVarint, 4, plain},
	}},
}

// forms are those of the scalars in JSON by the field's name, which means the
// same in all messages. Of the others, varints and fixed64 are uint64, fixed32
// are uint32, text is a string.
var forms = map[string]form{
	"bool_value":   formBool,
	"is_monotonic": formBool,

	"dropped_attributes_count": formUint32,
	"dropped_events_count":     formUint32,
	"dropped_links_count":      formUint32,
	"flags":                    formUint32,

	"offset":                formInt32,
	"scale":                 formInt32,
	"key_strindex":          formInt32,
	"string_value_strindex": formInt32,
	"type_strindex":         formInt32,
	"unit_strindex":         formInt32,
	"filename_strindex":     formInt32,
	"name_strindex":         formInt32,
	"system_name_strindex":  formInt32,
	"function_index":        formInt32,
	"link_index":            formInt32,
	"mapping_index":         formInt32,
	"stack_index":           formInt32,
	"attribute_indices":     formInt32,
	"location_indices":      formInt32,

	"int_value":  formInt64,
	"as_int":     formInt64,
	"values":     formInt64,
	"period":     formInt64,
	"line":       formInt64,
	"column":     formInt64,
	"start_line": formInt64,

	"double_value":    formDouble,
	"as_double":       formDouble,
	"sum":             formDouble,
	"min":             formDouble,
	"max":             formDouble,
	"zero_threshold":  formDouble,
	"quantile":        formDouble,
	"value":           formDouble,
	"explicit_bounds": formDouble,

	"bytes_value":      formBytes,
	"original_payload": formBytes,

	"severity_number":         formEnum,
	"kind":                    formEnum,
	"code":                    formEnum,
	"aggregation_temporality": formEnum,
}

// enums are the names that pdata takes for the values of a field; TRACE is with
// a space.
var enums = map[string][]string{
	"severity_number": {
		"SEVERITY_NUMBER_UNSPECIFIED",
		"SEVERITY_NUMBER_TRACE ", "SEVERITY_NUMBER_TRACE2", "SEVERITY_NUMBER_TRACE3", "SEVERITY_NUMBER_TRACE4",
		"SEVERITY_NUMBER_DEBUG", "SEVERITY_NUMBER_DEBUG2", "SEVERITY_NUMBER_DEBUG3", "SEVERITY_NUMBER_DEBUG4",
		"SEVERITY_NUMBER_INFO", "SEVERITY_NUMBER_INFO2", "SEVERITY_NUMBER_INFO3", "SEVERITY_NUMBER_INFO4",
		"SEVERITY_NUMBER_WARN", "SEVERITY_NUMBER_WARN2", "SEVERITY_NUMBER_WARN3", "SEVERITY_NUMBER_WARN4",
		"SEVERITY_NUMBER_ERROR", "SEVERITY_NUMBER_ERROR2", "SEVERITY_NUMBER_ERROR3", "SEVERITY_NUMBER_ERROR4",
		"SEVERITY_NUMBER_FATAL", "SEVERITY_NUMBER_FATAL2", "SEVERITY_NUMBER_FATAL3", "SEVERITY_NUMBER_FATAL4",
	},
	"kind":                    {"SPAN_KIND_UNSPECIFIED", "SPAN_KIND_INTERNAL", "SPAN_KIND_SERVER", "SPAN_KIND_CLIENT", "SPAN_KIND_PRODUCER", "SPAN_KIND_CONSUMER"},
	"code":                    {"STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"},
	"aggregation_temporality": {"AGGREGATION_TEMPORALITY_UNSPECIFIED", "AGGREGATION_TEMPORALITY_DELTA", "AGGREGATION_TEMPORALITY_CUMULATIVE"},
}

// cost is the oneof wrapper's size.
func (n note) cost() uint16 {
	switch n {
	case oneof8, data:
		return 8
	case oneof16:
		return 16
	case oneof24:
		return 24
	}
	return 0
}
