package toolchain

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/target"
)

// questions are the arguments that make a vendor's compiler print which programs and files it uses.
type questions struct {
	version []string
	verbose []string // preprocess nothing and print the include folders
	dry     []string // print the commands of a host compile; empty if verbose prints them
	link    []string // print the commands of a link
	trial   []string // make an empty library; see search.trial
}

func questionsFor(v target.Vendor) questions {
	const object, library, null = "aiter-probe.o", "aiter-probe.so", "/dev/null"
	q := questions{
		version: []string{"--version"},
		verbose: []string{"-v", "-E", "-x", "c++", null, "-o", null},
		dry:     []string{"-###", "-c", "-x", "c++", null, "-o", object},
		link:    []string{"-###", "-shared", null, "-o", library},
		trial:   []string{"-shared", "-fPIC", "-x", "c++", null, "-o", library},
	}
	switch v {
	case target.HIP:
		// Defining the include guard of HIP's headers skips them, which is most of Clang's work here.
		q.verbose = []string{"-v", "-E", "-x", "hip", "--cuda-host-only", "-nogpulib", "-D__CLANG_HIP_RUNTIME_WRAPPER_H__", null, "-o", null}
		q.dry = nil
	case target.CUDA:
		q.verbose = []string{"-x", "cu", "-E", "-Xcompiler", "-v", null, "-o", null}
		q.dry = []string{"-x", "c++", "-c", "-Xcompiler", "-###", null, "-o", object}
		q.link = []string{"--dryrun", "-shared", "-cudart", "static", "-nodlink", object, "-o", library}
		q.trial = []string{"-shared", "-Xcompiler", "-fPIC", "-cudart", "static", "-nodlink", "-x", "c++", null, "-o", library}
	}
	return q
}

// targetQuestion returns the arguments that make the compiler print the commands of a device compile.
func targetQuestion(t target.Target) []string {
	if t.Vendor() == target.CUDA {
		return []string{"--dryrun", "-x", "cu", "-gencode=arch=compute_" + smNumber(t) + ",code=" + t.Arch(),
			"-c", "/dev/null", "-o", "aiter-probe.o"}
	}
	return []string{"-###", "-c", "-x", "hip", "--offload-arch=" + t.String(), "/dev/null", "-o", "aiter-probe.o"}
}

// askCommon asks for the programs and files that do not depend on the target.
func (s *search) askCommon() (*record, error) {
	q := questionsFor(s.tc.Vendor)
	asked := [][]string{q.version, q.verbose, q.link}
	if q.dry != nil {
		asked = append(asked, q.dry)
	}
	replies, err := s.runAll(asked...)
	if err != nil {
		return nil, err
	}
	r, answers, err := s.readCommon(q, replies)
	if err != nil {
		return nil, err
	}
	return r, s.collect(r, true, answers, replies)
}

// readCommon reads the replies to the common questions.
func (s *search) readCommon(q questions, replies []reply) (*record, []answer, error) {
	version, verbose := replies[0].text, replies[1].text
	r := &record{VersionLine: versionLine(s.tc.Vendor, version)}
	if r.Version = versionNumber(r.VersionLine); r.Version == "" {
		return nil, nil, s.confused(q.version, version, "no version in its answer")
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
	last, asking := 0, q.verbose // index of the reply with the commands of a host compile, and its question
	if q.dry != nil {
		last, asking = len(answers)-1, q.dry
	}
	if !slices.ContainsFunc(answers[last].commands, func(words []string) bool { return strings.Contains(words[0], "/") }) {
		return nil, nil, s.confused(asking, replies[1+last].text, "no command in its answer")
	}
	return r, answers, nil
}

// askTarget asks for the programs and files that compile device code for the target.
func (s *search) askTarget() (*record, error) {
	args := targetQuestion(s.target)
	early, err := s.early()
	out := early.text
	complaint := firstComplaint(out)
	mine := strings.Contains(complaint, s.target.Arch()) || strings.Contains(complaint, "compute_"+smNumber(s.target))
	var probe *ProbeError
	if (err == nil || errors.As(err, &probe) && probe.Timeout == 0) && mine {
		return nil, &UnsupportedTargetError{Compiler: s.tc.Compiler, Version: s.tc.VersionLine, Target: s.target, Reason: complaint}
	}
	if err != nil {
		return nil, err
	}
	a := parseAnswer(out)
	if len(a.commands) == 0 {
		return nil, s.confused(args, out, "no command in its answer")
	}
	r := &record{}
	return r, s.collect(r, false, []answer{a}, []reply{early})
}

func (s *search) confused(args []string, out, why string) error {
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

// versionNumber returns the number after "HIP version:", "V" (nvcc) or "version", or else the last number.
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

// firstComplaint returns the first line that contains "error" or "fatal".
func firstComplaint(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "error:") || strings.Contains(line, "fatal") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
