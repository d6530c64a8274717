package report

import (
	"fmt"
	"strings"
)

// Origin is the machine, the time and the programs of a measurement. A field is "" if it is unknown.
type Origin struct {
	Date     string `json:"date"`     // RFC 3339
	Host     string `json:"host"`     // name of the machine
	Driver   string `json:"driver"`   // the version of the device's kernel driver; for the CPU that of the kernel
	Compiler string `json:"compiler"` // as it prints its version
	Program  string `json:"program"`  // version of aiterctl
	Commit   string `json:"commit"`   // of aiterctl
}

// fields returns the fields that make measurements comparable, by name.
func (f *File) fields() [][2]string {
	return [][2]string{
		{"device", f.Device}, {"host", f.Origin.Host}, {"driver", f.Origin.Driver}, {"compiler", f.Origin.Compiler},
	}
}

// Differences lists the differences between the devices, hosts, drivers and compilers of two files:
// "driver: 570.1, before 560.2". It skips fields that are unknown in one of them.
func Differences(now, before *File) []string {
	if before == nil {
		return nil
	}
	var list []string
	old := before.fields()
	for i, f := range now.fields() {
		if was := old[i][1]; f[1] != "" && was != "" && f[1] != was {
			list = append(list, fmt.Sprintf("%s: %s, before %s", f[0], f[1], was))
		}
	}
	return list
}

// facts returns the facts of an origin at the top of the page.
func (o Origin) facts() []fact {
	if o == (Origin{}) {
		return nil
	}
	program := o.Program
	if o.Commit != "" {
		program += " " + o.Commit[:min(len(o.Commit), 12)]
	}
	var notes []string
	for _, n := range [][2]string{{"host ", o.Host}, {"driver ", o.Driver}, {"", o.Compiler}, {"", program}} {
		if n[1] != "" {
			notes = append(notes, n[0]+n[1])
		}
	}
	return []fact{{"Measured on", strings.Replace(o.Date, "T", " ", 1), strings.Join(notes, "; ")}}
}
