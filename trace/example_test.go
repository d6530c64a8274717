package trace_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/aiter-go/aiter/trace"
)

// A program adds its own work to the timeline. WriteChrome writes a file for Perfetto.
func ExampleRecorder_Begin() {
	rec := trace.New(trace.Options{})
	span := rec.Begin(trace.Host, "tokenize")
	span.Bytes = 4096
	span.End(nil)

	line := rec.Timeline()
	for _, s := range line.Spans {
		fmt.Println(s.Title(), s.Bytes, s.Track.Name())
	}
	var file strings.Builder
	if err := line.WriteChrome(&file); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(file.String(), `"name":"host tokenize"`))
	// Output:
	// host tokenize 4096 lane 1
	// true
}
