package httpio

import (
	"net/http"
	"strconv"
	"strings"
)

// ParseRange reads a Range header with one range: length bytes from offset, all that follow if length is 0; a negative
// offset counts from the end. HTTP allows a server to ignore all other forms of the header.
func ParseRange(header string) (offset, length int64, ok bool) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	from, to, dash := strings.Cut(spec, "-")
	if !ok || !dash || strings.Contains(spec, ",") {
		return 0, 0, false
	}
	first, errFirst := strconv.ParseInt(from, 10, 62)
	last, errLast := strconv.ParseInt(to, 10, 62)
	switch {
	case from == "" && errLast == nil && last > 0:
		return -last, 0, true
	case errFirst == nil && to == "":
		return first, 0, true
	case errFirst == nil && errLast == nil && last >= first:
		return first, last - first + 1, true
	}
	return 0, 0, false
}

// ContentRange returns the value of the header Content-Range for the bytes from position from up to, but not including,
// position to. size is the size of the whole content.
func ContentRange(from, to, size int64) string {
	return "bytes " + strconv.FormatInt(from, 10) + "-" + strconv.FormatInt(to-1, 10) + "/" + strconv.FormatInt(size, 10)
}

// WriteContentHeader writes the header of an answer with content. ranged is true if the request had a range, which then
// began at offset. size is the size of the whole content; 0 or less if the size is unknown.
func WriteContentHeader(w http.ResponseWriter, ranged bool, offset, size int64) {
	switch {
	case w.Header().Get("Content-Range") != "":
		w.WriteHeader(http.StatusPartialContent)
	case ranged && size > 0 && offset >= size:
		w.Header().Set("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
	default:
		w.WriteHeader(http.StatusOK)
	}
}
