// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// readyLine is what a Collector logs once every listener is bound.
const readyLine = "Everything is ready. Begin running and processing data."

// Collector is one life of a Collector as a child process.
type Collector struct {
	cmd    *exec.Cmd
	ready  chan struct{} // one value per readyLine: a reload has another
	exited chan struct{} // closed when the process was waited for
	err    error         // Wait's result; after exited

	mu   sync.Mutex // guards tail
	tail []string
}

// tailLines is how much of a child's log stays in memory for messages.
const tailLines = 40

// Start runs bin with args. Its output goes to out, line by line. The child
// dies with this process.
func Start(out io.Writer, env []string, bin string, args ...string) (*Collector, error) {
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), env...)
	return start(out, cmd)
}

func start(out io.Writer, cmd *exec.Cmd) (*Collector, error) {
	dieWithParent(cmd)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", cmd.Path, err), r.Close(), w.Close())
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	c := &Collector{cmd: cmd, ready: make(chan struct{}, 16), exited: make(chan struct{})}
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.copyLines(out, r)
	}()
	go func() {
		c.err = cmd.Wait()
		<-read // the last lines are part of what the exit says
		close(c.exited)
	}()
	return c, nil
}

func (c *Collector) copyLines(out io.Writer, r io.ReadCloser) {
	defer r.Close()
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		line := s.Text()
		fmt.Fprintln(out, line)
		c.mu.Lock()
		if c.tail = append(c.tail, line); len(c.tail) > tailLines {
			c.tail = c.tail[1:]
		}
		c.mu.Unlock()
		if strings.Contains(line, readyLine) {
			select {
			case c.ready <- struct{}{}:
			default: // nobody waits for that many
			}
		}
	}
	_, _ = io.Copy(io.Discard, r) // a line beyond the buffer: never block the child
}

// WaitReady returns when every listener is bound, or with the last lines of
// the log when the process ended or ctx did. After a Reload it can be called
// again.
func (c *Collector) WaitReady(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.exited:
		return fmt.Errorf("the Collector ended before it was ready: %w\n%s", c.exitError(), c.Tail())
	case <-ctx.Done():
		return fmt.Errorf("the Collector is not ready: %w\n%s", ctx.Err(), c.Tail())
	}
}

// Exited is closed when the process has ended.
func (c *Collector) Exited() <-chan struct{} { return c.exited }

// ExitCode is the process's exit code, -1 after a signal; only after Exited.
func (c *Collector) ExitCode() int { return c.cmd.ProcessState.ExitCode() }

func (c *Collector) exitError() error {
	if c.err != nil {
		return c.err
	}
	return errors.New("exit status 0")
}

// Tail is the end of the process's log.
func (c *Collector) Tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.tail, "\n")
}

// Kill ends the process as a crash would and waits for it.
func (c *Collector) Kill() {
	_ = c.cmd.Process.Kill() // fails only when it has ended
	<-c.exited
}

// Stop ends the process gracefully. It is an error if it does not end by
// itself within the bound, or not with exit code 0. A Collector catches
// signals only a moment after it is ready: have it serve something first.
func (c *Collector) Stop(bound time.Duration) error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c.exited:
	case <-time.After(bound):
		tail := c.Tail()
		c.Kill()
		return fmt.Errorf("still running %s after SIGTERM\n%s", bound, tail)
	}
	if c.err != nil {
		return fmt.Errorf("after SIGTERM: %w\n%s", c.err, c.Tail())
	}
	return nil
}

// Reload makes the process read its configuration again, which stops and
// starts every component.
func (c *Collector) Reload() error { return c.cmd.Process.Signal(syscall.SIGHUP) }

// Pid is the process's id.
func (c *Collector) Pid() int { return c.cmd.Process.Pid }
