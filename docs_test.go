// SPDX-License-Identifier: Apache-2.0

package weir_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/extension/walstorageextension"
	"github.com/otelweir/weir/receiver/otlpwalreceiver"
)

// keys collects the configuration keys of our own structs, in dotted form.
// Embedded Collector structs count as one key.
func keys(t reflect.Type, prefix string, into map[string]bool) {
	for f := range fields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		key := prefix + tag
		inner := f.Type
		if m, ok := reflect.PointerTo(inner).MethodByName("Get"); ok { // configoptional.Optional
			inner = m.Type.Out(0).Elem()
			into[key] = true // its presence means something
		}
		ours := strings.HasPrefix(inner.PkgPath(), "github.com/otelweir/weir/") && inner.Kind() == reflect.Struct
		switch {
		case tag == "" && strings.Contains(options, "squash"), tag == "":
		case ours:
			keys(inner, key+".", into)
		default:
			into[key] = true
		}
	}
}

func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// TestConfigurationIsDocumented: docs/configuration.md has every key of both
// components, and none that does not exist.
func TestConfigurationIsDocumented(t *testing.T) {
	b, err := os.ReadFile("docs/configuration.md")
	require.NoError(t, err)
	extension, receiver, ok := strings.Cut(string(b), "\n## Receiver ")
	require.True(t, ok, "a section for the receiver")
	for _, c := range []struct {
		name   string
		config any
		text   string
	}{
		{"wal_storage", walstorageextension.NewFactory().CreateDefaultConfig(), extension},
		{"otlp_wal", otlpwalreceiver.NewFactory().CreateDefaultConfig(), receiver},
	} {
		want := map[string]bool{}
		keys(reflect.TypeOf(c.config).Elem(), "", want)
		require.NotEmpty(t, want)
		documented := documentedKeys(c.text)
		for key := range want {
			require.Contains(t, documented, key, "%s: not in docs/configuration.md", c.name)
		}
		for key := range documented {
			if strings.HasPrefix(key, "protocols.grpc.") || strings.HasPrefix(key, "protocols.http.") {
				continue // the Collector's own keys, mentioned for their defaults
			}
			require.Contains(t, want, key, "%s: in docs/configuration.md and not a key", c.name)
		}
	}
}

var (
	heading = regexp.MustCompile("^### `([a-z_]+)`$")
	cell    = regexp.MustCompile("^\\| (`[^|]*`) \\|")
	code    = regexp.MustCompile("`([a-z_.]+)`")
)

// documentedKeys reads the first cells of the tables. A heading that is a
// section's key, and nothing else, stands before the keys below it.
func documentedKeys(text string) map[string]bool {
	all, section := map[string]bool{}, ""
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "###") {
			section = ""
			if m := heading.FindStringSubmatch(line); m != nil {
				section = m[1] + "."
			}
		}
		if m := cell.FindStringSubmatch(line); m != nil {
			for _, c := range code.FindAllStringSubmatch(m[1], -1) {
				all[section+c[1]] = true
			}
		}
	}
	return all
}
