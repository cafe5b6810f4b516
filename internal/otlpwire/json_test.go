// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

type exportRequest interface {
	MarshalJSON() ([]byte, error)
	UnmarshalJSON([]byte) error
	UnmarshalProto([]byte) error
}

func newExportRequest(s Signal) exportRequest {
	switch s {
	case Logs:
		return plogotlp.NewExportRequest()
	case Traces:
		return ptraceotlp.NewExportRequest()
	case Metrics:
		return pmetricotlp.NewExportRequest()
	}
	return pprofileotlp.NewExportRequest()
}

// readJSON is pdata's verdict without what it says of references, which come
// after the reading.
func readJSON(s Signal, data []byte) (exportRequest, error) {
	r := newExportRequest(s)
	err := r.UnmarshalJSON(data)
	if err != nil && s == Profiles && strings.HasPrefix(err.Error(), "resource profiles ") {
		err = nil
	}
	return r, err
}

// asJSON is what pdata makes of a request, or nil if it is not valid.
func asJSON(s Signal, payload []byte) []byte {
	r := newExportRequest(s)
	if r.UnmarshalProto(payload) != nil {
		return nil
	}
	data, err := r.MarshalJSON()
	if err != nil {
		return nil
	}
	return data
}

// What pdata reads although CheckJSON refuses it. No encoder writes any of it.
func tolerated(data []byte, err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	var first json.RawMessage
	switch {
	case json.NewDecoder(bytes.NewReader(data)).Decode(&first) != nil:
		return true // not JSON
	case e.Text == "the name of the field is empty":
		return true // ends the object, whatever follows
	case e.Text == "the string is no number":
		return bytes.IndexByte(data[e.Offset+1+unescapeLimit:], '"') >= 0 // long, with escapes
	}
	return errors.Is(err, ErrTooDeep)
}

// disagreeJSON compares CheckJSON with pdata on one request; the empty string
// is agreement.
func disagreeJSON(s Signal, data []byte) string {
	got := CheckJSON(s, data, 1000)
	r, want := readJSON(s, data)
	switch {
	case got == nil && want != nil:
		return fmt.Sprintf("CheckJSON accepts, pdata says %v", want)
	case got != nil && want == nil && !tolerated(data, got):
		return fmt.Sprintf("pdata accepts, CheckJSON says %v", got)
	case got == nil:
		if size, bound := sizeOf(reflect.ValueOf(r)), sizeBound(data); size > bound {
			return fmt.Sprintf("decodes to %d bytes, not %d or less", size, bound)
		}
	}
	return ""
}

// sizeBound counts the JSON's values as if each were of the largest kind, by
// another reader of JSON.
func sizeBound(data []byte) int {
	size := 1024 + len(data)
	for d, depth := json.NewDecoder(bytes.NewReader(data)), 0; ; {
		token, err := d.Token()
		if err != nil {
			return size
		}
		switch token {
		case json.Delim('{'), nil:
			size += 256
		default:
			size += 32
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return size
		}
	}
}

// sizeOf is the memory behind v, of slices what they have in use.
func sizeOf(v reflect.Value) (size int) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			if v.Kind() == reflect.Pointer {
				size = int(v.Type().Elem().Size())
			}
			size += sizeOf(v.Elem())
		}
	case reflect.String:
		size = v.Len()
	case reflect.Slice:
		size = v.Len() * int(v.Type().Elem().Size())
		if k := v.Type().Elem().Kind(); k == reflect.Struct || k == reflect.Pointer || k == reflect.String {
			for i := range v.Len() {
				size += sizeOf(v.Index(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			size += sizeOf(v.Field(i))
		}
	}
	return size
}

var jsonTokens = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|\[\]|\{\}`)

var replacements = []string{
	`1`, `-1`, `0`, `-0`, `1.5`, `1e3`, `0e9`, `-1E-3`, `1e400`, `-1e400`, `0.1e60`, `0.1e-60`, `1.7976931348623157e308`, `1.7976931348623159e308`,
	`2147483647`, `2147483648`, `-2147483648`, `-2147483649`, `4294967295`, `4294967296`, `5000000000`, `99999999999`,
	`9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `-9223372036854775809`,
	`18446744073709551615`, `18446744073709551616`, `50000000000000000000`, `1` + strings.Repeat("0", 400),
	`"1"`, `"-1"`, `"+1"`, `"1_0"`, `"0x1p3"`, `" 1"`, `"1.5"`, `"1E+3"`, `"1E\u002B3"`, `"\u0031"`, `"1\u00e9"`, `"4294967296"`, `"18446744073709551616"`, `"1e400"`,
	`"NaN"`, `"-Infinity"`, `"inf"`, `"` + strings.Repeat("0", 80) + `"`, `"\u0030` + strings.Repeat("0", 80) + `"`,
	`true`, `false`, `null`, `{}`, `[]`, `[1]`, `[{}]`, `[null]`, `["",null]`, `[[{"a":[1,{"":"\ud800\u0061"}]}],0.5,-7,true]`, `{"":1}`, `{"x":1e400}`, `{"x":{"y":[0]}}`,
	`""`, `"x"`, `"a\nb\"\\\/\ud83d\ude00\ud800"`, `",1,1,1,1"`, `"QUJD"`, `"QUI="`, `"QQ=="`, `"A==="`, `"QU=D"`, `"QUJ\/"`, `"QQ"`,
	`"0102030405060708"`, `"0102030405060708090A0b0c0d0e0f10"`, `"010203040506070809"`, `"01020304050607zz"`, `"01020304050607081"`,
	`"SPAN_KIND_SERVER"`, `"SEVERITY_NUMBER_TRACE "`, `"SEVERITY_NUMBER_TRACE"`, `"SEVERITY_NUMBER_INF\u004f2"`, `"STATUS_CODE_OK"`, `"AGGREGATION_TEMPORALITY_DELTA"`,
	`"sp\u0061ns"`, `"attributes"`, `"unknown"`, `"start_time_unix_nano"`, `1,"value":2`, `{"a":1}`, `{"a":1}garbage`,
}

// mutateJSON replaces tokens, names of fields among them, and a few bytes.
func (g *generator) mutateJSON(data []byte) []byte {
	for range g.IntN(3) {
		if all := jsonTokens.FindAllIndex(data, -1); len(all) > 0 {
			at := all[g.IntN(len(all))]
			with := replacements[g.IntN(len(replacements))]
			if g.IntN(4) == 0 { // another token of the same request
				other := all[g.IntN(len(all))]
				with = string(data[other[0]:other[1]])
			}
			data = append(append(append([]byte(nil), data[:at[0]]...), with...), data[at[1]:]...)
		}
	}
	switch g.IntN(6) {
	case 0:
		data = g.mutate(data)
	case 1: // twice
		if n := len(data); n > 0 {
			i := g.IntN(n)
			j := i + g.IntN(min(n-i, 40))
			data = append(append(append([]byte(nil), data[:j]...), data[i:j]...), data[j:]...)
		}
	}
	return data
}

func TestE06_CheckJSONAgreesWithPdata(t *testing.T) {
	const n = 8_000
	for _, s := range signals {
		t.Run(s.name, func(t *testing.T) {
			g := newGenerator(4)
			all := paths(s.signal)
			accepted := 0
			for i := range n {
				payload := g.request(s.signal)
				if i%4 != 0 {
					payload = g.around(all[i%len(all)])
				}
				data := asJSON(s.signal, payload)
				if data == nil { // references that do not resolve
					continue
				}
				require.NoError(t, CheckJSON(s.signal, data, 1000), "%s", data)
				data = g.mutateJSON(data)
				if why := disagreeJSON(s.signal, data); why != "" {
					t.Fatalf("%s\n%s", why, data)
				}
				if CheckJSON(s.signal, data, 1000) == nil {
					accepted++
				}
			}
			if accepted < n/8 || accepted > n*7/8 {
				t.Errorf("%d of %d requests are valid: too one-sided to tell much", accepted, n)
			}
		})
	}
}

// fuzzJSON is as fuzz, in differential_test.go.
func fuzzJSON(f *testing.F, s Signal) {
	for _, shape := range shapes {
		if shape.signal == s && shape.realistic {
			f.Add(asJSON(s, shape.payload(2)))
		}
	}
	g := newGenerator(5)
	for _, p := range paths(s) {
		for range 4 {
			if data := asJSON(s, g.around(p)); data != nil {
				f.Add(data)
				f.Add(g.mutateJSON(data))
			}
		}
	}
	for _, value := range replacements {
		f.Add([]byte(`{"unknown":` + value + `}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if why := disagreeJSON(s, data); why != "" {
			t.Fatal(why)
		}
	})
}

func FuzzE06JSON_Logs(f *testing.F)     { fuzzJSON(f, Logs) }
func FuzzE06JSON_Traces(f *testing.F)   { fuzzJSON(f, Traces) }
func FuzzE06JSON_Metrics(f *testing.F)  { fuzzJSON(f, Metrics) }
func FuzzE06JSON_Profiles(f *testing.F) { fuzzJSON(f, Profiles) }

// jsonAt is a request with the given value for a field of the message that p
// leads to.
func jsonAt(p path, name, value string) []byte {
	b := `{"` + name + `":` + value + `}`
	chain := []int{requests[p.signal]}
	for _, number := range p.fields {
		for _, f := range layouts[chain[len(chain)-1]].fields {
			if f.number == number {
				chain = append(chain, f.of)
			}
		}
	}
	for i := len(p.fields) - 1; i >= 0; i-- {
		for _, f := range layouts[chain[i]].fields {
			if f.number != p.fields[i] {
				continue
			}
			if newJSONField(&f).list {
				b = "[" + b + "]"
			}
			b = `{"` + f.name + `":` + b + `}`
		}
	}
	return []byte(b)
}

// Every field takes each of the values in both its spellings, or not, as pdata
// does; and of some values both refuse each.
func TestCheckJSONHasEveryFieldOfPdata(t *testing.T) {
	for _, s := range signals {
		for _, p := range paths(s.signal) {
			for _, f := range layouts[p.message].fields {
				for _, name := range []string{f.name, lowerCamel(f.name)} {
					taken := 0
					for _, value := range replacements {
						for _, v := range []string{value, "[" + value + "]"} {
							data := jsonAt(p, name, v)
							if why := disagreeJSON(s.signal, data); why != "" {
								t.Errorf("%s\n%s", why, data)
							}
							if CheckJSON(s.signal, data, 1000) == nil {
								taken++
							}
						}
					}
					assert.NotZero(t, taken, "%s.%s", layouts[p.message].name, name)
					wrong := "true"
					if formOf(&f) == formBool {
						wrong = "1"
					}
					data := jsonAt(p, name, wrong)
					_, err := readJSON(s.signal, data)
					require.Error(t, err, "%s", data)
					err = CheckJSON(s.signal, data, 1000)
					var e *Error
					require.ErrorAs(t, err, &e, "%s", data)
					assert.Equal(t, wrong, string(data[e.Offset:e.Offset+len(wrong)]))
					assert.True(t, strings.HasSuffix(e.Path, "."+f.name), "%s", e.Path)
				}
			}
		}
	}
}

// What pdata writes has no field that is not known.
func TestCheckJSONKnowsWhatPdataWrites(t *testing.T) {
	seen := map[string]bool{}
	var walk func(of int, v any)
	walk = func(of int, v any) {
		object, _ := v.(map[string]any)
		for name, v := range object {
			f, ok := jsonFields[of][name]
			if !assert.True(t, ok, "%s.%s", layouts[of].name, name) {
				continue
			}
			seen[layouts[of].name+"."+f.field.name] = true
			if f.form != formMessage {
				continue
			}
			if list, ok := v.([]any); ok {
				for _, v := range list {
					walk(f.of, v)
				}
				continue
			}
			walk(f.of, v)
		}
	}
	for _, s := range signals {
		g := newGenerator(6)
		for _, p := range paths(s.signal) {
			for range 300 {
				if data := asJSON(s.signal, g.around(p)); data != nil {
					var v any
					require.NoError(t, json.Unmarshal(data, &v))
					walk(requests[s.signal], v)
				}
			}
		}
	}
	for _, l := range layouts {
		for _, f := range l.fields {
			if f.number == 1000 || f.name == "string_value_strindex" || f.name == "key_strindex" { // replaced by what they stand for
				continue
			}
			assert.True(t, seen[l.name+"."+f.name], "%s.%s was not written", l.name, f.name)
		}
	}
}

func TestFormsAreThoseOfPdata(t *testing.T) {
	types := pdataTypes(t)
	kinds := map[form]reflect.Kind{
		formString: reflect.String, formBytes: reflect.Uint8, formBool: reflect.Bool, formDouble: reflect.Float64, formEnum: reflect.Int32,
		formInt32: reflect.Int32, formUint32: reflect.Uint32, formInt64: reflect.Int64, formUint64: reflect.Uint64,
	}
	for _, l := range layouts {
		for i := range l.fields {
			f := &l.fields[i]
			want, ok := kinds[formOf(f)]
			if !ok {
				continue
			}
			var typ reflect.Type
			if f.note >= oneof8 && f.note <= data {
				typ = types[l.name+"_"+camel(f.name)].Field(0).Type
			} else {
				member, _ := types[l.name].FieldByName(camel(f.name))
				typ = member.Type
			}
			if typ.Kind() == reflect.Slice {
				typ = typ.Elem()
			}
			assert.Equal(t, want, typ.Kind(), "%s.%s", l.name, f.name)
			assert.Equal(t, formOf(f) == formEnum, typ.Kind() == reflect.Int32 && typ.Name() != "int32", "%s.%s", l.name, f.name)
		}
	}
}

func TestEnumsAreThoseOfPdata(t *testing.T) {
	for field, c := range map[string]struct {
		prefix string
		name   func(int32) string
	}{
		"severity_number":         {"SEVERITY_NUMBER_", func(i int32) string { return plog.SeverityNumber(i).String() }},
		"kind":                    {"SPAN_KIND_", func(i int32) string { return ptrace.SpanKind(i).String() }},
		"code":                    {"STATUS_CODE_", func(i int32) string { return ptrace.StatusCode(i).String() }},
		"aggregation_temporality": {"AGGREGATION_TEMPORALITY_", func(i int32) string { return pmetric.AggregationTemporality(i).String() }},
	} {
		var want []string
		for i := int32(0); c.name(i) != ""; i++ {
			name := c.prefix + strings.ToUpper(c.name(i))
			if name == "SEVERITY_NUMBER_TRACE" {
				name += " "
			}
			want = append(want, name)
		}
		assert.Equal(t, want, enums[field])
	}
	for _, s := range signals {
		for _, p := range paths(s.signal) {
			for _, f := range layouts[p.message].fields {
				for field, names := range enums {
					for _, name := range names {
						data := jsonAt(p, f.name, `"`+name+`"`)
						if why := disagreeJSON(s.signal, data); why != "" {
							t.Errorf("%s %s: %s", field, data, why)
						}
					}
				}
			}
		}
	}
}

func TestCheckJSONRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		json string
		says string
	}{
		"nothing":              {``, `malformed: byte 0, ExportTraceServiceRequest: expected an object or null, found the end`},
		"cut":                  {`{"resourceSpans":[`, `malformed: byte 18, ExportTraceServiceRequest.resource_spans: expected an object or null, found the end`},
		"wrong element":        {`{"resourceSpans":[{"scopeSpans":[{"spans":[{},1,1]}]}]}`, `malformed: byte 46, ExportTraceServiceRequest.resource_spans.scope_spans.spans: expected an object or null, found "1"`},
		"wrong type":           {`{"resourceSpans":"x"}`, `malformed: byte 17, ExportTraceServiceRequest.resource_spans: expected an array or null, found "\""`},
		"escaped name":         {`{"resource\u0053pans":true}`, `malformed: byte 22, ExportTraceServiceRequest.resource_spans: expected an array or null, found "t"`},
		"empty name":           {`{"":1}`, `malformed: byte 1, ExportTraceServiceRequest: the name of the field is empty`},
		"unknown, not a value": {`{"a":[1,}`, `malformed: byte 8, ExportTraceServiceRequest.unknown field: expected a value, found "}"`},
		"deep":                 {`{"a":[[[[]]]]}`, `nested too deep: byte 8, ExportTraceServiceRequest.unknown field: more than 4 brackets inside one another`},
		"fraction":             {`{"resourceSpans":[{"resource":{"droppedAttributesCount":1.5}}]}`, `expected an integer, found a fraction or an exponent`},
		"id":                   {`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"00"}]}]}]}`, `trace_id: expected 32 hexadecimal digits or none, found 2 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			depth := 100
			if name == "deep" {
				depth = 4
			}
			err := CheckJSON(Traces, []byte(c.json), depth)
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.says)
		})
	}
	require.Error(t, CheckJSON(0, []byte(`{}`), 100))
	require.Error(t, CheckJSON(Profiles+1, []byte(`{}`), 100))
	for _, ok := range []string{`null`, ` {}`, `{} trailing`, `{"a":[[[[]]]]}`, `{"a":{"":1}}`} {
		require.NoError(t, CheckJSON(Traces, []byte(ok), 5), "%s", ok)
	}
}

// Wherever a valid request is cut, it is refused, and pdata would have gone on.
func TestCheckJSONRefusesWhatIsCut(t *testing.T) {
	data := asJSON(Traces, traces(2))
	for i := range len(data) {
		require.Error(t, CheckJSON(Traces, data[:i], 100))
	}
	require.NoError(t, CheckJSON(Traces, data, 100))
}

func TestCheckJSONDoesNotAllocate(t *testing.T) {
	for _, shape := range shapes {
		if !shape.realistic {
			continue
		}
		data := asJSON(shape.signal, shape.payload(20))
		require.NotEmpty(t, data, shape.name)
		assert.Zero(t, testing.AllocsPerRun(10, func() {
			if err := CheckJSON(shape.signal, data, 100); err != nil {
				t.Error(err)
			}
		}), shape.name)
	}
	data := []byte(`{"resource\u0053pans":[{"scopeSpans":[{"spans":[{"kind":"SPAN_KIND_SERVE\u0052","flags":"1","startTimeUnixNano":"\u0031",` +
		`"attributes":[{"value":{"doubleValue":"1E\u002B3"}},{"value":{"doubleValue":1.00000000000000000000000000000000000000000000001e300}}],"x":{"y":[0.5e3,1e9,"\n"]}}]}]}]}`)
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		if err := CheckJSON(Traces, data, 100); err != nil {
			t.Error(err)
		}
	}))
}

func BenchmarkCheckJSON(b *testing.B) {
	for _, shape := range shapes {
		if !shape.realistic {
			continue
		}
		data := asJSON(shape.signal, shape.payload(shape.n))
		b.Run(shape.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := CheckJSON(shape.signal, data, 100); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
