package jit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/shell"
	"github.com/aiter-go/aiter/internal/toolchain"
)

// A worker's folder has the source tree in src, the tree of the built-in headers in headers if that is another one, and the
// outputs in out. A compiler runs in src, as on this machine it runs in the source tree, so that the object is the same.
// workMark stands for the folder in the arguments of the script, because workers choose it.
const (
	workMark  = "/AITER-WORK"
	outFolder = "out"
	readsFile = "reads" // lists the files that the compiler read
)

// workerPath is PATH on workers. A compiler outside of it has an absolute path.
const workerPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// workerFolders returns the folders of the sources below the worker's folder.
func workerFolders(work string, on deps.Folders) deps.Folders {
	f := deps.Folders{Root: path.Join(work, "src"), Name: on.Name}
	if on.Headers != "" {
		f.Headers = path.Join(work, "headers")
	}
	return f
}

// workerEnviron returns the environment of a compiler on a worker: that on this machine without its folders.
func workerEnviron(tc *toolchain.Toolchain) []string {
	env := slices.DeleteFunc(tc.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"HOME", "TMPDIR", "PATH"}, name)
	})
	env = append(env, "PATH="+workerPath)
	slices.Sort(env)
	return env
}

// workerArgs returns a command line for the script. A compiler that runs in a root folder on this machine has its plain name on
// workers, which have that root as theirs.
func workerArgs(tc *toolchain.Toolchain, argv []string) string {
	argv = slices.Clone(argv)
	if tc.Root != "" {
		argv[0] = path.Base(tc.Compiler)
	}
	words := make([]string, len(argv))
	for i, word := range argv {
		parts := strings.Split(word, workMark)
		for j := range parts {
			if parts[j] != "" || len(parts) == 1 {
				parts[j] = shell.Quote(parts[j])
			}
		}
		words[i] = strings.Join(parts, `"$work"`)
	}
	return strings.Join(words, " ")
}

// scriptStart enters the folder in %[1]s and compares the toolchain: the beginning of each file, which has the identity of a program
// or library, and the sizes.
const scriptStart = `work=$(pwd -P)
mkdir -p out %[1]s
export TMPDIR="$work/out"
tools=$({ head -q -c 65536 -- %[2]s; stat -L -c %%s -- %[2]s; } 2>/dev/null | sha256sum)
if [ "${tools%%%% *}" != %[3]s ]; then
  echo "the worker has another toolchain than %[4]s" >&2
  exit 90
fi
cd %[1]s || exit 1
`

// scriptReads writes the worker's folder and the digests of the files that the compiler's reports name. A name that the
// shell splits is missing there, which makes the result useless.
const scriptReads = `{
  echo "$work"
  for report in unit.d unit.d.as unit.headers; do
    [ ! -f "$work/out/$report" ] || tr -s ' \t\\' '\n' <"$work/out/$report"
    echo
  done | sort -u | while IFS= read -r name; do
    [ ! -f "$name" ] || printf '%s\0' "$name"
  done | xargs -0 -r sha256sum --
} >"$work/out/reads"
`

// compileScript returns the script of a compile.
func compileScript(tc *toolchain.Toolchain, tools workerTools, argv []string) string {
	return tools.enter(tc, "src") + "export CC_PRINT_HEADERS=1 CC_PRINT_HEADERS_FILE=\"$work/out/" + headersFile + "\"\n" +
		workerArgs(tc, argv) + " || exit $?\n" + scriptReads
}

// linkScript returns the script of a link.
func linkScript(tc *toolchain.Toolchain, tools workerTools, argv []string) string {
	return tools.enter(tc, outFolder) + "mv ../objects/* . || exit 1\n" + workerArgs(tc, argv) + " || exit $?\n"
}

// workerTools are the files of a toolchain that a worker compares.
type workerTools struct {
	names  []string // as the compiler names them
	digest string   // that scriptStart computes
}

// enter returns the beginning of a script that runs in a folder.
func (w workerTools) enter(tc *toolchain.Toolchain, dir string) string {
	return fmt.Sprintf(scriptStart, dir, shell.Join(w.names), w.digest, shell.Quote(tc.VersionLine))
}

var errNoTools = errors.New("the toolchain has no file that a worker could compare")

// toolsOf returns the files of a pass for workers. It reads each toolchain once. The host pass that all targets share has the files that
// all targets share: its command is the same for each target.
func (r *remote) toolsOf(tc *toolchain.Toolchain, p toolchain.Pass) (workerTools, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.tools[tc.Identity(p)]; ok {
		return known, nil
	}
	w, err := readTools(tc, p)
	if err != nil {
		return w, &ExecutorError{Cause: ExecutorToolchain, Err: err}
	}
	r.tools[tc.Identity(p)] = w
	return w, nil
}

func readTools(tc *toolchain.Toolchain, p toolchain.Pass) (w workerTools, err error) {
	h := sha256.New()
	var sizes bytes.Buffer
	for _, f := range tc.FilesOf(p) {
		host := tc.Resolve(f.Path)
		if f.Path == "" || tc.Root != "" && !strings.HasPrefix(host, tc.Root+"/") { // such as the wrapper that enters the root
			continue
		}
		size, err := hashStart(h, host)
		if err != nil {
			return w, err
		}
		fmt.Fprintln(&sizes, size)
		w.names = append(w.names, f.Path)
	}
	if len(w.names) == 0 {
		return w, errNoTools
	}
	h.Write(sizes.Bytes())
	w.digest = hex.EncodeToString(h.Sum(nil))
	return w, nil
}

// hashStart adds the beginning of a file to a hash and returns its size.
func hashStart(h io.Writer, name string) (size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	const start = 65536
	_, err = io.CopyN(h, f, start)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return info.Size(), err
}

// workerReads are the files that a compiler read on a worker.
type workerReads struct {
	work    string            // the worker's folder
	digests map[string]string // SHA-256 in hex by name; a name in the source tree is relative
}

// parseReads reads the list that scriptReads writes. on are the folders of the sources on this machine.
func parseReads(data []byte, on deps.Folders) (workerReads, error) {
	work, lines, ok := strings.Cut(string(data), "\n")
	if !ok || !path.IsAbs(work) {
		return workerReads{}, fmt.Errorf("the list of files that were read has %q for the worker's folder, expected an absolute path", work)
	}
	r := workerReads{work, map[string]string{}}
	there := workerFolders(work, on)
	for line := range strings.Lines(lines) {
		digest, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || !isSHA256(digest) || name == "" {
			return r, fmt.Errorf("the list of files that were read: expected a digest and a name, got %q", line)
		}
		r.digests[there.InTree(name)] = digest
	}
	return r, nil
}

func isSHA256(s string) bool {
	digest, err := hex.DecodeString(s)
	return err == nil && len(digest) == sha256.Size
}
