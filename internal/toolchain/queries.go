package toolchain

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// queries holds the arguments that make a vendor's compiler print the programs and files that it uses.
type queries struct {
	version []string
	verbose []string // preprocess nothing and print the include folders
	dry     []string // print the commands of a host compile; empty if verbose prints them
	link    []string // print the commands of a link
	trial   []string // make an empty library; see search.trial
	accept  []string // compile nothing; flags follow, see Toolchain.Accepted
}

// queriesFor returns the queries for the compilers of a vendor.
func queriesFor(v target.Vendor) queries {
	const object, library, null = "aiter-probe.o", "aiter-probe.so", "/dev/null"
	q := queries{
		version: []string{"--version"},
		verbose: []string{"-v", "-E", "-x", "c++", null, "-o", null},
		dry:     []string{"-###", "-c", "-x", "c++", null, "-o", object},
		link:    []string{"-###", "-shared", null, "-o", library},
		trial:   []string{"-shared", "-fPIC", "-x", "c++", null, "-o", library},
		accept:  []string{"-fsyntax-only", "-x", "c++", null},
	}
	switch v {
	case target.HIP:
		// Defining the include guard of HIP's headers skips them, which is most of Clang's work here.
		q.verbose = []string{"-v", "-E", "-x", "hip", "--cuda-host-only", "-nogpulib", "-D__CLANG_HIP_RUNTIME_WRAPPER_H__", null, "-o", null}
		q.dry = nil
		q.accept = []string{"-fsyntax-only", "-x", "hip", "--cuda-host-only", "-nogpulib", "-D__CLANG_HIP_RUNTIME_WRAPPER_H__", null}
	case target.CUDA:
		// As above: the include guard of the header that nvcc includes in front of each source.
		q.verbose = []string{"-x", "cu", "-E", "-D__CUDA_RUNTIME_H__", "-Xcompiler", "-v", null, "-o", null}
		q.dry = []string{"-x", "c++", "-c", "-Xcompiler", "-###", null, "-o", object}
		q.accept = []string{"-x", "cu", "-E", "-D__CUDA_RUNTIME_H__", null, "-o", null}
		q.link = []string{"--dryrun", "-shared", "-cudart", "static", "-nodlink", object, "-o", library}
		q.trial = []string{"-shared", "-Xcompiler", "-fPIC", "-cudart", "static", "-nodlink", "-x", "c++", null, "-o", library}
	}
	return q
}

// targetQuery returns the arguments that make the compiler print the commands of a device compile.
func targetQuery(t target.Target) []string {
	if t.Vendor() == target.CUDA {
		return []string{"--dryrun", "-x", "cu", gencode(t),
			"-c", "/dev/null", "-o", "aiter-probe.o"}
	}
	return []string{"-###", "-c", "-x", "hip", "--offload-arch=" + t.String(), "/dev/null", "-o", "aiter-probe.o"}
}

// queryCommon makes the queries for the programs and files that do not depend on the target.
func (s *search) queryCommon() (*record, error) {
	q := queriesFor(s.tc.Vendor)
	args := [][]string{q.version, q.verbose, q.link}
	if q.dry != nil {
		args = append(args, q.dry)
	}
	replies, err := s.runAll(args...)
	if err != nil {
		return nil, err
	}
	r, answers, err := s.readCommon(q, replies)
	if err != nil {
		return nil, err
	}
	return r, s.collect(r, true, answers, replies)
}

// readCommon reads the replies to the common queries.
func (s *search) readCommon(q queries, replies []reply) (*record, []answer, error) {
	version, verbose := replies[0].text, replies[1].text
	r := &record{VersionLine: versionLine(s.tc.Vendor, version)}
	if r.Version = versionNumber(r.VersionLine); r.Version == "" {
		return nil, nil, s.unexpected(q.version, version, "no version in its answer")
	}
	if host := hostLine(verbose); s.tc.Vendor == target.CUDA && host != "" {
		r.VersionLine += "; " + host
	}
	r.IncludeDirs = includeDirs(verbose)
	var answers []answer
	for _, r := range replies[1:] {
		answers = append(answers, parseAnswer(r.text))
	}
	r.LibraryDirs = libraryDirs(answers[0], answers[1])
	var err error
	if r.Root, err = s.findRoot(answers); err != nil {
		return nil, nil, err
	}
	s.tc.Root = r.Root
	last, args := 0, q.verbose // index of the reply with the commands of a host compile, and its query
	if q.dry != nil {
		last, args = len(answers)-1, q.dry
	}
	if !slices.ContainsFunc(answers[last].commands, func(words []string) bool { return strings.Contains(words[0], "/") }) {
		return nil, nil, s.unexpected(args, replies[1+last].text, "no command in its answer")
	}
	return r, answers, nil
}

// queryTarget makes the query for the programs and files that compile device code for the target. It fails with
// *UnsupportedTargetError if the compiler rejects the target.
func (s *search) queryTarget() (*record, error) {
	args := targetQuery(s.target)
	targetReply, err := s.targetReply()
	out := targetReply.text
	reason := firstError(out)
	namesTarget := strings.Contains(reason, s.target.Arch()) || strings.Contains(reason, "compute_"+strings.TrimPrefix(s.target.Arch(), "sm_"))
	var probe *ProbeError
	if exited := err == nil || errors.As(err, &probe) && probe.Timeout == 0; exited && namesTarget {
		return nil, &UnsupportedTargetError{Compiler: s.tc.Compiler, Version: s.tc.VersionLine, Target: s.target, Reason: reason}
	}
	if err != nil {
		return nil, err
	}
	a := parseAnswer(out)
	if len(a.commands) == 0 {
		return nil, s.unexpected(args, out, "no command in its answer")
	}
	r := &record{}
	return r, s.collect(r, false, []answer{a}, []reply{targetReply})
}

// unexpected returns the error for a reply that cannot be parsed.
func (s *search) unexpected(args []string, out, why string) error {
	return &ProbeError{Command: append([]string{s.tc.Compiler}, args...), Output: out, Err: errors.New(why)}
}

// versionLine returns the lines with the version in the output of --version.
func versionLine(v target.Vendor, out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	keep := lines[:1]
	switch v {
	case target.HIP:
		keep = slices.DeleteFunc(lines, func(l string) bool {
			return !strings.HasPrefix(l, "HIP version:") && !strings.Contains(l, "clang version")
		})
	case target.CUDA:
		keep = slices.DeleteFunc(lines, func(l string) bool { return !strings.Contains(l, "release") })
	}
	return strings.TrimSpace(strings.Join(keep, "; "))
}

// hostLine returns the version line of nvcc's C++ compiler.
func hostLine(out string) string {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "gcc version ") || strings.Contains(line, "clang version ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// versionNumber returns the number after "HIP version:", "V" (nvcc) or "version", else the last number, else "".
func versionNumber(line string) string {
	for _, form := range []string{`HIP version: (\d+(?:\.\d+)+)`, `\bV(\d+(?:\.\d+)+)`, `version (\d+(?:\.\d+)+)`} {
		if m := regexp.MustCompile(form).FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	all := regexp.MustCompile(`\d+(?:\.\d+)+`).FindAllString(line, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// firstError returns the first line that contains "error" or "fatal".
func firstError(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "error:") || strings.Contains(line, "fatal") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
