// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/otelweir/weir/bench/internal/procfs"
)

// childFlag makes this program a child of itself: what it measures then has a
// process of its own.
const childFlag = "child"

// childSettings say what a child is.
type childSettings struct {
	Role      string // open, weir, sum
	Directory string
	Addr      string // of a server
	Telemetry bool   // of the receiver itself; that of the gRPC server is always on
	Deliver   bool   // to a consumer that takes everything, instead of one that takes nothing
	Profile   string
}

// usage is what a child used so far.
type usage struct {
	CPU    time.Duration
	Allocs uint64
	Bytes  uint64 // allocated
}

func peakRSS(pid int) (uint64, error) { return procfs.Memory(pid, procfs.PeakRSS) }

// runChild does what a child is for; its answers are lines of JSON.
func runChild(args []string) error {
	var s childSettings
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return err
	}
	answer := json.NewEncoder(os.Stdout)
	if s.Role == "open" {
		out, err := openChild(s.Directory)
		return errors.Join(err, answer.Encode(out))
	}
	var stop func() error
	var err error
	switch s.Role {
	case "weir":
		stop, err = serveWeir(s)
	case "sum":
		stop, err = serveSum(s.Addr)
	default:
		err = fmt.Errorf("no role %q", s.Role)
	}
	if err != nil {
		return err
	}
	if s.Profile != "" {
		f, err := os.CreateTemp(s.Profile, s.Role+"-*.pprof")
		if err != nil {
			return errors.Join(err, stop())
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return errors.Join(err, stop())
		}
		defer pprof.StopCPUProfile()
	}
	if err := answer.Encode(usageNow()); err != nil { // ready
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := answer.Encode(usageNow()); err != nil {
			return err
		}
	}
	return stop()
}

// child is a running server.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func command(s childSettings) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, childFlag, string(b))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

// startChild returns when the child serves.
func startChild(s childSettings) (*child, error) {
	cmd, err := command(s)
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, in: in, out: json.NewDecoder(out)}
	var ready usage
	if err := c.out.Decode(&ready); err != nil {
		return nil, errors.Join(fmt.Errorf("%s did not start: %w", s.Role, err), c.stop())
	}
	return c, nil
}

// used is what the child used so far.
func (c *child) used() (u usage, err error) {
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		return u, err
	}
	return u, c.out.Decode(&u)
}

func (c *child) stop() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// openInChild opens a log in a process of its own.
func openInChild(dir string) (out opened, err error) {
	cmd, err := command(childSettings{Role: "open", Directory: dir})
	if err != nil {
		return out, err
	}
	b, err := cmd.Output()
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(b, &out)
}

func cpuTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err) // only a bad argument
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
