package secret

// stream replaces secrets in bytes that arrive in pieces. It holds back a possible beginning of a secret until that is
// decided, at most the longest form minus one byte; the result does not depend on the pieces.
type stream struct {
	r      *Redactor
	held   []byte
	passed int // bytes of held that were passed on already
}

// emit receives text that can be shown, or a marker in its place; end is the text's end, counted from the beginning of
// the held text.
type emit func(data []byte, end int, marker bool)

// write handles the next piece.
func (s *stream) write(b []byte, out emit) {
	if len(s.held) > 0 {
		s.held = append(s.held, b...)
		b = s.held
	}
	s.drain(b, false, out)
}

// release passes on everything, because no more text follows.
func (s *stream) release(out emit) { s.drain(s.held, true, out) }

// reveal passes on the harmless part of the held text if no more text seems to follow: a prompt must not be held back
// because of its last letters.
func (s *stream) reveal(out emit) {
	if len(s.held) == 0 {
		return
	}
	if k := s.r.harmless(s.held); k > s.passed {
		data := s.held[s.passed:k]
		s.passed = k
		out(data, k, false)
	}
}

func (s *stream) drain(b []byte, final bool, out emit) {
	for from := 0; ; {
		at, n := s.r.find(b, from, final)
		if begin := max(from, s.passed); at > begin {
			out(b[begin:at], at, false)
		}
		if n == nil {
			s.passed = max(s.passed-at, 0)
			s.held = append(s.held[:0], b[at:]...)
			return
		}
		from = at + len(n.text)
		if from > s.passed {
			out(n.marker, from, true)
		}
	}
}
