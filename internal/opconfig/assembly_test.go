package opconfig_test

import (
	"reflect"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
)

const withAssembly = "[module.module_a]\nassembly = { root = '${AITER_CHECKOUT}/hsa/', tables = ['gemm', 'pa'], files = ['x/*.co'], " +
	"absent = ['gfx9/gemm/y.co'] }\n[[module.module_a.source]]\npath = 'csrc/a.hip'\n"

func TestAssembly(t *testing.T) {
	for value, folder := range map[string]opconfig.OutsideFolder{"/src/aiter": {Dir: "/src/aiter/hsa"}, "": {Unset: "AITER_CHECKOUT"}} {
		vars := map[string]string{"AITER_CHECKOUT": value}
		if value == "" {
			vars = nil
		}
		m, err := load(t, map[string]string{"config/main.toml": withAssembly}, vars).Module("module_a")
		if err != nil {
			t.Fatal(err)
		}
		want := &opconfig.Assembly{Root: "${AITER_CHECKOUT}/hsa/", Folder: folder, Tables: []string{"gemm", "pa"}, Files: []string{"x/*.co"},
			Absent: []string{"gfx9/gemm/y.co"}}
		if !reflect.DeepEqual(m.Assembly, want) {
			t.Errorf("got %+v, want %+v", m.Assembly, want)
		}
		if got := m.Assembly.String(); got != "gemm pa; x/*.co; gfx9/gemm/y.co" {
			t.Errorf("String returned %q", got)
		}
	}
}

func assemblyMistakes() map[string]mistake {
	return map[string]mistake{
		"assembly without a root": {in("‸assembly = { tables = ['x'] }"), []string{`module.module_a.assembly has no "root"; it is required`}},
		"assembly of nothing": {in("‸assembly = { root = '/x' }"), []string{
			"module.module_a.assembly names no code objects; write tables or files"}},
		"assembly in the tree":      {in("assembly = { root = ‸'hsa', files = ['x'] }"), []string{`root "hsa" is not absolute`}},
		"assembly with a backslash": {in("assembly = { root = ‸'/a\\b', files = ['x'] }"), []string{`root "/a\\b" has a backslash`}},
		"assembly tables": {in("assembly = { root = '/x', tables = [‸'a/b', ‸'a*', ‸'a-b', 'c', ‸'c', ‸'../d'] }"), []string{
			`tables: "a/b" is not the name of a folder`, `tables: "a*" is not the name of a folder`, `tables: "a-b" is not a C identifier`,
			`tables: "c" is repeated`, `an element of tables "../d" is outside of the project's root`}},
		"assembly files": {in("assembly = { root = '/x', files = [‸'a[', ‸'a/**/b'], absent = ‸[], ‸more = 1 }"), []string{
			`files: "a[" is not a valid glob`, `files: "a/**/b" is not a valid glob`, "absent is empty",
			`unknown key "more" in module.module_a.assembly`}},
		"assembly of a number": {in("assembly = ‸1"), []string{"module.module_a.assembly must be a table, got an integer"}},
	}
}
