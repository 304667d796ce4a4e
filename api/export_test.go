package api

// Curl returns the command line that the page shows for an operation.
func Curl(operationID string) string {
	for _, o := range parsed().operations() {
		if o.ID == operationID {
			return o.Curl()
		}
	}
	return ""
}
