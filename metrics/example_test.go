package metrics_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/metrics"
)

// A registry with Options{Observer: m} sends the events. The example sends one itself.
func Example() {
	m := metrics.New()
	m.Observe(jit.Event{Step: jit.ModuleFinished, Module: "module_x", Target: "gfx942", Status: jit.Hit, Seconds: 0.002})
	page := httptest.NewRecorder()
	m.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	text, _ := io.ReadAll(page.Body) // a buffer
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, `aiter_build_duration_seconds_count{`) && strings.Contains(line, "hit") {
			fmt.Print(line)
		}
	}
	// Output: aiter_build_duration_seconds_count{arch="gfx942",module="module_x",result="hit"} 1
}
