// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// failsToStart runs bin until it ends, which it must do by itself, with exit
// code 1, and returns what it said.
func failsToStart(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	c, err := start(logFile(t, "failing"), cmd)
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	select {
	case <-c.Exited():
	case <-time.After(patience):
		require.Fail(t, "it did not fail", c.Tail())
	}
	require.Equal(t, 1, c.ExitCode(), "exit code\n%s", c.Tail())
	return c.Tail()
}

// TestStartup_BadConfiguration: a wrong value, an unknown key or a missing
// partner ends the start with a message that names key, value and reason.
func TestStartup_BadConfiguration(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings nodeSettings
		edit     func(config string) string
		says     []string
	}{
		{name: "limit below a segment", settings: nodeSettings{Wal: "      unreclaimed_bytes_limit: 1MiB"}, says: []string{"unreclaimed_bytes_limit", "1MiB", "segment_size"}},
		{name: "segment too small", settings: nodeSettings{Wal: "      segment_size: 1KiB"}, says: []string{"segment_size", "1KiB"}},
		{name: "negative size", settings: nodeSettings{Wal: "      segment_size: -1"}, says: []string{"segment_size", "-1"}},
		{name: "no size", settings: nodeSettings{Wal: "      segment_size: many"}, says: []string{"segment_size", "many"}},
		{name: "unknown key", settings: nodeSettings{Wal: "      segmentsize: 1MiB"}, says: []string{"segmentsize"}},
		{name: "age out of range", settings: nodeSettings{Wal: "      segment_age: 1ms"}, says: []string{"segment_age", "1ms"}},
		{name: "unknown policy", settings: nodeSettings{Wal: "      on_corruption: ignore"}, says: []string{"on_corruption", "ignore", "quarantine"}},
		{name: "no consumers", settings: nodeSettings{Delivery: "      consumers: 0"}, says: []string{"consumers", "0"}},
		{name: "no protocol", edit: func(s string) string {
			a, b := strings.Index(s, "    protocols:"), strings.Index(s, "    storage:")
			return s[:a] + s[b:]
		}, says: []string{"protocol"}},
		{name: "barrier out of range", edit: replace("barrier_interval: 1s", "barrier_interval: 1ms"), says: []string{"barrier_interval", "1ms"}},
		{name: "no such extension", edit: replace("storage: wal_storage", "storage: wal_storage/other"), says: []string{"storage", "wal_storage/other"}},
		{name: "an unsafe queue behind the log", edit: replace("sending_queue: { enabled: false }", "sending_queue: { enabled: true }"), says: []string{"otlp_grpc", "sending_queue", "wait_for_result"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.settings.Sink = "127.0.0.1:1"
			n := newNode(t, c.settings)
			if c.edit != nil {
				b, err := os.ReadFile(n.config)
				require.NoError(t, err)
				edited := c.edit(string(b))
				require.NotEqual(t, string(b), edited)
				require.NoError(t, os.WriteFile(n.config, []byte(edited), 0o600))
			}
			said := failsToStart(t, exec.Command(binary(t), n.args...))
			for _, s := range c.says {
				require.Contains(t, said, s)
			}
		})
	}
}

func replace(from, to string) func(string) string {
	return func(s string) string { return strings.Replace(s, from, to, 1) }
}

// TestStartup_Directory: a directory that cannot be used ends the start with
// its path and the reason, whoever runs the process.
func TestStartup_Directory(t *testing.T) {
	t.Run("below a file", func(t *testing.T) {
		n := newNode(t, nodeSettings{Sink: "127.0.0.1:1"})
		require.NoError(t, os.WriteFile(n.directory, nil, 0o600))
		said := failsToStart(t, exec.Command(binary(t), n.args...))
		require.Contains(t, said, n.directory)
		require.Contains(t, said, "not a directory")
	})
	t.Run("not writable", func(t *testing.T) {
		n := newNode(t, nodeSettings{Sink: "127.0.0.1:1"})
		require.NoError(t, os.Mkdir(n.directory, 0o500))
		said := failsToStart(t, unprivileged(t, n))
		require.Contains(t, said, n.directory)
		require.Contains(t, said, "permission denied")
	})
}

// unprivileged is the node's command under a user whom permissions bind: the
// present one or, for root, nobody.
func unprivileged(t *testing.T, n *node) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		return exec.Command(binary(t), n.args...)
	}
	const nobody = 65534
	// The checkout may be closed to others: give it copies in a directory
	// of its own, below the world-writable one.
	dir, err := os.MkdirTemp("", "weir-e2e-nobody-") //nolint:usetesting // nobody cannot enter TempDir
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	bin, wal, config := filepath.Join(dir, "otelcol-weir"), filepath.Join(dir, "wal"), filepath.Join(dir, "config.yaml")
	b, err := os.ReadFile(binary(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(bin, b, 0o755))
	b, err = os.ReadFile(n.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, []byte(strings.ReplaceAll(string(b), n.directory, wal)), 0o644))
	require.NoError(t, os.Mkdir(wal, 0o500))
	n.directory = wal
	cmd := exec.Command(bin, "--config", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// TestC11_SecondOpener: a second Collector on the same directory ends at once,
// naming the holder, and does not disturb it; nor does one after somebody
// deleted the LOCK, as who wants a node to start at last might.
func TestC11_SecondOpener(t *testing.T) {
	sink := newSink(t)
	first := newNode(t, nodeSettings{Sink: sink.Addr})
	first.start()
	second := newNode(t, nodeSettings{Sink: sink.Addr})
	b, err := os.ReadFile(second.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(second.config, []byte(strings.ReplaceAll(string(b), second.directory, first.directory)), 0o600))

	said := failsToStart(t, exec.Command(binary(t), second.args...))
	require.Contains(t, said, first.directory)
	require.Contains(t, said, strconv.Itoa(first.current.Pid()), "the holder's process")

	require.NoError(t, os.Remove(filepath.Join(first.directory, "LOCK")))
	said = failsToStart(t, exec.Command(binary(t), second.args...))
	require.Contains(t, said, "locked by a process whose LOCK file is gone")

	ledger := NewLedger()
	mustAck(t, ledger, newGRPC(t, first.grpc), ledger.Batch(Logs, 3))
	allArrive(t, ledger, sink)
	require.NoError(t, first.current.Stop(patience))
}

// TestStartup_PortInUse: a listener that cannot be bound ends the start with
// the address, and the directory is free again.
func TestStartup_PortInUse(t *testing.T) {
	sink := newSink(t)
	first := newNode(t, nodeSettings{Sink: sink.Addr})
	first.start()
	second := newNode(t, nodeSettings{Sink: sink.Addr})
	b, err := os.ReadFile(second.config)
	require.NoError(t, err)
	taken := []byte(strings.ReplaceAll(string(b), second.grpc, first.grpc))
	config := filepath.Join(t.TempDir(), "taken.yaml")
	require.NoError(t, os.WriteFile(config, taken, 0o600))
	said := failsToStart(t, exec.Command(binary(t), "--config", config))
	require.Contains(t, said, first.grpc)

	second.start()
	ledger := NewLedger()
	mustAck(t, ledger, newGRPC(t, second.grpc), ledger.Batch(Logs, 3))
	allArrive(t, ledger, sink)
	require.NoError(t, second.current.Stop(patience))
}

// TestStartup_ShippedConfigurations: every configuration in the repository and
// in the README passes validation and starts, the check behind
// require_synchronous included.
func TestStartup_ShippedConfigurations(t *testing.T) {
	shipped, err := filepath.Glob("../testdata/config/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, shipped)
	shipped = append(shipped, fenced(t, "../README.md")...)
	for _, config := range shipped {
		t.Run(filepath.Base(config), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(config)
			require.NoError(t, err)
			ports, err := FreePorts(5)
			require.NoError(t, err)
			args := []string{"--config", config}
			set := func(key, value string) { args = append(args, "--config", "yaml:"+key+": "+value) }
			set("receivers::otlp_wal::protocols::grpc::endpoint", Loopback(ports[0]))
			set("receivers::otlp_wal::protocols::http::endpoint", Loopback(ports[1]))
			set("receivers::otlp_wal::wal::directory", t.TempDir())
			if strings.Contains(string(text), "status:") {
				set("extensions::wal_storage::status::endpoint", Loopback(ports[2]))
			}
			env := []string{
				"WEIR_TOKEN=secret", "WEIR_DATA=" + t.TempDir(),
				"WEIR_HEALTH=" + Loopback(ports[3]), "WEIR_METRICS_PORT=" + strconv.Itoa(ports[4]),
			}
			if !strings.Contains(string(text), "readers:") {
				set("service::telemetry::metrics::level", "none") // its port is fixed
			}
			validate := exec.Command(binary(t), append([]string{"validate"}, args...)...)
			validate.Env = append(os.Environ(), env...)
			out, err := validate.CombinedOutput()
			require.NoError(t, err, string(out))

			c, err := Start(logFile(t, "shipped"), env, binary(t), args...)
			require.NoError(t, err)
			t.Cleanup(c.Kill)
			require.NoError(t, c.WaitReady(within(t)))
		})
	}
}

// fenced writes every YAML block of a document that is a whole configuration
// into a file of its own.
func fenced(t *testing.T, document string) []string {
	t.Helper()
	b, err := os.ReadFile(document)
	require.NoError(t, err)
	var files []string
	parts := strings.Split(string(b), "\n```")
	for i, part := range parts {
		if code, ok := strings.CutPrefix(part, "yaml\n"); ok && strings.Contains(code, "\nservice:") {
			f := filepath.Join(t.TempDir(), filepath.Base(document)+"-"+strconv.Itoa(i)+".yaml")
			require.NoError(t, os.WriteFile(f, []byte(code), 0o600))
			files = append(files, f)
		}
	}
	require.NotEmpty(t, files, "no whole configuration in %s", document)
	return files
}
