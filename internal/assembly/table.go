package assembly

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

const maxTable = 4 << 20 // bytes of one table

// Columns that each table has. The third column of a header is the architecture.
const (
	kernelColumn = "knl_name"
	objectColumn = "co_name"
	archColumn   = "arch"
)

// tables are the loader tables in the folders of one name. A header has the rows of one architecture. Its columns are those of
// all architectures, because sources for all of them refer to the columns.
type tables struct {
	name, arch string // of the folders, of the rows
	files      []string
	named      []File
	columns    []string
	lists      map[string]*list // by the name of the CSV file without its suffix
}

// list is the union of the tables of one name.
type list struct {
	rows []map[string]string // of the architecture
	text map[string]bool     // the columns; true for one with a value that is not a number, for any architecture
}

func newTables(name, arch string) *tables {
	return &tables{name: name, arch: arch, lists: map[string]*list{}}
}

// read reads the tables in the folder of an architecture, and in the folders below it.
func (t *tables) read(files fs.FS, arch string) error {
	n := 0
	err := fs.WalkDir(files, path.Join(arch, t.name), func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n++; n > maxFiles {
			return &Error{Path: path.Join(arch, t.name), Msg: fmt.Sprintf("more than %d files", maxFiles)}
		}
		if e.IsDir() || path.Ext(file) != ".csv" {
			return nil
		}
		t.files = append(t.files, file)
		text, err := readText(files, file)
		if err != nil {
			return err
		}
		return t.add(file, text, arch)
	})
	var own *Error
	if err == nil || errors.As(err, &own) || errors.Is(err, fs.ErrNotExist) { // another architecture may lack the folder
		return ownError(own)
	}
	return &Error{Path: path.Join(arch, t.name), Msg: reason(err), Err: err}
}

// ownError returns e as an error, nil for none.
func ownError(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}

func readText(files fs.FS, file string) (string, error) {
	info, err := fs.Stat(files, file)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	var data []byte
	if err == nil {
		var f fs.File
		if f, err = files.Open(file); err == nil {
			data, err = io.ReadAll(io.LimitReader(f, maxTable+1))
			_ = f.Close() // only read
		}
	}
	switch {
	case err != nil:
		return "", &Error{Path: file, Msg: "the table cannot be read: " + reason(err), Err: err}
	case len(data) > maxTable:
		return "", &Error{Path: file, Msg: fmt.Sprintf("the table has more than %d bytes", maxTable)}
	}
	return strings.TrimPrefix(string(data), "\ufeff"), nil
}

// add adds the rows of a CSV text.
func (t *tables) add(file, text, arch string) error {
	r := csv.NewReader(strings.NewReader(withoutComments(text)))
	r.TrimLeadingSpace = true
	columns, err := r.Read()
	if errors.Is(err, io.EOF) {
		err = errors.New("no line with the names of the columns")
	}
	if err != nil {
		return &Error{Path: file, Msg: err.Error()}
	}
	for i, c := range columns {
		columns[i] = strings.TrimSpace(c)
		if !isIdentifier(columns[i]) || slices.Contains(columns[:i], columns[i]) || columns[i] == archColumn {
			return &Error{Path: file, Line: 1, Msg: fmt.Sprintf("column %q: expected another identifier of C++ for each column", c)}
		}
	}
	for _, c := range []string{kernelColumn, objectColumn} {
		if !slices.Contains(columns, c) {
			return &Error{Path: file, Line: 1, Msg: "expected a column " + c + ", got " + strings.Join(columns, ", ")}
		}
	}
	stem, _, _ := strings.Cut(path.Base(file), ".")
	if !isIdentifier(stem) {
		return &Error{Path: file, Msg: "expected a name that is an identifier of C++"}
	}
	l := t.lists[stem]
	if l == nil {
		l = &list{text: map[string]bool{}}
		t.lists[stem] = l
	}
	for _, c := range columns {
		if !slices.Contains(t.columns, c) && c != kernelColumn && c != objectColumn {
			t.columns = append(t.columns, c)
		}
	}
	for {
		values, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			line, _ := r.FieldPos(0)
			err = t.row(l, file, line, arch, columns, values)
		}
		var own *Error
		if err != nil && !errors.As(err, &own) {
			err = &Error{Path: file, Msg: err.Error()}
		}
		if err != nil {
			return err
		}
	}
}

// row adds a row.
func (t *tables) row(l *list, file string, line int, arch string, columns, values []string) error {
	row := map[string]string{}
	for i, c := range columns {
		v := strings.TrimSpace(values[i])
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
			return &Error{Path: file, Line: line, Msg: fmt.Sprintf("%s: %q has a character that is not allowed", c, v)}
		}
		row[c] = v
		l.text[c] = l.text[c] || v != "" && number(v) == ""
	}
	if arch != t.arch {
		return nil
	}
	object := path.Join(t.name, strings.TrimPrefix(path.Dir(file), path.Join(arch, t.name)), row[objectColumn])
	if row[objectColumn] == "" || row[kernelColumn] == "" || !fs.ValidPath(object) || !strings.HasPrefix(object, t.name+"/") {
		return &Error{Path: file, Line: line, Msg: fmt.Sprintf("expected a kernel and a code object in the folder %s, got %q and %q",
			t.name, row[kernelColumn], row[objectColumn])}
	}
	row[objectColumn] = object
	l.rows = append(l.rows, row)
	t.named = append(t.named, File{Name: path.Join(arch, object), Table: file})
	return nil
}

// number returns a value as an integer, "" if it is not a number.
func number(v string) string {
	if n, err := strconv.ParseInt(v, 10, 32); err == nil {
		return strconv.FormatInt(n, 10)
	}
	if f, err := strconv.ParseFloat(v, 64); err == nil && f > -1<<31 && f < 1<<31 {
		return strconv.FormatInt(int64(f), 10)
	}
	return ""
}

// isNumber reports whether a column has numbers alone.
func (t *tables) isNumber(column string) bool {
	for _, l := range t.lists {
		if l.text[column] {
			return false
		}
	}
	return true
}

// withoutComments removes /* */, lines that begin with //, # or ;, and the ends of lines from // or #, or from a ; after a blank.
// It keeps the number of lines.
func withoutComments(text string) string {
	var code strings.Builder
	for found := true; found; {
		var before, inside string
		before, text, found = strings.Cut(text, "/*")
		code.WriteString(before)
		if found {
			inside, text, _ = strings.Cut(text, "*/")
			code.WriteString(strings.Repeat("\n", strings.Count(inside, "\n")))
		}
	}
	text = code.String()
	var b strings.Builder
	for line := range strings.Lines(text) {
		body := strings.TrimRight(line, "\r\n")
		for _, mark := range []string{"//", "#", " ;", "\t;"} {
			body, _, _ = strings.Cut(body, mark)
		}
		if strings.HasPrefix(strings.TrimSpace(body), ";") {
			body = ""
		}
		b.WriteString(strings.TrimRight(body, " \t") + "\n")
	}
	return b.String()
}

// header returns the header that sources include: the type of a row NAMEConfig, the type CFG of a table, which maps the
// architecture with the kernel's name to a row, and a table cfg_STEM for each name of a CSV file. The rows are constants, from which a
// loop makes a table when the library is loaded: compilers need minutes for tables of strings in an initializer.
func (t *tables) header() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("// Made by aiter from the tables in the folders %s.", t.name)
	line("#pragma once\n#include <cstddef>\n#include <string>\n#include <unordered_map>\n#include <vector>\n")
	line("struct %sConfig {\n  std::string %s;\n  std::string %s;\n  std::string %s;", t.name, kernelColumn, objectColumn, archColumn)
	row := fmt.Sprintf("struct %sRow {\n  const char* %s;\n  const char* %s;\n", t.name, kernelColumn, objectColumn)
	copied := []string{"r." + kernelColumn, "r." + objectColumn, `"` + t.arch + `"`}
	for _, c := range t.columns {
		if t.isNumber(c) {
			line("  int %s;", c)
			row += "  int " + c + ";\n"
		} else {
			line("  std::string %s;", c)
			row += "  const char* " + c + ";\n"
		}
		copied = append(copied, "r."+c)
	}
	line("};\n\nusing CFG = std::unordered_map<std::string, %sConfig>;\n\nnamespace {\n%s};", t.name, row)
	line("\ninline CFG %s_table(const %sRow* rows, std::size_t n) {", t.name, t.name)
	line("  std::vector<CFG::value_type> all;\n  all.reserve(n);")
	line("  for (std::size_t i = 0; i < n; i++) {\n    const %sRow& r = rows[i];", t.name)
	line("    all.push_back({std::string(\"%s\") + r.%s, {%s}});", t.arch, kernelColumn, strings.Join(copied, ", "))
	line("  }\n  return CFG(all.begin(), all.end());\n}\n}  // namespace")
	for _, stem := range slices.Sorted(maps.Keys(t.lists)) {
		rows := t.lists[stem].rows
		if len(rows) == 0 {
			line("\nstatic CFG cfg_%s;", stem)
			continue
		}
		line("\nstatic constexpr %sRow rows_%s[] = {", t.name, stem)
		for _, r := range rows {
			values := []string{`"` + r[kernelColumn] + `"`, `"` + r[objectColumn] + `"`}
			for _, c := range t.columns {
				switch v := r[c]; {
				case !t.isNumber(c):
					values = append(values, `"`+v+`"`)
				case v == "":
					values = append(values, "0")
				default:
					values = append(values, number(v))
				}
			}
			line("    {%s},", strings.Join(values, ", "))
		}
		line("};\nstatic CFG cfg_%s = %s_table(rows_%s, sizeof rows_%s / sizeof *rows_%s);", stem, t.name, stem, stem, stem)
	}
	return b.String()
}
