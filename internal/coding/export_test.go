package coding

// NewHandlerThatPings is [NewHandler] with a given time between the comments that keep a connection alive.
var NewHandlerThatPings = newHandler
