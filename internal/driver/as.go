package driver

// As returns the ability T of a driver or an instance, from v itself or from the value that v wraps. A wrapper, for
// example one that logs or retries, has a method Unwrap that returns the wrapped value. To check for an optional
// ability, use As and never a type assertion, which sees only the wrapper.
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
