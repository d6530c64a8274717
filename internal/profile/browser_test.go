package profile

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

// probe clicks on the page and reports faults: texts that stick out of the window or are clipped, the zoom, the tooltip.
const probe = `<script>
const out = [];
for (const e of document.querySelectorAll("h1, h2, h3, dt, dd, small, p, li, button, .legend span, .ticks span, .name, figcaption")) {
  const box = e.getBoundingClientRect();
  if (box.width && (box.left < -1 || box.right > innerWidth + 1)) out.push(e.textContent);
}
const timeline = document.querySelector(".timeline"), track = timeline.querySelector(".track");
timeline.querySelector('[data-do="in"]').click();
const near = timeline.dataset.view;
timeline.querySelector('[data-do="right"]').click();
const later = timeline.dataset.view;
timeline.querySelector('[data-do="all"]').click();
const rect = track.querySelector("rect");
rect.dispatchEvent(new Event("pointerenter"));
const tip = document.getElementById("tip");
const heading = Array.from(document.querySelectorAll("th")).find((th) => th.textContent === "Mean");
heading.click();
const keys = Array.from(heading.closest("table").tBodies[0].rows).map((r) => Number(r.cells[4].dataset.key));
const ticks = Array.from(timeline.querySelectorAll(".ticks span")).filter((e) => e.offsetWidth).map((e) => e.getBoundingClientRect());
const overlap = ticks.some((box, i) => i > 0 && box.left < ticks[i - 1].right);
document.body.dataset.seen = [out.join("/"), near, later, timeline.dataset.view, tip.hidden, tip.textContent.split("\n")[0],
  keys.every((k, i) => i === 0 || keys[i - 1] <= k), overlap, document.documentElement.scrollWidth <= innerWidth].join("|");
</script></body>`

// A real browser draws the page light and dark, narrow and wide. No text is outside of the window, labels do not overlap, and the zoom
// and the table work. AITER_SCREENSHOTS=DIR keeps the pictures.
func TestPageInBrowser(t *testing.T) {
	shots := os.Getenv("AITER_SCREENSHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	page := samplePage(t)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	probed := filepath.Join(t.TempDir(), "probed.html")
	if err := os.WriteFile(probed, []byte(strings.Replace(string(text), "</body>", probe, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{500, 1300} { // headless windows are at least 500 px wide
		size := fmt.Sprintf("--window-size=%d,2600", width)
		dom, console := testenv.Browse(t, probed, size)
		seen := regexp.MustCompile(`data-seen="([^"]*)"`).FindStringSubmatch(dom)
		want := "|250000 500000|500000 500000|0 1000000|false|host step|true|false|true"
		if len(seen) != 2 || seen[1] != want || console != "" || !strings.Contains(dom, `data-ready="true"`) {
			t.Errorf("%d px: %q, want %q; console:\n%s", width, seen, want, console)
		}
	}
	for name, flags := range map[string][]string{
		"light-400": {"--window-size=400,2600"}, "light-1300": {"--window-size=1300,2600"},
		"dark-400":  {"--window-size=400,2600", "--blink-settings=preferredColorScheme=0"},
		"dark-1300": {"--window-size=1300,2600", "--blink-settings=preferredColorScheme=0"},
	} {
		shot := filepath.Join(shots, name+".png")
		testenv.Browse(t, page, append(flags, "--screenshot="+shot, "--hide-scrollbars")...)
		if info, err := os.Stat(shot); err != nil || info.Size() < 10_000 {
			t.Errorf("%s: %v, or an empty picture", name, err)
		}
	}
}
