// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"errors"
	"fmt"
)

// Why a request is refused; errors.Is finds them in an [Error].
var (
	ErrMalformed = errors.New("malformed")
	ErrTooDeep   = errors.New("nested too deep")
	ErrTooDense  = errors.New("too dense")
)

// Error says why a request is refused, and where.
type Error struct {
	Cause  error  // ErrMalformed, ErrTooDeep or ErrTooDense
	Offset int    // byte in the payload at which the offending field begins
	Path   string // request message and fields, with dots between
	Text   string // what is there, and what was expected
}

func (e *Error) Error() string {
	return fmt.Sprintf("%v: byte %d, %s: %s", e.Cause, e.Offset, e.Path, e.Text)
}

func (e *Error) Unwrap() error { return e.Cause }

var defects = [-defectsEnd]string{
	-truncated: "the value is longer than the message",
	-overlong:  "a varint has more than 10 bytes",
	-badLength: "a length is 2⁶³ or more",
	-badNumber: "a field number is not between 1 and 2³¹-1",
	-badGroup:  "a group ends that did not begin",
	-badWire:   "a wire type is 6 or 7",
	-badType:   "the field has another wire type",
	-badID:     "an id is neither empty nor of its length",
	-badPacked: "packed values of 8 bytes have a length that is not a multiple of 8",
}

func (w *walk) defect(sp uint, offset, defect int) *Error {
	return w.malformed(sp, offset, "%s", defects[-defect])
}

func (w *walk) malformed(sp uint, offset int, format string, args ...any) *Error {
	return w.fail(ErrMalformed, sp, offset, format, args...)
}

// fail makes the error for the field at offset of the message frames[sp].
func (w *walk) fail(cause error, sp uint, offset int, format string, args ...any) *Error {
	path := w.frames[0].message.layout.name
	for i := uint(1); i <= sp; i++ {
		path += "." + w.frames[i-1].message.layout.fields[w.frames[i].op.row()].name
	}
	if number, _, next := readTag(w.payload, offset); next > 0 {
		path += "." + w.frames[sp].message.layout.nameOf(number)
	}
	return &Error{Cause: cause, Offset: offset, Path: path, Text: fmt.Sprintf(format, args...)}
}

func (l *layout) nameOf(number int32) string {
	for _, f := range l.fields {
		if f.number == int(number) {
			return f.name
		}
	}
	return fmt.Sprintf("field %d", number)
}
