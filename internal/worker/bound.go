package worker

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/option"
)

// maxAnswer is the longest answer in JSON, in bytes: the SDK reads an answer into memory.
const maxAnswer = 64 << 20

// maxSkills is the most bytes of a skill's archive. It also bounds the unpacked skills of a session: if they are
// larger, no further skill is downloaded. The SDK bounds what one archive unpacks to. A third party can have written
// the skills.
var maxSkills int64 = 256 << 20

var errLongAnswer = errors.New("the answer of the API is too long")

// boundAnswer bounds the answers of the API. Streams of events have no end; the SDK bounds each event.
func boundAnswer(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	answer, err := next(req)
	switch {
	case err != nil:
	case isSkill(req): // whatever its type
		answer.Body = &boundedBody{answer.Body, maxSkills}
	case strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream"):
	default:
		answer.Body = &boundedBody{answer.Body, maxAnswer}
	}
	return answer, err
}

// isSkill reports whether a request downloads a skill.
func isSkill(req *http.Request) bool {
	return strings.Contains(req.URL.Path, "/skills/") && strings.HasSuffix(req.URL.Path, "/content")
}

// boundedBody fails after a number of bytes.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errLongAnswer
	}
	return n, err
}

// boundSkills downloads no further skill when the session's skills take too much of this machine's disk.
func (s *session) boundSkills(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	if isSkill(req) && sizeOf(s.downloads) > maxSkills {
		return refusal(req, http.StatusRequestEntityTooLarge, "request_too_large", "the skills of this session are too large for this worker"), nil
	}
	return next(req)
}

// sizeOf returns the size of the files in a folder, in bytes.
func sizeOf(dir string) (sum int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += max(info.Size(), 4096) // a file takes a block, and so does a folder
		}
		return err
	})
	return sum
}
