package coding

// NewHandlerThatPings is [NewHandler] with another time between comments.
var NewHandlerThatPings = newHandler
