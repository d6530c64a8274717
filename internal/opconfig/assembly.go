package opconfig

import (
	"path"
	"slices"
	"strings"
)

// Assembly names the assembly code objects of a module: files .co of a folder outside of the source tree, which has a folder for
// each architecture of AMD.
type Assembly struct {
	Root   string        // as configured: "${AITER_CHECKOUT}/hsa"
	Folder OutsideFolder // on disk
	// Tables are folders below that of an architecture. Their CSV files are loader tables, which name code objects. The module's
	// sources include the tables of a folder NAME as the header asm_NAME_configs.hpp.
	Tables []string
	Files  []string // globs of more code objects below the folder of an architecture
	Absent []string // globs, below Root, of code objects that tables name and the folder does not have
}

// String returns what the module takes, without the place of the folder.
func (a *Assembly) String() string {
	text := strings.Join(a.Tables, " ")
	for _, more := range [][]string{a.Files, a.Absent} {
		text += "; " + strings.Join(more, " ")
	}
	return text
}

// assembly reads the assembly code objects of a module.
func (d *decoder) assembly(m *Module, where string) func(*node) {
	return func(n *node) {
		a := &Assembly{}
		d.table(n, where, map[string]func(*node){
			"root":   func(n *node) { a.Root, a.Folder = d.outsideRoot(n) },
			"tables": func(n *node) { d.names(n, "tables", d.objectPath("tables", &a.Tables, false)) },
			"files":  func(n *node) { d.names(n, "files", d.objectPath("files", &a.Files, true)) },
			"absent": func(n *node) { d.names(n, "absent", d.objectPath("absent", &a.Absent, true)) },
		})
		d.require(n, "root", where)
		if _, isTable := n.value.(map[string]any); isTable && n.fields["tables"] == nil && n.fields["files"] == nil {
			d.fail(n.key, "%s names no code objects; write tables or files", where)
		}
		m.Assembly = a
	}
}

// outsideRoot reads a folder outside of the source tree. It need not exist, because only a build needs it.
func (d *decoder) outsideRoot(n *node) (text string, folder OutsideFolder) {
	text, ok := d.string(n, "root")
	if !ok {
		return "", folder
	}
	if name := d.unsetVariable(text); name != "" {
		return text, OutsideFolder{Unset: name}
	}
	dir, ok := d.expand(text, n)
	switch {
	case !ok:
	case !path.IsAbs(dir):
		d.fail(n.at, "root %q is not absolute; begin it with a variable, as in \"${AITER_CHECKOUT}/hsa\"", dir)
	case unfitPath(dir) != "":
		d.fail(n.at, "root %q %s", dir, unfitPath(dir))
	default:
		folder.Dir = path.Clean(dir)
	}
	return text, folder
}

// objectPath returns a reader that stores a path below the folder of code objects, or a glob if globs is set.
func (d *decoder) objectPath(key string, to *[]string, globs bool) func(string, *node) {
	return func(_ string, n *node) {
		p := d.inRoot(n.value.(string), "an element of "+key, n)
		switch _, err := path.Match(p, ""); {
		case p == "":
		case !globs && (hasMeta(p) || strings.Contains(p, "/")):
			d.fail(n.at, "%s: %q is not the name of a folder", key, p)
		case !globs && !isIdentifier(p):
			d.fail(n.at, "%s: %q is not a C identifier, and the header's name contains it", key, p)
		case err != nil || strings.Contains(p, "**"):
			d.fail(n.at, "%s: %q is not a valid glob: brackets must be closed, and ** is not supported", key, p)
		case slices.Contains(*to, p):
			d.fail(n.at, "%s: %q is repeated", key, p)
		default:
			*to = append(*to, p)
		}
	}
}
