package image

import _ "embed"

//go:embed random/provider_amd64.so
var randomProvider string
