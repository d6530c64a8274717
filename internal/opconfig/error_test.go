package opconfig_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/jit/target"
)

// mark is, in the TOML of a test, before each position at which a mistake must be reported.
const mark = "‸"

// split removes the marks and returns their positions as "line:col".
func split(text string) (clean string, positions []string) {
	for {
		before, after, found := strings.Cut(text, mark)
		if !found {
			return text, positions
		}
		line := before[strings.LastIndex(before, "\n")+1:]
		positions = append(positions, fmt.Sprintf("%d:%d", 1+strings.Count(before, "\n"), 1+utf8.RuneCountInString(line)))
		text = before + after
	}
}

// mistakesOf loads text as config/main.toml and returns its mistakes as text. It checks that each
// is an *Error with a position inside the file.
func mistakesOf(t *testing.T, text string, more map[string]string) []string {
	t.Helper()
	files := map[string]string{"config/main.toml": text}
	for name, text := range more {
		files[name] = text
	}
	cfg, err := opconfig.Load(tree(files), "config/main.toml", opconfig.Options{Env: env(map[string]string{"AITER_UP": "../up"})})
	if err == nil {
		return nil
	}
	if cfg != nil {
		t.Error("Load returned a configuration with the error")
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T is not joined", err)
	}
	var list []string
	for _, e := range joined.Unwrap() {
		var one *opconfig.Error
		if !errors.As(e, &one) || one.Line < 1 || one.Col < 1 {
			t.Errorf("%T without a position: %v", e, e)
		}
		list = append(list, e.Error())
	}
	return list
}

func TestMistakes(t *testing.T) {
	for name, c := range mistakes() {
		t.Run(name, func(t *testing.T) {
			text, positions := split(c.text)
			got := mistakesOf(t, text, nil)
			if len(positions) != len(c.want) {
				t.Fatalf("%d marks for %d messages", len(positions), len(c.want))
			}
			for i, w := range c.want {
				if want := "config/main.toml:" + positions[i] + ": " + w; i >= len(got) || !strings.HasPrefix(got[i], want) {
					t.Errorf("mistake %d\nwant %s\nin   %s", i, want, strings.Join(got, "\n     "))
				}
			}
			if len(got) > len(c.want) {
				t.Errorf("more mistakes than wanted:\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

type mistake struct {
	text string
	want []string // prefixes of the messages after their position
}

// in puts lines into an otherwise valid module.
func in(lines string) string {
	return "[module.module_a]\n" + lines + "\n[[module.module_a.source]]\npath = 'csrc/a.hip'\n"
}

// source puts lines into an otherwise valid source.
func source(lines string) string {
	return "[[module.module_a.source]]\npath = 'csrc/a.hip'\n" + lines + "\n"
}

// op puts lines into an op of an otherwise valid module.
func op(lines string) string { return source("[[module.module_a.op]]\n" + lines) }

// axis puts lines into an axis of an otherwise valid module.
func axis(lines string) string {
	return op("name='f'\nschema='(Tensor x, Tensor w, Tensor c, Tensor d, Tensor? b=None, int n=0) -> ()'\n[module.module_a.axis.dtype]\n" +
		lines)
}

// more returns axes, each by the argument with its name.
func more(names ...string) string {
	text := ""
	for _, n := range names {
		text += "[module.module_a.axis." + n + "]\nargument='" + n + "'\nvalues=['bool']\ndefine='" + n + "'\n"
	}
	return text
}

func mistakes() map[string]mistake {
	all := rangeMistakes()
	maps.Copy(all, defaultsMistakes())
	maps.Copy(all, conditionMistakes())
	maps.Copy(all, assemblyMistakes())
	maps.Copy(all, layoutMistakes())
	maps.Copy(all, otherMistakes())
	return all
}

func otherMistakes() map[string]mistake {
	return map[string]mistake{
		"unknown key at the top": {"‸modul = 1\n" + in(""), []string{`unknown key "modul" in the file; did you mean "module"?`}},
		"unknown table at the top": {in("") + "[‸unrelated]\nx = 1\n",
			[]string{`unknown key "unrelated" in the file; expected builtin, defaults, include or module`}},
		"unknown key in module": {in(`‸sorce = 1`), []string{`unknown key "sorce" in module.module_a; did you mean "source"?`}},
		"unknown quoted key": {in(`  ‸"link flags" = 1`),
			[]string{`unknown key "link flags" in module.module_a; did you mean "link_flags"?`}},
		"unknown dotted key": {in(`flags.‸Hip = []`), []string{`unknown key "Hip" in module.module_a.flags; did you mean "hip"?`}},
		"unknown key in a header": {in("") + "[module.module_a.‸flag]\ncommon = []",
			[]string{`unknown key "flag" in module.module_a; did you mean "flags"?`}},
		"unknown array of tables": {in("") + "[[ module.module_a . ‸sources ]]\npath='x'",
			[]string{`unknown key "sources" in module.module_a; did you mean "source"?`}},
		"unknown key in inline": {source(`when = { vendor = ["hip"], ‸archs = ["gfx942"] }`),
			[]string{`unknown key "archs" in module.module_a.source.when; did you mean "arch"?`}},
		"unknown key in nth source": {source("") + strings.Replace(source("‸flag = []"), "a.hip", "b.hip", 1),
			[]string{`unknown key "flag" in module.module_a.source; did you mean "flags"?`}},
		"unknown key, no guess": {source("‸zzzzzzzzz = []"),
			[]string{`unknown key "zzzzzzzzz" in module.module_a.source; expected axes, flags, ops, path or when`}},
		"unknown key after text": {op("name = 'f'\nschema = '() -> ()'\ndoc = '''\n[x]\nfoo = 1 # no key\n'''\n‸dok = 'é'"),
			[]string{`unknown key "dok" in module.module_a.op; did you mean "doc"?`}},
		"columns count characters": {"module = { module_a = { doc = 'éé🙂', ‸dco = 1, source = [ { path = 'csrc/a.hip' } ] } }",
			[]string{`unknown key "dco" in module.module_a; did you mean "doc"?`}},
		"windows line ends": {strings.ReplaceAll(in("doc = 'x'\n‸sorce = 1"), "\n", "\r\n"), []string{`unknown key "sorce"`}},

		"wrong type: string":  {in(`doc = ‸1`), []string{"doc must be a string, got an integer"}},
		"wrong type: array":   {in(`include = ‸"csrc"`), []string{"include must be an array of strings, got a string"}},
		"wrong type: element": {in(`include = ["csrc", ‸1.5]`), []string{"an element of include must be a string, got a float"}},
		"wrong type: table":   {in(`flags = ‸["-O3"]`), []string{"module.module_a.flags must be a table, got an array"}},
		"wrong type: tables": {"[module.module_a.‸source]\npath = 'csrc/a.hip'",
			[]string{"module.module_a.source must be an array of tables, [[module.module_a.source]], got a table"}},
		"wrong type: list":     {"[module.module_a]\nsource = [‸true]", []string{"module.module_a.source must be a table, got a boolean"}},
		"wrong type: module":   {"module = ‸3", []string{"module must be tables, [module.module_NAME], got an integer"}},
		"wrong type: a module": {"[module]\nmodule_a = ‸2026-01-01", []string{"module.module_a must be a table, got a date or time"}},
		"wrong type: include":  {"include = ‸'x.toml'\n" + in(""), []string{"include must be an array of strings, got a string"}},
		"wrong type: arch":     {in("flags.arch = ‸[]"), []string{"module.module_a.flags.arch must be a table of patterns"}},
		"wrong type: when":     {source("when = ‸'hip'"), []string{"module.module_a.source.when must be a table, got a string"}},
		"wrong type: vendor":   {source("when.vendor = ‸'hip'"), []string{"vendor must be an array of strings, got a string"}},
		"wrong type: timeout":  {in("timeout = ‸300"), []string{"timeout must be a string, got an integer"}},

		"empty file":    {"‸# nothing\n", []string{"no module is defined"}},
		"empty string":  {in(`doc = ‸" "`), []string{"doc is empty"}},
		"empty flag":    {in(`flags.common = ["-O3", ‸""]`), []string{"an element of module.module_a.flags is empty"}},
		"empty targets": {in(`targets = ‸[]`), []string{"targets is empty and would match nothing"}},
		"empty vendor":  {source(`when = { vendor = ‸[] }`), []string{"vendor is empty and would match nothing"}},
		"no sources":    {"[module.‸module_a]\ndoc = 'x'", []string{`module.module_a has no "source"; it is required`}},
		"no path":       {"[[module.module_a.‸source]]\nflags = []", []string{`module.module_a.source has no "path"; it is required`}},
		"no path in inline": {"[module.module_a]\nsource = [ ‸{ flags = [] } ]",
			[]string{`module.module_a.source has no "path"; it is required`}},
		"no name":   {source("[[module.module_a.‸op]]\nschema = '()->()'"), []string{`module.module_a.op has no "name"`}},
		"no schema": {source("[[module.module_a.‸op]]\nname = 'f'"), []string{`module.module_a.op has no "schema"`}},

		"bad module name": {"[[module.‸conv-1.source]]\npath='csrc/a.hip'",
			[]string{`bad module name "conv-1"; expected module_ followed by lower-case letters, digits and _; did you mean "module_conv_1"?`}},
		"bad module name, no suggestion": {"[[module.‸\"é\".source]]\npath='csrc/a.hip'", []string{`bad module name "é"; expected module_`}},
		"duplicate table":                {in("") + "[module.‸module_a]\n", []string{`"module_a" is already defined at config/main.toml:1:9`}},
		"duplicate key":                  {in("doc = 'a'\n‸doc = 'b'"), []string{`"doc" is already defined at config/main.toml:2:1`}},
		"duplicate operator": {op("name='f'\nschema='()->()'\n[[module.module_a.op]]\nname=‸'f'\nschema='()->()'"),
			[]string{`operator "f" is already defined in module_a at config/main.toml:3:19`}},
		"duplicate source": {source("") + "[[module.module_a.‸source]]\npath='csrc/*.hip'",
			[]string{`csrc/a.hip is already a source at config/main.toml:1:19, also for gfx900`}},
		"bad operator name": {op("name=‸'9f'\nschema='()->()'"), []string{`bad operator name "9f"; expected a C identifier`}},

		"source of another's operator": {source("ops = ['f', ‸'g']\n[[module.module_a.op]]\nname='f'\nschema='(Tensor x)->()'"),
			[]string{`unknown operator "g", which module_a does not define; did you mean "f"?`}},
		"source of an operator twice": {source("ops = ['f', ‸'f']\n[[module.module_a.op]]\nname='f'\nschema='(Tensor x)->()'"),
			[]string{`operator "f" is listed twice`}},
		"source of no operator": {source("ops = ‸[]"), []string{`ops is empty; name at least one`}},
		"operator in no source": {source("ops = ['f']\n[[module.module_a.op]]\nname='f'\nschema='(Tensor " +
			"x)->()'\n[[module.module_a.op]]\nname=‸'g'\nschema='(Tensor x)->()'"),
			[]string{`no source has operator "g": every [[source]] has "ops", and none lists it`}},

		"axis, unknown key": {axis("‸valeus = []\n" + "argument='x'\nvalues=['bool']\ndefine='D'"),
			[]string{`unknown key "valeus" in module.module_a.axis.dtype; did you mean "values"?`}},
		"axis is not a table": {op("name='f'\nschema='(Tensor x)->()'\n[module.module_a]\naxis = ‸['dtype']"),
			[]string{`axis must be tables, [module.module_a.axis.NAME], got an array`}},
		"an axis is not a table": {op("name='f'\nschema='(Tensor x)->()'\n[module.module_a]\naxis.dtype = ‸'x'"),
			[]string{`module.module_a.axis.dtype must be a table, got a string`}},
		"axis without all": {op("name='f'\nschema='(Tensor x)->()'\n[module.module_a.axis.‸‸‸dtype]"),
			[]string{`module.module_a.axis.dtype has no "argument"`, `module.module_a.axis.dtype has no "values"`,
				`module.module_a.axis.dtype has no "define"`}},
		"axis of unknown type": {axis("argument='x'\nvalues=['float32', ‸'bfloat61']\ndefine='D'"),
			[]string{`unknown element type "bfloat61"; did you mean "bfloat16"?`}},
		"axis of short type": {axis("argument='x'\nvalues=[‸'bf16']\ndefine='D'"),
			[]string{`unknown element type "bf16"; expected float64, float32`}},
		"axis value twice":    {axis("argument='x'\nvalues=['float32', ‸'float32']\ndefine='D'"), []string{`value "float32" is listed twice`}},
		"axis without values": {axis("argument='x'\nvalues=‸[]\ndefine='D'"), []string{`values is empty; name at least one`}},
		"axis define": {axis("argument='x'\nvalues=['bool']\ndefine=‸'-DX'"),
			[]string{`bad macro name "-DX"; expected a C identifier`}},
		"axis targets": {axis("argument='x'\nvalues=['bool']\ndefine='D'\ntargets=[‸'gfx943']"), []string{`unknown target "gfx943"`}},
		"axis name": {strings.Replace(axis("argument='x'\nvalues=['bool']\ndefine='D'"), "dtype", `‸"d-type"`, 1),
			[]string{`bad axis name "d-type"; expected a C identifier`}},
		"axis of no argument": {axis("argument=‸'y'\nvalues=['bool']\ndefine='D'"),
			[]string{`unknown argument "y", which no operator of module_a has; did you mean`}},
		"axis of no operator": {source("[module.module_a.axis.dtype]\nargument=‸'y'\nvalues=['bool']\ndefine='D'"),
			[]string{`module_a has no operator with an argument for an axis`}},
		"axis of optional": {axis("argument=‸'b'\nvalues=['bool']\ndefine='D'"),
			[]string{`argument "b" of f is Tensor?; expected a Tensor that is not optional`}},
		"axis of a number": {axis("argument=‸'n'\nvalues=['bool']\ndefine='D'"), []string{`argument "n" of f is int; expected a Tensor`}},
		"two axes, one define": {axis("argument='x'\nvalues=['bool']\ndefine='D'\n[module.module_a.axis.other]\nargument='w'\n" +
			"values=['bool']\ndefine=‸'D'"), []string{`axis "dtype" already has this define`}},
		"two axes, one choice": {axis("argument='x'\nvalues=['bool']\ndefine='D'\n[module.module_a.axis.other]\nargument=‸'x'\n" +
			"values=['bool']\ndefine='E'"), []string{`axis "dtype" already has this argument`}},
		"too many axes": {axis("argument='x'\nvalues=['bool']\ndefine='A'\n" + more("w", "c", "d") + "[module.module_a.axis.‸e]\nargument='x'"),
			[]string{`module_a has more than 4 axes`}},

		"bad timeout":      {in("timeout = ‸'5 minutes'"), []string{`timeout "5 minutes" is not a positive duration`}},
		"negative timeout": {in("timeout = ‸'-5m'"), []string{`timeout "-5m" is not a positive duration`}},

		"missing source": {"[[module.module_a.source]]\npath = ‸'csrc/a.hpp'",
			[]string{`source csrc/a.hpp does not exist; did you mean "csrc/a.cpp"?`}},
		"missing source folder": {"[[module.module_a.source]]\npath = ‸'src/a.hip'", []string{`source src/a.hip does not exist`}},
		"source is a folder":    {"[[module.module_a.source]]\npath = ‸'csrc/k'", []string{`source csrc/k is not a regular file`}},
		"glob without files":    {"[[module.module_a.source]]\npath = ‸'csrc/*.cu'", []string{`source "csrc/*.cu" matches no file`}},
		"glob with folders":     {"[[module.module_a.source]]\npath = ‸'csrc/[k]'", []string{`source "csrc/[k]" matches no file`}},
		"glob syntax":           {"[[module.module_a.source]]\npath = ‸'csrc/[a'", []string{`source csrc/[a is not a valid glob`}},
		"glob of folders": {"[[module.module_a.source]]\npath = ‸'csrc/**/a.hip'",
			[]string{`source "csrc/**/a.hip": ** is not supported`}},
		"leaving": {"[[module.module_a.source]]\npath = ‸'csrc/../../a.hip'",
			[]string{`source "csrc/../../a.hip" is outside of the project's root`}},
		"control character": {"[[module.module_a.source]]\npath = ‸\"csrc/a\\tb.hip\"",
			[]string{`source: "csrc/a\tb.hip" has a control character`}},
		"leaving by variable": {"[[module.module_a.source]]\npath = ‸'${AITER_UP}/a.hip'",
			[]string{`source "../up/a.hip" is outside of the project's root`}},
		"absolute":  {"[[module.module_a.source]]\npath = ‸'/csrc/a.hip'", []string{`source "/csrc/a.hip" is absolute`}},
		"drive":     {"[[module.module_a.source]]\npath = ‸'C:/a.hip'", []string{`source "C:/a.hip" is absolute`}},
		"backslash": {"[[module.module_a.source]]\npath = ‸'csrc\\a.hip'", []string{`source "csrc\\a.hip" has a backslash`}},
		"include folder": {in("include = [‸'csrc/inclde']"),
			[]string{`include folder csrc/inclde does not exist; did you mean "csrc/include"?`}},
		"include a file": {in("include = [‸'csrc/a.hip']"), []string{`include folder csrc/a.hip is not a folder`}},
		"include leaves": {in("include = [‸'..']"), []string{`include folder ".." is outside of the project's root`}},

		"bad target": {in("targets = ['hip', ‸'hipp']"),
			[]string{`bad target "hipp": expected gfx942, gfx90a:xnack-, sm_90, sm_90a or cpu; did you mean "hip"?`}},
		"unknown target":     {in("targets = [‸'gfx943']"), []string{`unknown target "gfx943"; the nearest known one is gfx942`}},
		"pattern of nothing": {in("targets = [‸'gfz*']"), []string{`pattern "gfz*" matches no known target; write "gfz*!" to keep it anyway`}},
		"pattern syntax":     {in("targets = [‸'gfx[9']"), []string{`bad pattern "gfx[9": brackets must be closed`}},
		"vendor":             {source("when.vendor = ['cpu', ‸'cude']"), []string{`unknown vendor "cude"; did you mean "cuda"?`}},
		"vendor as arch":     {source("when.arch = [‸'hip']"), []string{`bad target "hip": expected gfx942`}},
		"flags for no arch":  {in("flags.arch = { ‸'gfx94' = ['-DX'] }"), []string{`bad target "gfx94"`}},

		"toolchain condition": {source("when = { vendor = ['hip'], toolchain = '>=6,‸~8' }"), []string{`bad toolchain condition "~8"`}},
		"toolchain version":   {source("when = { vendor = ['hip'], toolchain = '‸>=6.x' }"), []string{`bad toolchain condition ">=6.x"`}},
		"toolchain of no vendor": {source("when = { ‸toolchain = '>=6' }"),
			[]string{`a condition on the toolchain needs a "when" for one vendor, but this one allows hip, cuda, cpu`}},
		"toolchain with no targets": {source("when = { vendor = ['hip'], arch = ['cpu'], ‸toolchain = '>=6' }"),
			[]string{`a condition on the toolchain needs a "when" for one vendor, but this one allows none`}},

		"schema": {op("name='f'\nschema = \"(Tensor x, ‸tensor y) -> ()\""),
			[]string{`bad schema: expected a type (Tensor, int, float, bool, str, Device or ScalarType), got "tensor"; did you mean "Tensor"?`}},
		"schema, escapes": {op("name='f'\nschema = \"(str a=\\\"\\u00e9\\\", ‸bad b) -> ()\""), []string{`bad schema: expected a type`}},
		"schema, many lines": {op("name='f'\nschema = \"\"\"\n(Tensor x, \\\n    Tensor y,\n\n  ‸bad z) -> ()\"\"\""),
			[]string{`bad schema: expected a type`}},
		"schema, literal":       {op("name='f'\nschema = '''\n(Tensor x,\n  ‸bad z) -> ()'''"), []string{`bad schema: expected a type`}},
		"schema ends":           {op("name='f'\nschema = '(Tensor x) -> ‸'"), []string{`bad schema: expected a type`}},
		"schema ends in \"\"\"": {op("name='f'\nschema = \"\"\"(Tensor x) -> ‸\"\"\""), []string{`bad schema: expected a type`}},
		"schema of another":     {op("name='f'\nschema = ‸'g() -> ()'"), []string{`the schema is for "g", the operator is "f"`}},

		"variable not allowed": {in("flags.common = ['-DX=‸${HOME}']"),
			[]string{`unknown variable HOME; expected AITER_*, CK_DIR, CUDA_HOME, CUDA_PATH, ROCM_HOME or ROCM_PATH`}},
		"variable misspelt": {in("flags.common = ['-DX=‸${ROCM_HOMR:-x}']"),
			[]string{`unknown variable ROCM_HOMR; did you mean "ROCM_HOME"?`}},
		"variable not set": {in("flags.common = ['-DX', '-D\U0001F642=‸${AITER_NOT_SET}']"),
			[]string{"variable AITER_NOT_SET is not set; set it or write ${AITER_NOT_SET:-default}"}},
		"variable not closed":     {in("flags.common = [\"\\\"‸${AITER_X\"]"), []string{"${ without }"}},
		"variable without braces": {in("flags.common = ['-DX=$$‸$AITER_X']"), []string{"a single $; write ${NAME}"}},
		"variable with command":   {in("flags.common = ['‸${AITER_X:+ls}']"), []string{`bad variable "${AITER_X:+ls}"`}},

		"syntax: key":           {"a = 1\nb ‸c = 2\n", []string{"expected '.' or '=', but got 'c'"}},
		"syntax: value":         {"a = 1\n\nb = ‸@", []string{"expected value but found '@'"}},
		"syntax: word":          {"a = ‸truu", []string{`expected value but found "truu"`}},
		"syntax: no value":      {"a =‸\nb = 1", []string{`expected value but found '\n'`}},
		"syntax: two on a line": {"a = 1 ‸b = 2", []string{"expected a top-level item to end with a newline"}},
		"syntax: array":         {"a = [1 ‸2]", []string{"expected a comma"}},
		"syntax: inline table":  {"a = {b=1, c ‸2}", []string{"expected '.' or '=', but got '2'"}},
		"syntax: header":        {"[[a]‸\nb=1", []string{"expected end of table array name delimiter"}},
		"syntax: end":           {"a = 1\nb = {‸", []string{"the file ends unexpectedly"}},
		"syntax: open header":   {"[‸a", []string{"expected '.' or ']' to end table name, but got the end of the file"}},
		"syntax: open string":   {"x = 'abc‸\ny=1", []string{"strings cannot contain newlines"}},
		"syntax: escape":        {"x = \"ab‸\\qc\"", []string{`invalid escape in string '\q'`}},
		"syntax: long escape":   {"x = \"\"\"\na\n ‸\\u12é4\"\"\"", []string{"expected four hexadecimal digits"}},
		"syntax: number":        {"x = ‸007", []string{`Invalid integer "007"`}},
		"syntax: date":          {"x = ‸1979-13-01", []string{`invalid datetime`}},
		"syntax: digit":         {"x = +‸x", []string{`expected a digit but got 'x'`}},
		"syntax: not UTF-8":     {"x = 'é‸\xff'", []string{"the file is not UTF-8"}},
		"syntax: control":       {"x = 'é' # ‸\x01", []string{"control character U+0001"}},
		"syntax: return":        {"x = 'é'‸\r y = 1", []string{"control character U+000D"}},
		"syntax: NUL":           {"‸\x00a = 1", []string{"control character U+0000"}},
		"redefined, unnoticed":  {"a.b.c = 1\na.‸b = 2", []string{`"b" is already defined at config/main.toml:1:3`}},
		"redefined as a list":   {"[a]\n[[‸a]]", []string{"Key 'a' was already created"}},

		"several at once": {"[module.module_a]\n‸sorce=1\ntimeout=‸'x'\n[[module.module_a.source]]\npath=‸'nothing'\n" +
			"[[module.module_a.op]]\nname=‸'-'\nschema=‸''",
			[]string{"unknown key", "timeout", "source nothing does not exist", "bad operator name", "schema is empty"}},
	}
}

func TestIncludeMistakes(t *testing.T) {
	ok := "[[module.module_b.source]]\npath = 'csrc/b.hip'\n"
	for name, c := range map[string]struct {
		text string
		more map[string]string
		want string
	}{
		"cycle": {"include = ['b.toml']\n" + in(""), map[string]string{"config/b.toml": "include = ['sub/c.toml']\n" + ok,
			"config/sub/c.toml": "# c\ninclude = [\n  '../main.toml']"},
			"config/sub/c.toml:3:3: include cycle: config/main.toml -> config/b.toml -> config/sub/c.toml -> config/main.toml"},
		"self": {"include = ['main.toml']\n" + in(""), nil, "config/main.toml:1:12: include cycle: config/main.toml -> config/main.toml"},
		"missing": {"include = ['othr.toml']\n" + in(""), map[string]string{"config/other.toml": ok},
			`config/main.toml:1:12: include config/othr.toml does not exist; did you mean "config/other.toml"?`},
		"glob": {"include = ['x/*.toml']\n" + in(""), nil, `config/main.toml:1:12: include "config/x/*.toml" matches no file`},
		"leaving": {"include = ['../../x.toml']\n" + in(""), nil,
			`config/main.toml:1:12: include "../../x.toml" is outside of the project's root`},
		"absolute": {"include = ['/etc/x.toml']\n" + in(""), nil, `config/main.toml:1:12: include "/etc/x.toml" is absolute`},
		"twice": {"include = ['b.toml']\n" + in(""),
			map[string]string{"config/b.toml": "[module.module_a]\n[[module.module_a.source]]\npath='csrc/a.hip'\n"},
			`config/main.toml:2:9: module "module_a" is already defined at config/b.toml:1:9`},
		"in included": {"include = ['b.toml']\n" + in(""), map[string]string{"config/b.toml": ok + "pth = 1\n"},
			`config/b.toml:3:1: unknown key "pth" in module.module_b.source; did you mean "path"?`},
		"syntax there": {"include = ['b.toml']\n" + in(""), map[string]string{"config/b.toml": "x = \n"}, `config/b.toml:1:`},
	} {
		got := mistakesOf(t, c.text, c.more)
		if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
			t.Errorf("%s\n got %q\nwant %s", name, got, c.want)
		}
	}
}

// TestIncludedTwice checks that including a file twice is not a mistake.
func TestIncludedTwice(t *testing.T) {
	cfg := load(t, map[string]string{
		"config/main.toml": "include = ['b.toml', 'c.toml', 'b.toml', '*.toml']",
		"config/b.toml":    "include = ['c.toml']\n[[module.module_b.source]]\npath = 'csrc/b.hip'\n",
		"config/c.toml":    "[[module.module_c.source]]\npath = 'csrc/b.hip'\n",
	}, nil)
	if len(cfg.Modules) != 2 || cfg.Modules[0].Name != "module_c" ||
		strings.Join(cfg.Files, " ") != "config/main.toml config/b.toml config/c.toml" {
		t.Errorf("modules %v, files %v", cfg.Modules, cfg.Files)
	}
}

// TestCauses checks that callers can find the typed causes of errors.
func TestCauses(t *testing.T) {
	_, err := opconfig.Load(tree(nil), "config/nothing.toml", opconfig.Options{})
	if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "config/nothing.toml: ") {
		t.Errorf("got %v", err)
	}
	text, _ := split(op("name='f'\nschema='(x)'") + "[module.module_b]\ntargets=['gfx943']")
	_, err = opconfig.Load(tree(map[string]string{"m.toml": text}), "m.toml", opconfig.Options{})
	var syntax *schema.SyntaxError
	var unknown *target.UnknownError
	if !errors.As(err, &syntax) || !errors.As(err, &unknown) || unknown.Nearest != "gfx942" {
		t.Errorf("got %v", err)
	}
	big := tree(map[string]string{"m.toml": strings.Repeat("# a very large comment\n", 50000)})
	if _, err = opconfig.Load(big, "m.toml", opconfig.Options{}); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v", err)
	}
}
