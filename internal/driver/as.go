package driver

// As returns the ability T of a driver or an instance: its own, or that of what
// it wraps. A wrapper (one that logs, or tries again) says what it wraps by a
// method Unwrap. Ask for optional abilities by As, never by a type assertion,
// which sees the wrapper only.
func As[T any](v any) (T, bool) {
	for {
		if t, ok := v.(T); ok {
			return t, true
		}
		w, ok := v.(interface{ Unwrap() any })
		if !ok {
			var none T
			return none, false
		}
		v = w.Unwrap()
	}
}
