// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Series are a Collector's own metrics: the value of each series, by its name
// and labels as they are exposed.
type Series map[string]float64

// Sum adds up the series of a metric that have all of the labels, which are
// written like `cause="bytes"`.
func (all Series) Sum(name string, labels ...string) float64 {
	sum := 0.0
series:
	for s, v := range all {
		rest, ok := strings.CutPrefix(s, name)
		if !ok || rest != "" && rest[0] != '{' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue series
			}
		}
		sum += v
	}
	return sum
}

// Scrape reads the metrics that a Collector exposes on addr.
func Scrape(ctx context.Context, addr string) (Series, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape %s: %s", addr, resp.Status)
	}
	all := Series{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("scrape %s: %q: %w", addr, line, err)
		}
		all[line[:at]] = v
	}
	return all, lines.Err()
}
