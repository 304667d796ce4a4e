package preview

import (
	"io"
	"net/http"
	"testing"
)

// BenchmarkPage requests a small page directly, and through a preview.
func BenchmarkPage(b *testing.B) {
	page := make([]byte, 1000)
	bed := open(b, func(w http.ResponseWriter, r *http.Request) { w.Write(page) }, nil)
	for name, host := range map[string][2]string{"direct": {"http://" + bed.addr, ""}, "preview": {bed.URL, public + ".localhost"}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				transport := &http.Transport{DisableCompression: true}
				defer transport.CloseIdleConnections()
				for pb.Next() {
					req, _ := http.NewRequest("GET", host[0], nil)
					req.Host = host[1]
					resp, err := transport.RoundTrip(req)
					if err != nil {
						b.Error(err)
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		})
	}
}
