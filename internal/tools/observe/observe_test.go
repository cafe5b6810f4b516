// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const root = "../../../"

// series is what the registry says of one Prometheus metric: the values of its
// labels, nil where any value may come.
type series map[string][]string

// registry is metadata.yaml as the Collector's Prometheus endpoint shows it:
// dots become underscores, a histogram is three metrics, nothing is appended.
func registry(t *testing.T) map[string]series {
	t.Helper()
	var md struct {
		Attributes map[string]struct {
			Name string   `yaml:"name_override"`
			Enum []string `yaml:"enum"`
		} `yaml:"attributes"`
		Telemetry struct {
			Metrics map[string]struct {
				Prefix     string   `yaml:"prefix"`
				Attributes []string `yaml:"attributes"`
				Histogram  any      `yaml:"histogram"`
			} `yaml:"metrics"`
		} `yaml:"telemetry"`
	}
	b, err := os.ReadFile(root + "metadata.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(b, &md))
	require.NotEmpty(t, md.Telemetry.Metrics)
	all := map[string]series{}
	for name, m := range md.Telemetry.Metrics {
		s := series{"instance": nil, "job": nil}
		for _, key := range m.Attributes {
			a, ok := md.Attributes[key]
			require.True(t, ok, "%s: attribute %s", name, key)
			if a.Name == "" {
				a.Name = key
			}
			s[underscored(a.Name)] = a.Enum
		}
		exported := underscored(m.Prefix + name)
		if m.Histogram == nil {
			all[exported] = s
			continue
		}
		all[exported+"_count"], all[exported+"_sum"] = s, s
		bucket := series{"le": nil}
		for k, v := range s {
			bucket[k] = v
		}
		all[exported+"_bucket"] = bucket
	}
	return all
}

func underscored(s string) string { return strings.ReplaceAll(s, ".", "_") }

// check parses an expression and compares every selector and grouping in it
// with the registry.
func check(all map[string]series, expr string) error {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return fmt.Errorf("%s: %w", expr, err)
	}
	var bad []string
	known := series{}
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		s, ok := all[v.Name]
		if !ok {
			bad = append(bad, "no metric "+v.Name)
			return nil
		}
		for k := range s {
			known[k] = nil
		}
		for _, m := range v.LabelMatchers {
			if m.Name == labels.MetricName {
				continue
			}
			values, ok := s[m.Name]
			if !ok {
				bad = append(bad, fmt.Sprintf("%s has no label %s", v.Name, m.Name))
				continue
			}
			if values != nil && !slices.ContainsFunc(values, m.Matches) {
				bad = append(bad, fmt.Sprintf("%s: no value of %s matches %s", v.Name, m.Name, m))
			}
			if m.Type == labels.MatchRegexp && values != nil { // every alternative is a value
				for alternative := range strings.SplitSeq(m.Value, "|") {
					if !slices.Contains(values, alternative) {
						bad = append(bad, fmt.Sprintf("%s: %s is never %s", v.Name, m.Name, alternative))
					}
				}
			}
		}
		return nil
	})
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, g := range a.Grouping {
				if _, ok := known[g]; !ok {
					bad = append(bad, "grouped by "+g+", which no selected metric has")
				}
			}
		}
		return nil
	})
	if bad != nil {
		return fmt.Errorf("%s: %s", expr, strings.Join(bad, "; "))
	}
	return nil
}

// keepsReceiver says where an expression loses the label that tells one log of
// a process from another.
func keepsReceiver(expr string) error {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return fmt.Errorf("%s: %w", expr, err)
	}
	var bad []string
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.AggregateExpr:
			if slices.Contains(n.Grouping, "receiver") == n.Without {
				bad = append(bad, n.String())
			}
		case *parser.BinaryExpr:
			if m := n.VectorMatching; m != nil && (m.On || len(m.MatchingLabels) > 0) && slices.Contains(m.MatchingLabels, "receiver") != m.On {
				bad = append(bad, n.String())
			}
		}
		return nil
	})
	if bad != nil {
		return fmt.Errorf("%s: which log is lost in %s", expr, strings.Join(bad, "; "))
	}
	return nil
}

// seesTheFirst says where an expression wants the growth of a series that its
// first failure makes: rate and increase do not see that one.
func seesTheFirst(expr string) error {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return fmt.Errorf("%s: %w", expr, err)
	}
	var bad []string
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if c, ok := n.(*parser.Call); ok && (c.Func.Name == "rate" || c.Func.Name == "increase") {
			parser.Inspect(c, func(n parser.Node, _ []parser.Node) error {
				if v, ok := n.(*parser.VectorSelector); ok && slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool {
					return m.Name == "outcome" && !m.Matches("success")
				}) {
					bad = append(bad, c.String())
				}
				return nil
			})
		}
		return nil
	})
	if bad != nil {
		return fmt.Errorf("%s: the first failure is not seen by %s", expr, strings.Join(bad, "; "))
	}
	return nil
}

// TestF06_Alerts: every alert parses, speaks of metrics, labels and values that
// exist, names the log it is about, sees a first failure, and has a section in
// the runbook.
func TestF06_Alerts(t *testing.T) {
	all := registry(t)
	groups, errs := rulefmt.ParseFile(root+"deploy/prometheus/alerts.yaml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	runbook, err := os.ReadFile(root + "docs/operations.md")
	require.NoError(t, err)
	n := 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			n++
			require.NoError(t, check(all, r.Expr), r.Alert)
			require.NoError(t, keepsReceiver(r.Expr), r.Alert)
			require.NoError(t, seesTheFirst(r.Expr), r.Alert)
			require.Contains(t, r.Annotations["summary"], "{{ $labels.receiver }} on {{ $labels.instance }}", r.Alert)
			require.Equal(t, "docs/operations.md#"+strings.ToLower(r.Alert), r.Annotations["runbook"])
			require.Regexp(t, regexp.MustCompile(`(?m)^#+ `+r.Alert+`$`), string(runbook), "a section for %s", r.Alert)
		}
	}
	require.NotZero(t, n)
}

// TestF06_Dashboard: every query of the dashboard parses, speaks of metrics,
// labels and values that exist, and obeys the choice of instance and log.
func TestF06_Dashboard(t *testing.T) {
	all := registry(t)
	b, err := os.ReadFile(root + "deploy/grafana/weir.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
		Templating struct {
			List []struct {
				Type  string `json:"type"`
				Query string `json:"query"`
			} `json:"list"`
		} `json:"templating"`
	}
	require.NoError(t, json.Unmarshal(b, &dashboard))
	grafana := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$receiver", ".*")
	choice := regexp.MustCompile(`otelcol_(?:wal|in_flight|delivery)_\w+(\{instance=~"\$instance",receiver=~"\$receiver")?`)
	n := 0
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			n++
			require.NoError(t, check(all, grafana.Replace(q.Expr)), p.Title)
			require.NoError(t, seesTheFirst(grafana.Replace(q.Expr)), p.Title)
			for _, selector := range choice.FindAllStringSubmatch(q.Expr, -1) {
				require.NotEmpty(t, selector[1], "%s: %s", p.Title, q.Expr)
			}
		}
	}
	require.NotZero(t, n)
	values := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	for _, v := range dashboard.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := values.FindStringSubmatch(v.Query)
		require.NotNil(t, m, v.Query)
		require.NoError(t, check(all, fmt.Sprintf("max by (%s) (%s)", m[2], grafana.Replace(m[1]))))
	}
}

// TestCheck: what the two tests above rely on fails when it should.
func TestCheck(t *testing.T) {
	all := map[string]series{"a_b": {"state": {"x", "y"}, "instance": nil}}
	require.NoError(t, check(all, `sum by (state) (rate(a_b{state=~"x|y", instance=~".*"}[5m]))`))
	for _, expr := range []string{
		`a_c`, `a_b{cause="x"}`, `a_b{state="z"}`, `a_b{state=~"x|z"}`, `sum by (cause) (a_b)`, `sum(a_b`,
	} {
		require.Error(t, check(all, expr), expr)
	}
	for expr, keeps := range map[string]bool{
		`a_b > 0`: true, `sum(a_b)`: false, `sum by (state) (a_b)`: false, `sum by (state, receiver) (a_b)`: true,
		`sum without (state) (a_b)`: true, `max without (receiver) (a_b)`: false,
		`a_b and on (instance) a_b`: false, `a_b and on (instance, receiver) a_b`: true, `a_b and a_b`: true, `a_b / ignoring (receiver) a_b`: false,
	} {
		require.Equal(t, keeps, keepsReceiver(expr) == nil, expr)
	}
	for expr, sees := range map[string]bool{
		`sum(increase(a_b{outcome="failure"}[5m]))`: false, `rate(a_b{outcome!="success"}[5m])`: false,
		`increase(a_b{outcome="success"}[5m])`: true, `rate(a_b[5m])`: true, `a_b{outcome="failure"}`: true,
	} {
		require.Equal(t, sees, seesTheFirst(expr) == nil, expr)
	}
}

// TestEventsAreDocumented: docs/events.md and the sources name the same
// events.
func TestEventsAreDocumented(t *testing.T) {
	name := regexp.MustCompile(`"(wal\.(?:backpressure|rotation|retain_floor|recovery|delivery|dead_letter)\.[a-z_]+)"`)
	emitted := map[string]bool{}
	for _, dir := range []string{"internal/coordinator", "internal/delivery", "internal/journal", "receiver/otlpwalreceiver"} {
		files, err := filepath.Glob(root + dir + "/*.go")
		require.NoError(t, err)
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			for _, m := range name.FindAllSubmatch(b, -1) {
				emitted[string(m[1])] = true
			}
		}
	}
	b, err := os.ReadFile(root + "docs/events.md")
	require.NoError(t, err)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (\S+)$`).FindAllSubmatch(b, -1) {
		documented[string(m[1])] = true
	}
	require.NotEmpty(t, documented)
	require.Equal(t, documented, emitted)
}
