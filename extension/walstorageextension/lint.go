// SPDX-License-Identifier: Apache-2.0

package walstorageextension // import "github.com/otelweir/weir/extension/walstorageextension"

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/extension/extensioncapabilities"
	"go.uber.org/zap"

	"github.com/otelweir/weir/extension/walstorageextension/internal/pipelinelint"
)

// NotifyConfigSnapshot is the start-up check behind require_synchronous. The
// service calls it after the extensions have started and before any pipeline
// does, and an error ends the start: nothing has been accepted by then.
//
// The snapshot's effective configuration has every default filled in, so a
// queue that is on because nobody switched it off is seen too.
func (w *walStorage) NotifyConfigSnapshot(_ context.Context, snapshot extensioncapabilities.ConfigSnapshot) error {
	effective := snapshot.Effective()
	if effective == nil {
		w.telemetry.Logger.Warn("The check behind require_synchronous is skipped: the service gave no effective configuration")
		return nil
	}
	result := pipelinelint.Check(effective.ToStringMap(), w.id)
	if len(result.Unknown) > 0 {
		w.telemetry.Logger.Info("The check behind require_synchronous cannot judge these components and lets them pass: make sure that they return from Consume only when the data is durable or delivered",
			zap.Strings("components", result.Unknown))
	}
	if len(result.Retrying) > 0 {
		set := make([]string, len(result.Retrying))
		for i, path := range result.Retrying {
			set[i] = path + "::enabled: false"
		}
		w.telemetry.Logger.Warn("Exporters behind a log retry by themselves, which hides an outage: until they give up (max_elapsed_time, 5m by default) the log believes that it is delivering. "+
			"The log retries without end and tells of it: switch retry_on_failure off",
			zap.Strings("set", set))
	}
	var errs error
	for _, finding := range result.Findings {
		errs = errors.Join(errs, finding)
	}
	if errs != nil {
		return fmt.Errorf("%s: require_synchronous: %w", w.id, errs)
	}
	return nil
}
