package aiter_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
)

func readText(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var (
	diagramNode  = regexp.MustCompile(`(?m)^ +(\w+)\["([^"]+)"\]$`)
	diagramArrow = regexp.MustCompile(`(?m)^ +(\w+) --> ([\w &]+)$`)
)

// TestDiagram compares the diagram in ARCHITECTURE.md with layers. Each arrow has to be an import, and each
// import has to be an arrow or a path of several arrows.
func TestDiagram(t *testing.T) {
	text := readText(t, "ARCHITECTURE.md")
	names, arrows := map[string]string{}, map[string][]string{}
	for _, m := range diagramNode.FindAllStringSubmatch(text, -1) {
		pkg := m[2]
		if pkg == "aiter" {
			pkg = "" // the root of the module
		}
		names[m[1]], arrows[pkg] = pkg, nil
	}
	for _, m := range diagramArrow.FindAllStringSubmatch(text, -1) {
		for id := range strings.SplitSeq(m[2], " & ") {
			from, to := names[m[1]], names[id]
			if !slices.Contains(layers[from], to) {
				t.Errorf("ARCHITECTURE.md: the diagram has the arrow %s --> %s, which layers_test.go does not allow", m[1], id)
			}
			arrows[from] = append(arrows[from], to)
		}
	}
	for pkg, imports := range layers {
		if _, drawn := arrows[pkg]; !drawn {
			t.Errorf("ARCHITECTURE.md: the diagram has no node %q", pkg)
		}
		for _, to := range imports {
			if !reaches(arrows, pkg, to) {
				t.Errorf("ARCHITECTURE.md: the diagram has no path from %q to %q, which it may import; add an arrow", pkg, to)
			}
		}
	}
	if len(arrows) != len(layers) {
		t.Errorf("ARCHITECTURE.md: the diagram has %d nodes, expected the %d packages of layers_test.go", len(arrows), len(layers))
	}
}

func reaches(arrows map[string][]string, from, to string) bool {
	return slices.ContainsFunc(arrows[from], func(next string) bool {
		return next == to || reaches(arrows, next, to)
	})
}

var (
	walkRow = regexp.MustCompile("(?m)^\\| `([\\w.]+)` \\| `([\\w./]+)` \\|")
	docLink = regexp.MustCompile(`\]\(([^)#:]+)\)`)
	docPath = regexp.MustCompile("`([\\w.]+(?:/[\\w.]+)+/?)`")
	docCode = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestWalks checks that each function in the walks of ARCHITECTURE.md is declared in the file that the walk names.
func TestWalks(t *testing.T) {
	rows := walkRow.FindAllStringSubmatch(readText(t, "ARCHITECTURE.md"), -1)
	if len(rows) < 10 {
		t.Fatalf("ARCHITECTURE.md has %d rows in its walks, expected at least 10", len(rows))
	}
	for _, row := range rows {
		function, file := row[1], row[2]
		text, declaration := readText(t, file), regexp.QuoteMeta(function)+`\(`
		if path.Ext(file) == ".go" {
			declaration = `func ` + regexp.QuoteMeta(function) + `[(\[]` // a generic function has a "["
			if owner, method, is := strings.Cut(function, "."); is {
				declaration = `func \(\w+ \*?` + owner + `\) ` + method + `\(`
			}
		}
		if !regexp.MustCompile(`(?m)` + declaration).MatchString(text) {
			t.Errorf("ARCHITECTURE.md names %s in %s, which does not declare it", function, file)
		}
	}
}

// maxBuildDepth is the number of functions from Manager.Build to the start of a compiler, both included.
const maxBuildDepth = 8

// TestWalkCalls checks that each Go function in a walk is called by one before it. It also counts the functions of a build.
func TestWalkCalls(t *testing.T) {
	var walk [][]string // its rows with Go functions
	depth := 0
	for line := range strings.Lines(readText(t, "ARCHITECTURE.md")) {
		row := walkRow.FindStringSubmatch(line)
		if row == nil {
			walk = nil
			continue
		}
		inGo := path.Ext(row[2]) == ".go"
		if inGo && len(walk) > 0 && !slices.ContainsFunc(walk, func(before []string) bool { return calls(t, before[1], before[2], row[1]) }) {
			t.Errorf("ARCHITECTURE.md: no function before %s in the walk calls it", row[1])
		}
		if row[1] == "Manager.Build" || depth > 0 && slices.Contains([]string{"jit", "internal/process"}, path.Dir(row[2])) {
			depth++
		}
		if inGo {
			walk = append(walk, row)
		}
	}
	if depth != maxBuildDepth {
		t.Errorf("ARCHITECTURE.md has %d functions from Manager.Build to the compiler's start, want %d", depth, maxBuildDepth)
	}
}

// calls reports whether the body of a function names a function or method, as in x.run(.
func calls(t *testing.T, function, file, callee string) bool {
	t.Helper()
	owner, name, isMethod := strings.Cut(function, ".")
	if !isMethod {
		owner, name = "", function
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	_, method, isMethod := strings.Cut(callee, ".")
	if !isMethod {
		method = callee
	}
	found := false
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Name.Name != name || (fn.Recv == nil) != (owner == "") {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			found = found || ok && id.Name == method && id != fn.Name
			return !found
		})
	}
	return found
}

// TestDocsPaths checks that each file to which the documentation links, or which it names by a path in the
// checkout, exists.
func TestDocsPaths(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range append(docs, "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md") {
		text := docCode.ReplaceAllString(readText(t, doc), "")
		for _, m := range docLink.FindAllStringSubmatch(text, -1) {
			wantPath(t, doc, filepath.Join(filepath.Dir(doc), m[1]))
		}
		for _, m := range docPath.FindAllStringSubmatch(text, -1) {
			top, _, _ := strings.Cut(m[1], "/")
			if _, err := os.Stat(top); err == nil && !strings.HasPrefix(top, ".") && top != "bin" {
				wantPath(t, doc, m[1])
			}
		}
	}
}

func wantPath(t *testing.T, doc, name string) {
	t.Helper()
	if _, err := os.Stat(name); err != nil {
		t.Errorf("%s names %s: %v", doc, name, err)
	}
}

// TestReadmeProgram runs the first program of README.md and compares its output with the comment in it.
func TestReadmeProgram(t *testing.T) {
	testenv.SkipRace(t)
	_, rest, _ := strings.Cut(readText(t, "README.md"), "```go\n")
	program, _, found := strings.Cut(rest, "```")
	want := regexp.MustCompile(`Println\(values\) // (.*)`).FindStringSubmatch(program)
	if !found || want == nil {
		t.Fatal("README.md has no Go program with its output in a comment")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := exec.CommandContext(t.Context(), "go", "run", file).Output() // a first call logs what it compiles to standard error
	if err != nil || strings.TrimSpace(string(got)) != want[1] {
		t.Errorf("the program of README.md printed %q (%v), expected %q", got, err, want[1])
	}
}

var globalKernel = regexp.MustCompile(`causal_conv1d_(\w+)_kernel\(`)

// TestKernelsReadme checks that the guide to the kernels of causal_conv1d names each in three sections: when it runs, the elements
// of its threads, and its bytes and registers.
func TestKernelsReadme(t *testing.T) {
	const folder = "csrc/kernels/causal_conv1d"
	guide := readText(t, folder+"/README.md")
	kernels := map[string]bool{}
	err := walkSources(func(file string) error {
		if strings.HasPrefix(file, folder) {
			for _, m := range globalKernel.FindAllStringSubmatch(readText(t, file), -1) {
				kernels[m[1]] = true
			}
		}
		return nil
	}, ".h", ".hip")
	if err != nil || len(kernels) < 20 {
		t.Fatalf("%d kernels, %v", len(kernels), err)
	}
	for heading, pattern := range map[string]string{
		"Dispatch": `\bNAME\b`, "Threads and data": `\bNAME\b[\w ,]*:`, "Bytes and registers": `(?m)^\|[^|]*\bNAME\b[^|]*\|`,
	} {
		_, section, found := strings.Cut(guide, "## "+heading+"\n")
		if !found {
			t.Fatalf("%s/README.md has no section %q", folder, heading)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for name := range kernels {
			if !regexp.MustCompile(strings.Replace(pattern, "NAME", name, 1)).MatchString(section) {
				t.Errorf("%s/README.md, %s does not name the kernel %s", folder, heading, name)
			}
		}
	}
}

var snippet = regexp.MustCompile("(?ms)^In `([\\w./]+)`:\n\n```\\w+\n(.*?)^```$")

// TestTutorialSnippets checks that the file that a snippet of the tutorial names contains the snippet. A line of dots in a
// snippet stands for any lines.
func TestTutorialSnippets(t *testing.T) {
	const tutorial = "docs/tutorial-operator.md"
	text := readText(t, tutorial)
	if lines := strings.Count(text, "\n"); lines > 200 {
		t.Errorf("%s has %d lines, expected at most 200", tutorial, lines)
	}
	found := snippet.FindAllStringSubmatch(text, -1)
	if fences := strings.Count(text, "\n```"); fences != 2*len(found) || len(found) < 5 {
		t.Errorf("%s has %d fences and %d snippets with a file, expected two fences a snippet", tutorial, fences, len(found))
	}
	for _, m := range found {
		rest := readText(t, m[1])
		for lines := range strings.SplitSeq(m[2], "...\n") {
			_, after, ok := strings.Cut(rest, lines)
			if !ok {
				t.Errorf("%s: after the earlier lines of the snippet %s does not have:\n%s", tutorial, m[1], lines)
				break
			}
			rest = after
		}
	}
}

var fileLength = regexp.MustCompile("(?m)^\\| `([\\w./]+)` \\| (\\d+) \\|")

// TestTutorialLengths checks the lengths of files that the tutorial states, rounded to tens.
func TestTutorialLengths(t *testing.T) {
	rows := fileLength.FindAllStringSubmatch(readText(t, "docs/tutorial-operator.md"), -1)
	if len(rows) < 5 {
		t.Fatalf("the tutorial has %d files with lengths, expected at least 5", len(rows))
	}
	for _, row := range rows {
		want, err := strconv.Atoi(row[2])
		if err != nil {
			t.Fatal(err)
		}
		if row[1] == "config/opt_compiler.toml" {
			continue // the lines of one module
		}
		if lines := strings.Count(readText(t, row[1]), "\n"); lines < want-10 || lines > want+10 {
			t.Errorf("%s has %d lines, the tutorial states %d", row[1], lines, want)
		}
	}
}
