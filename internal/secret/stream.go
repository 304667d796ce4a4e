package secret

// stream replaces secrets in bytes that come in pieces. What may be the
// beginning of a secret is held until it is decided, at most the longest form
// of one less a byte; whatever the pieces, the whole is the same.
type stream struct {
	r    *Redactor
	held []byte
	told int // of held, bytes that were told already
}

// emit takes what may be told: text up to the given byte of what the stream was
// given since the beginning of what it held, or a marker in its place.
type emit func(data []byte, end int, marker bool)

// write takes the next piece.
func (s *stream) write(b []byte, out emit) {
	if len(s.held) > 0 {
		s.held = append(s.held, b...)
		b = s.held
	}
	s.drain(b, false, out)
}

// release tells all that is held: nothing follows it.
func (s *stream) release(out emit) { s.drain(s.held, true, out) }

// reveal tells as much of what is held as tells no secret, when nothing seems
// to follow: a prompt is not kept back for its last letters.
func (s *stream) reveal(out emit) {
	if len(s.held) == 0 {
		return
	}
	if k := s.r.harmless(s.held); k > s.told {
		data := s.held[s.told:k]
		s.told = k
		out(data, k, false)
	}
}

func (s *stream) drain(b []byte, final bool, out emit) {
	for from := 0; ; {
		at, n := s.r.find(b, from, final)
		if begin := max(from, s.told); at > begin {
			out(b[begin:at], at, false)
		}
		if n == nil {
			s.told = max(s.told-at, 0)
			s.held = append(s.held[:0], b[at:]...)
			return
		}
		from = at + len(n.text)
		if from > s.told {
			out(n.marker, from, true)
		}
	}
}
