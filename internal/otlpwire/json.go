// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// jsoniter, which pdata decodes JSON with, goes on after an error, but no longer
// steps back from a byte it has looked at. It loses its place then, reads the
// inside of strings as elements, and what it makes of a few bytes is without
// bound. So no request may reach it on which it would report an error: not for
// the grammar, the type, the range of a number, the digits of an id.

// form is what a field is in JSON.
type form uint8

const (
	formMessage form = iota // object or null
	formString              // string or null
	formBytes               // base64
	formID                  // hexadecimal digits of the length in jsonField.of, or none
	formBool
	formInt32 // numbers may be in quotes
	formUint32
	formInt64
	formUint64
	formDouble
	formEnum // number, or a name in quotes
)

// jsonField is a field made ready for the check.
type jsonField struct {
	field *field
	form  form
	list  bool // array of these, or null
	of    int
	enum  map[string]bool
}

// jsonFields are the fields of each layout by name. pdata takes both spellings,
// snake_case and lowerCamelCase.
var jsonFields [len(layouts)]map[string]jsonField

func init() {
	for i := range layouts {
		l := &layouts[i]
		jsonFields[i] = make(map[string]jsonField, 2*len(l.fields))
		for j := range l.fields {
			f := newJSONField(&l.fields[j])
			jsonFields[i][f.field.name] = f
			jsonFields[i][lowerCamel(f.field.name)] = f
		}
	}
}

func newJSONField(f *field) jsonField {
	j := jsonField{field: f, form: formOf(f), of: f.of}
	switch f.kind {
	case pointers, values, texts, packedVarint, packedFixed64:
		j.list = true
	}
	if j.form == formEnum {
		j.enum = map[string]bool{}
		for _, name := range enums[f.name] {
			j.enum[name] = true
		}
	}
	return j
}

func formOf(f *field) form {
	if f.kind >= embedded {
		return formMessage
	}
	if f.kind == id {
		return formID
	}
	if form, ok := forms[f.name]; ok {
		return form
	}
	switch f.kind {
	case text, texts:
		return formString
	case fixed32:
		return formUint32
	}
	return formUint64
}

func lowerCamel(name string) string {
	parts := strings.Split(name, "_")
	for i, part := range parts[1:] {
		parts[i+1] = strings.ToUpper(part[:1]) + part[1:]
	}
	return strings.Join(parts, "")
}

// CheckJSON accepts an Export…ServiceRequest in JSON if pdata reads it without
// an error and its brackets nest at most maxDepth deep. Like pdata it ignores
// what follows the request. It is stricter in three things that pdata tolerates:
// what is not JSON, a field whose name is empty (which pdata takes for the
// end of the object), and a number in quotes that is longer than 64 bytes and
// has escapes. References into the string table of profiles are not looked at.
//
// It does not allocate on success. The error is an [*Error]; its Offset is where
// the offending value begins.
func CheckJSON(s Signal, data []byte, maxDepth int) error {
	if s == 0 || int(s) >= len(requests) {
		return &Error{Cause: ErrMalformed, Path: "signal", Text: "there is no such signal"}
	}
	c := jsonCheck{data: data, left: maxDepth, maxDepth: maxDepth}
	if _, err := c.message(requests[s], c.space(0)); err != nil {
		err.Path = layouts[requests[s]].name + err.Path
		return err
	}
	return nil
}

// jsonCheck is one CheckJSON. Its methods take the position of a token and
// return the one behind it. An error's path gets its fields on the way out.
type jsonCheck struct {
	data     []byte
	left     int // brackets that may still be opened
	maxDepth int
}

// at is the byte at pos, or 0, which is no token, behind the end.
func (c *jsonCheck) at(pos int) byte {
	if pos < len(c.data) {
		return c.data[pos]
	}
	return 0
}

func (c *jsonCheck) space(pos int) int {
	for pos < len(c.data) {
		switch c.data[pos] {
		case ' ', '\t', '\r', '\n':
			pos++
		default:
			return pos
		}
	}
	return pos
}

func (c *jsonCheck) expected(what string, pos int) (int, *Error) {
	found := "the end"
	if pos < len(c.data) {
		found = strconv.QuoteToASCII(string(c.data[pos:min(len(c.data), pos+1)]))
	}
	return 0, &Error{Cause: ErrMalformed, Offset: pos, Text: "expected " + what + ", found " + found}
}

func (c *jsonCheck) malformed(text string, pos int) (int, *Error) {
	return 0, &Error{Cause: ErrMalformed, Offset: pos, Text: text}
}

// open is for an opening bracket; the closing one gives back what it took.
func (c *jsonCheck) open(pos int) *Error {
	if c.left--; c.left < 0 {
		return &Error{Cause: ErrTooDeep, Offset: pos, Text: fmt.Sprintf("more than %d brackets inside one another", c.maxDepth)}
	}
	return nil
}

// message checks an object that has the fields of a layout.
func (c *jsonCheck) message(of, pos int) (int, *Error) {
	switch c.at(pos) {
	case 'n':
		return c.literal("null", pos)
	case '{':
	default:
		return c.expected("an object or null", pos)
	}
	if err := c.open(pos); err != nil {
		return 0, err
	}
	fields := jsonFields[of]
	pos = c.space(pos + 1)
	if c.at(pos) == '}' {
		c.left++
		return pos + 1, nil
	}
	for {
		start := pos
		end, escaped, err := c.str("the name of a field", pos)
		if err != nil {
			return 0, err
		}
		name := c.data[start+1 : end-1]
		if len(name) == 0 {
			return c.malformed("the name of the field is empty", start)
		}
		var f jsonField
		if escaped {
			var buf [unescapeLimit]byte
			if n, ok := unescape(&buf, name); ok {
				f = fields[string(buf[:n])]
			}
		} else {
			f = fields[string(name)]
		}
		if pos, err = c.colon(end); err != nil {
			return 0, err
		}
		if f.field == nil {
			if pos, err = c.skip(pos); err != nil {
				err.Path = ".unknown field" + err.Path
				return 0, err
			}
		} else if pos, err = c.value(&f, pos); err != nil {
			err.Path = "." + f.field.name + err.Path
			return 0, err
		}
		pos = c.space(pos)
		switch c.at(pos) {
		case '}':
			c.left++
			return pos + 1, nil
		case ',':
			pos = c.space(pos + 1)
		default:
			return c.expected("a comma or the end of the object", pos)
		}
	}
}

func (c *jsonCheck) value(f *jsonField, pos int) (next int, err *Error) {
	if !f.list {
		return c.one(f, pos)
	}
	switch c.at(pos) {
	case 'n':
		return c.literal("null", pos)
	case '[':
	default:
		return c.expected("an array or null", pos)
	}
	if err = c.open(pos); err != nil {
		return 0, err
	}
	pos = c.space(pos + 1)
	if c.at(pos) == ']' {
		c.left++
		return pos + 1, nil
	}
	for {
		if pos, err = c.one(f, pos); err != nil {
			return 0, err
		}
		pos = c.space(pos)
		switch c.at(pos) {
		case ']':
			c.left++
			return pos + 1, nil
		case ',':
			pos = c.space(pos + 1)
		default:
			return c.expected("a comma or the end of the array", pos)
		}
	}
}

// one checks the value of a field that is no list, or an element of one that is.
func (c *jsonCheck) one(f *jsonField, pos int) (int, *Error) {
	switch f.form {
	case formMessage:
		return c.message(f.of, pos)
	case formString:
		if c.at(pos) == 'n' {
			return c.literal("null", pos)
		}
		next, _, err := c.str("a string or null", pos)
		return next, err
	case formBytes, formID:
		return c.binary(f, pos)
	case formBool:
		switch c.at(pos) {
		case 't':
			return c.literal("true", pos)
		case 'f':
			return c.literal("false", pos)
		}
		return c.expected("true or false", pos)
	}
	if c.at(pos) == '"' {
		return c.quoted(f, pos)
	}
	next, integer, err := c.number(pos)
	if err != nil {
		return 0, err
	}
	digits := c.data[pos:next]
	switch {
	case f.form == formDouble:
		if (!integer || len(digits) > maxFloatDigits) && !isFloat(digits, 64) {
			return c.malformed("the number is out of range", pos)
		}
	case !integer:
		return c.malformed("expected an integer, found a fraction or an exponent", pos)
	case !inRange(f.form, digits):
		return c.malformed("the integer is out of range", pos)
	}
	return next, nil
}

// maxFloatDigits is how many digits a float64 always takes before the point.
const maxFloatDigits = 308

// inRange says what jsoniter makes of an integer that is not in quotes. It
// tells an overflow by the value getting smaller, which it does not always.
func inRange(f form, digits []byte) bool {
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	switch f {
	case formUint32, formUint64:
		if negative {
			return false
		}
	}
	if f == formUint64 || f == formInt64 {
		v, ok := readDigits(digits, math.MaxUint64)
		return ok && (f == formUint64 || v <= math.MaxInt64 || negative && v == math.MaxInt64+1)
	}
	v, ok := readDigits(digits, math.MaxUint32)
	return ok && (f == formUint32 || v <= math.MaxInt32 || negative && v == math.MaxInt32+1)
}

// readDigits reads digits as a number of the bits that limit has.
func readDigits(digits []byte, limit uint64) (v uint64, ok bool) {
	for _, d := range digits {
		next := (v*10 + uint64(d-'0')) & limit
		if v > limit/10-1 && next < v {
			return 0, false
		}
		v = next
	}
	return v, true
}

// quoted checks a number, or the name of an enum's value, in quotes.
func (c *jsonCheck) quoted(f *jsonField, pos int) (int, *Error) {
	next, escaped, err := c.str("", pos)
	if err != nil {
		return 0, err
	}
	var buf [unescapeLimit]byte
	b := c.data[pos+1 : next-1]
	if escaped {
		n, ok := unescape(&buf, b)
		if !ok {
			return c.malformed("the string is no number", pos)
		}
		b = buf[:n]
	}
	ok := false
	switch f.form {
	case formEnum:
		if !f.enum[string(b)] {
			return c.malformed("the string is not the name of a value", pos)
		}
		return next, nil
	case formDouble:
		ok = isFloat(b, 64)
	case formInt32, formInt64:
		_, err := strconv.ParseInt(asString(b), 10, bitsOf(f.form))
		ok = err == nil
	case formUint32, formUint64:
		_, err := strconv.ParseUint(asString(b), 10, bitsOf(f.form))
		ok = err == nil
	}
	if !ok {
		return c.malformed("the string is no number, or one out of range", pos)
	}
	return next, nil
}

func bitsOf(f form) int {
	if f == formInt32 || f == formUint32 {
		return 32
	}
	return 64
}

func isFloat(b []byte, bits int) bool {
	_, err := strconv.ParseFloat(asString(b), bits)
	return err == nil
}

// asString is for strconv, which keeps nothing of it.
func asString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// binary checks base64 and hexadecimal digits. pdata does not unescape either.
func (c *jsonCheck) binary(f *jsonField, pos int) (int, *Error) {
	next, _, err := c.str("a string", pos)
	if err != nil {
		return 0, err
	}
	b := c.data[pos+1 : next-1]
	if f.form == formID {
		if len(b) != 0 && len(b) != 2*f.of {
			return c.malformed(fmt.Sprintf("expected %d hexadecimal digits or none, found %d bytes", 2*f.of, len(b)), pos)
		}
		for _, d := range b {
			if !isHex(d) {
				return c.malformed("the string is not hexadecimal", pos)
			}
		}
		return next, nil
	}
	if len(b)%4 != 0 {
		return c.malformed("the string is not base64", pos)
	}
	if n := len(b); n > 0 && b[n-1] == '=' {
		b = b[:n-1]
		if b[n-2] == '=' {
			b = b[:n-2]
		}
	}
	for _, d := range b {
		if !(d >= 'A' && d <= 'Z' || d >= 'a' && d <= 'z' || d >= '0' && d <= '9' || d == '+' || d == '/') {
			return c.malformed("the string is not base64", pos)
		}
	}
	return next, nil
}

// skip checks a value that pdata passes over.
func (c *jsonCheck) skip(pos int) (next int, err *Error) {
	end := byte('}')
	switch b := c.at(pos); b {
	case '"':
		next, _, err = c.str("", pos)
		return next, err
	case 'n':
		return c.literal("null", pos)
	case 't':
		return c.literal("true", pos)
	case 'f':
		return c.literal("false", pos)
	case '[':
		end = ']'
	case '{':
	default:
		next, integer, err := c.number(pos)
		if err != nil {
			return c.expected("a value", pos)
		}
		// jsoniter reads numbers that begin with 0 as float32, and others as
		// float64 if they have an exponent.
		if !integer && !c.skippable(c.data[pos:next]) {
			return c.malformed("the number is out of range", pos)
		}
		return next, nil
	}
	if err = c.open(pos); err != nil {
		return 0, err
	}
	pos = c.space(pos + 1)
	if c.at(pos) == end {
		c.left++
		return pos + 1, nil
	}
	for {
		if end == '}' {
			if pos, _, err = c.str("the name of a field", pos); err != nil {
				return 0, err
			}
			if pos, err = c.colon(pos); err != nil {
				return 0, err
			}
		}
		if pos, err = c.skip(pos); err != nil {
			return 0, err
		}
		pos = c.space(pos)
		switch c.at(pos) {
		case end:
			c.left++
			return pos + 1, nil
		case ',':
			pos = c.space(pos + 1)
		default:
			return c.expected("a comma or the end of the value", pos)
		}
	}
}

func (c *jsonCheck) skippable(number []byte) bool {
	if number[0] == '0' {
		return isFloat(number, 32)
	}
	for _, b := range number {
		if b == 'e' || b == 'E' {
			return isFloat(number, 64)
		}
	}
	return true
}

// colon checks what stands between a name and its value.
func (c *jsonCheck) colon(pos int) (int, *Error) {
	if pos = c.space(pos); c.at(pos) != ':' {
		return c.expected("a colon", pos)
	}
	return c.space(pos + 1), nil
}

func (c *jsonCheck) literal(want string, pos int) (int, *Error) {
	next := pos + len(want)
	if next > len(c.data) || string(c.data[pos:next]) != want {
		return c.malformed("expected "+want, pos)
	}
	return next, nil
}

// number checks the grammar of a number; integer is without a fraction and an
// exponent.
func (c *jsonCheck) number(pos int) (next int, integer bool, err *Error) {
	start := pos
	if c.at(pos) == '-' {
		pos++
	}
	switch digit := c.at(pos); {
	case digit == '0':
		pos++
	case digit >= '1' && digit <= '9':
		pos, _ = c.digits(pos)
	default:
		_, err = c.expected("a number", start)
		return 0, false, err
	}
	integer, ok := true, true
	if c.at(pos) == '.' {
		integer = false
		pos, ok = c.digits(pos + 1)
	}
	if e := c.at(pos); ok && (e == 'e' || e == 'E') {
		integer = false
		pos++
		if sign := c.at(pos); sign == '+' || sign == '-' {
			pos++
		}
		pos, ok = c.digits(pos)
	}
	if !ok {
		_, err = c.malformed("a number lacks digits", start)
		return 0, false, err
	}
	return pos, integer, nil
}

// digits passes over digits; ok says that there is one.
func (c *jsonCheck) digits(pos int) (next int, ok bool) {
	start := pos
	for d := c.at(pos); d >= '0' && d <= '9'; d = c.at(pos) {
		pos++
	}
	return pos, pos > start
}

// str checks a string, or says that what was expected.
func (c *jsonCheck) str(what string, pos int) (next int, escaped bool, err *Error) {
	if c.at(pos) != '"' {
		_, err = c.expected(what, pos)
		return 0, false, err
	}
	data := c.data
	for i := pos + 1; i < len(data); i++ {
		b := data[i]
		switch {
		case b == '"':
			return i + 1, escaped, nil
		case b < ' ':
			_, err = c.malformed("a string has a control character", i)
			return 0, false, err
		case b == '\\':
			escaped = true
			i++
			switch c.at(i) {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				continue
			case 'u':
				if isHex(c.at(i+1)) && isHex(c.at(i+2)) && isHex(c.at(i+3)) && isHex(c.at(i+4)) {
					i += 4
					continue
				}
			}
			_, err = c.malformed("a string has an escape that there is not", i-1)
			return 0, false, err
		}
	}
	_, err = c.malformed("a string does not end", pos)
	return 0, false, err
}

func isHex(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F'
}

// unescapeLimit is more than any name has.
const unescapeLimit = 64

// unescape makes b, the inside of a string that str has checked, into ASCII. It
// fails if that is longer than buf, or not ASCII, which no name or number is.
func unescape(buf *[unescapeLimit]byte, b []byte) (n int, ok bool) {
	for i := 0; i < len(b); i++ {
		if n == len(buf) {
			return 0, false
		}
		d := b[i]
		if d == '\\' {
			i++
			switch d = b[i]; d {
			case 'b':
				d = '\b'
			case 'f':
				d = '\f'
			case 'n':
				d = '\n'
			case 'r':
				d = '\r'
			case 't':
				d = '\t'
			case 'u':
				r, err := strconv.ParseUint(asString(b[i+1:i+5]), 16, 16)
				if err != nil || r >= utf8.RuneSelf {
					return 0, false
				}
				d = byte(r)
				i += 4
			}
		}
		if d >= utf8.RuneSelf {
			return 0, false
		}
		buf[n] = d
		n++
	}
	return n, true
}
