package cache

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aiter-go/aiter/internal/sys"
)

// Count is a number of events of one kind.
type Count struct {
	Event   string  `json:"event"`   // "unit hit", "unit miss", "link hit", "link miss"
	Cause   string  `json:"cause"`   // of a miss: a jit.Cause such as "header"; "" for a hit
	N       int64   `json:"n"`       // number of events
	Seconds float64 `json:"seconds"` // of compiling: spent by misses, saved by hits
}

// Processes append lines to the file of counts, each with one write. If the file is longer than
// maxCounts, a process replaces the lines by their sums.
const (
	maxCounts  = 256 << 10 // bytes; a line has about 40
	countTries = 100       // of locking the file, 1 ms apart
)

// Count adds to the counts of this cache, which all processes share. It is one write to the
// end of a file. If the write fails, only these counts are lost.
func (d *Dir) Count(counts ...Count) {
	if len(counts) == 0 || d.readOnly {
		return
	}
	f := d.openCounts(sys.Shared)
	if f == nil {
		return
	}
	_, _ = f.Write(encodeCounts(counts))
	info, err := f.Stat()
	_ = f.Close()
	if err == nil && info.Size() > maxCounts {
		d.sumCounts()
	}
}

func (d *Dir) countsPath() string { return filepath.Join(d.base, "counts") }

// appendCount writes a line: number, seconds, event, cause, and the CRC-32 of these.
func appendCount(b *bytes.Buffer, c Count) {
	text := fmt.Sprintf("%d\t%.3f\t%s\t%s", c.N, c.Seconds, plainWord(c.Event), plainWord(c.Cause))
	fmt.Fprintf(b, "%s\t%s\n", text, lineSum(text))
}

func lineSum(text string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text))) }

// plainWord replaces control characters, which could end the line or the column.
func plainWord(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}

// openCounts opens the file and locks it: shared to append, exclusive to replace it. It
// returns nil if that fails.
func (d *Dir) openCounts(how int) *os.File {
	for range countTries {
		f, err := os.OpenFile(d.countsPath(), os.O_RDWR|os.O_CREATE|os.O_APPEND|sys.NoFollow|sys.NonBlock, 0o600)
		if err != nil {
			return nil
		}
		err = d.flock(f, how)
		if err == nil && sameFile(f, d.countsPath()) {
			return f
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// sumCounts replaces the file by a shorter one with equal sums. A process that opened the
// old file notices the replacement when it locks the file.
func (d *Dir) sumCounts() {
	f := d.openCounts(sys.Exclusive)
	if f == nil {
		return // another process sums up; if not, the next call does
	}
	defer f.Close()
	data, err := d.readCounts(f)
	if err != nil || len(data) <= maxCounts {
		return
	}
	d.replaceCounts(encodeCounts(parseCounts(data)))
}

// readCounts reads the open file of counts. It moves a file that is too large to quarantine.
func (d *Dir) readCounts(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data, err := readFD(int(f.Fd()), d.countsPath(), info.Size())
	if as[*sizeError](err) {
		_ = d.corrupt("file", "", d.countsPath(), err.Error())
	}
	return data, err
}

func encodeCounts(counts []Count) []byte {
	var b bytes.Buffer
	for _, c := range counts {
		appendCount(&b, c)
	}
	return b.Bytes()
}

// replaceCounts replaces the file of counts without fsync: a crash of the machine can lose the
// counts and nothing else. If it fails, the old file stays.
func (d *Dir) replaceCounts(data []byte) {
	s, err := d.NewStage()
	if err != nil {
		return
	}
	defer s.Close()
	if os.WriteFile(s.File("counts"), data, 0o600) == nil {
		_ = os.Rename(s.File("counts"), d.countsPath())
	}
}

// Counts returns the sums, sorted by event, the most frequent cause first.
func (d *Dir) Counts() []Count {
	data, err := readRegular(d.countsPath())
	if err != nil {
		return nil
	}
	return parseCounts(data)
}

// parseCounts sums up lines. It skips invalid lines, such as one that a crash has cut short.
func parseCounts(data []byte) []Count {
	type name struct{ event, cause string }
	sums := map[name]Count{}
	for line := range strings.Lines(string(data)) {
		c, ok := parseCount(line)
		if !ok {
			continue
		}
		key := name{c.Event, c.Cause}
		c.N += sums[key].N
		c.Seconds += sums[key].Seconds
		sums[key] = c
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(b.N, a.N), cmp.Compare(a.Cause, b.Cause))
	})
}

func parseCount(line string) (c Count, ok bool) {
	line, complete := strings.CutSuffix(line, "\n")
	text, sum, _ := cutLast(line, "\t")
	f := strings.Split(text, "\t")
	if !complete || sum != lineSum(text) || len(f) != 4 || f[2] == "" {
		return c, false
	}
	n, errN := strconv.ParseInt(f[0], 10, 64)
	s, errS := strconv.ParseFloat(f[1], 64)
	if errN != nil || errS != nil || n < 0 || n > maxCount || !(s >= 0) || s > maxSeconds {
		return c, false
	}
	return Count{Event: f[2], Cause: f[3], N: n, Seconds: s}, true
}

// cutLast cuts s around the last instance of sep.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// repairCounts moves a file of counts with damaged lines to quarantine and writes the sums of
// the other lines. It returns the fault, "" if there is none.
func (d *Dir) repairCounts() (fault string) {
	data, err := readRegular(d.countsPath())
	if as[*sizeError](err) {
		d.quarantineIrregular(d.countsPath(), err)
		return err.Error()
	}
	if err != nil {
		return ""
	}
	bad := badLines(data)
	if bad == 0 {
		return ""
	}
	fault = fmt.Sprintf("corrupt: %d lines have no valid checksum", bad)
	if d.readOnly {
		return fault
	}
	f := d.openCounts(sys.Exclusive)
	if f == nil {
		return fault
	}
	defer f.Close()
	if data, err = d.readCounts(f); err != nil {
		return fault
	}
	d.Quarantine(d.countsPath())
	d.replaceCounts(encodeCounts(parseCounts(data)))
	return fault
}

// badLines counts the invalid lines.
func badLines(data []byte) (n int) {
	for line := range strings.Lines(string(data)) {
		if _, ok := parseCount(line); !ok {
			n++
		}
	}
	return n
}

// A line with a larger number than these is damaged.
const (
	maxCount   = 1e12
	maxSeconds = 1e12
)
