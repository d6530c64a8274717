package buildfarm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const shardConfig = `
[module.module_gpu]
include = ["include"]
targets = ["sm_80", "sm_90"]
[[module.module_gpu.source]]
path  = "src/k.cu"
flags = { cuda = ["-DAITER_TWO_PASSES", "-DAITER_SHARDS=2", "-DAITER_SHARD_SEED=1"] }
[[module.module_gpu.op]]
name = "gpu"
schema = "() -> ()"
`

// shardSource has two kernels. The seed selects the shard of each.
const shardSource = `#ifdef AITER_DEVICE_CODE
#include <stdint.h>
#include "cuda_host.h"
#define AITER_SHARD 0
#endif
#define IN_SHARD(n) ((n + AITER_SHARD_SEED) % AITER_SHARDS + 1 == AITER_SHARD)
__global__ void scale(float* p) {
  if constexpr (IN_SHARD(0)) p[threadIdx.x] *= 3;
}
__global__ void shift(float* p) {
  if constexpr (IN_SHARD(1)) p[threadIdx.x] += 3;
}
extern "C" int __tvm_ffi_gpu(void* p, void*, int, void*) {
  void* args[] = {&p};
  if (cudaLaunchKernel(reinterpret_cast<const void*>(shift), dim3(1), dim3(64), args, 0, nullptr)) return 1;
  return cudaLaunchKernel(reinterpret_cast<const void*>(scale), dim3(1), dim3(64), args, 0, nullptr);
}
`

// buildAll builds a module for targets and returns the digests of the libraries.
func (c *client) buildAll(module string, targets ...string) (digests []string) {
	c.t.Helper()
	var requests []jit.Request
	for _, name := range targets {
		to, err := target.Parse(name)
		if err != nil {
			c.t.Fatal(err)
		}
		requests = append(requests, jit.Request{Module: module, Target: to})
	}
	results, err := c.manager().Build(c.t.Context(), requests...)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range results {
		digests = append(digests, r.Artifact.Digest)
	}
	return digests
}

// TestShardsEqualToLocal compiles with nvcc for two targets on a farm: each shard and the host pass is an execution.
func TestShardsEqualToLocal(t *testing.T) {
	testenv.Long(t)
	root := rootOf(t, "nvcc", "cuda")
	p := newProxy(t, startFarm(t, root).Host)
	header, err := os.ReadFile(filepath.Join(testenv.Root(t), "csrc", "include", "aiter", "cuda_host.h"))
	if err != nil {
		t.Fatal(err)
	}
	build := func(address string) (*client, string) {
		c := newClient(t, address)
		c.env["NVCC"] = testenv.Tool(t, "nvcc")
		c.tree.Config(shardConfig)
		c.tree.Write("src/k.cu", shardSource)
		c.tree.Write("include/cuda_host.h", string(header))
		return c, fmt.Sprint(c.buildAll("module_gpu", "sm_80", "sm_90"))
	}
	_, here := build("")
	first, there := build("grpc://" + p.host)
	const executions = 7 // the host pass, two shards for each target, two links
	if f := first.failures(); len(f) > 0 || p.count("Execute") != executions {
		t.Errorf("failures %v, %d executions; want %d\n%s", f, p.count("Execute"), executions, first.log.String())
	}
	p.set(fault{})
	second, again := build("grpc://" + p.host)
	if f := second.failures(); len(f) > 0 || p.count("Execute") > 0 {
		t.Errorf("second client: failures %v, %d executions", f, p.count("Execute"))
	}
	if there != here || again != here {
		t.Errorf("libraries differ: here %s, farm %s, its cache %s", here, there, again)
	}
}

// startServers starts two servers with one worker each. The first, which clients use, sends the commands for which it
// has no worker to the second. Proxies count the commands of both.
func startServers(t *testing.T, root string) (front, back *proxy) {
	t.Helper()
	back = newProxy(t, startServer(t, testenv.ExecutorOptions{Root: root, Jobs: 1}).Host)
	front = newProxy(t, startServer(t, testenv.ExecutorOptions{Root: root, Jobs: 1, Next: back.host}).Host)
	return front, back
}

// partsConfig has a module whose sources are the files that a pattern names, such as the parts that a script has made of one source.
const partsConfig = `
[module.module_parts]
include = ["include"]
targets = ["%s"]
[[module.module_parts.source]]
path = "generated/part_*.%s"
[[module.module_parts.op]]
name = "parts"
schema = "() -> ()"
`

// TestTwoServers builds a module of several parts on two servers: each runs some of the commands. The libraries are those that this
// machine makes, and a second client takes all results.
func TestTwoServers(t *testing.T) {
	for _, c := range []struct {
		name, extension, operator, part string
		targets                         []string
		parts, executions               int
	}{
		{"cpu", "cpp", "extern \"C\" int __tvm_ffi_parts(void*, void*, int, void*) { return 0; }\n",
			"#include <vector>\nint part_%[1]d(std::vector<int> v) { return v.at(%[1]d); }\n", []string{"cpu"}, 6, 7},
		{"gpu", "hip", "extern \"C\" int __tvm_ffi_parts(void*, void*, int, void*) { return 0; }\n",
			"#include <hip/hip_runtime.h>\n__global__ void part_%[1]d(float* p) { p[threadIdx.x] *= %[1]d; }\n" +
				"void call_%[1]d(float* p) { part_%[1]d<<<1, 64>>>(p); }\n",
			[]string{"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"}, 2, 2 + 5*2 + 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, patterns := "", "cpu"
			if c.name == "gpu" {
				testenv.Long(t)
				root, patterns = rootOf(t, "hipcc", "rocm"), strings.Join(c.targets, `", "`)
			}
			front, back := startServers(t, root)
			build := func(address string) (*client, string) {
				x := newClient(t, address)
				x.env["AITER_JIT_EXECUTOR_WAIT"] = "1m" // two servers compile on a machine that may be loaded
				if root != "" {
					x.env["HIPCC"] = testenv.Tool(t, "hipcc")
				}
				x.tree.Config(fmt.Sprintf(partsConfig, patterns, c.extension))
				for i := range c.parts {
					text := fmt.Sprintf(c.part, i)
					if i == 0 {
						text += c.operator
					}
					x.tree.Write(fmt.Sprintf("generated/part_%d.%s", i, c.extension), text)
				}
				return x, fmt.Sprint(x.buildAll("module_parts", c.targets...))
			}
			_, here := build("")
			first, there := build("grpc://" + front.host)
			all, second := front.count("Execute"), back.count("Execute")
			if f := first.failures(); len(f) > 0 || all != c.executions || second == 0 || second == all {
				t.Errorf("failures %v, %d executions, %d of them on the second server; want %d, some on each\n%s",
					f, all, second, c.executions, first.log.String())
			}
			t.Logf("%d executions, %d on the second server", all, second)
			front.set(fault{})
			other, again := build("grpc://" + front.host)
			if f := other.failures(); len(f) > 0 || front.count("Execute") > 0 {
				t.Errorf("second client: failures %v, %d executions", f, front.count("Execute"))
			}
			if there != here || again != here {
				t.Errorf("libraries differ: here %s, farm %s, its cache %s", here, there, again)
			}
		})
	}
}
