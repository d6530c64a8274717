#!/usr/bin/env python3
"""bench_aiter.py CHECKOUT compares builds of modules of AMD's AIter by aiterctl with builds of the same modules by plain hipcc.

Plain hipcc stands for AIter's JIT: it compiles the same units with AIter's flags, one module after another, with as many compilers at a
time as AIter chooses, and all passes of a unit in one command. make replaces ninja; both compile a unit if one of its inputs is newer
than its object. The units are the adapters of this project, because AIter's bindings need the headers of PyTorch, which take more time.

The script copies the sources of the checkout. It measures each step first with aiterctl, then with plain hipcc: a build with an empty
cache; a build with nothing to do; a build after the time of a header has changed; a build after a comment of a header has changed; a
build that is killed after half of the time of the first; and the build after it. The environment names the programs: AITERCTL
(default bin/aiterctl) and HIPCC (default .toolchain/bin/hipcc). The script needs make.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODULES = "rmsnorm,pos_encoding,causal_conv1d_update,gdr_decode_packed_bf16,unary"


def finish(args, env, kill_after):
    """Runs a command in a process group of its own. Returns its seconds and its output, "" if it was killed with SIGKILL."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(args, env=env, stdout=out, text=True, start_new_session=True)
        try:
            code = process.wait(kill_after)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return time.monotonic() - start, ""
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        if code:
            raise SystemExit(f"{args[0]} ended with {code}")
        out.seek(0)
        return time.monotonic() - start, out.read()


class Aiterctl:
    name = "aiterctl"

    def __init__(self, program, env, modules, arch):
        self.args = [program, "build", *modules, "--arch", arch, "--json", "--quiet", "--cache-dir"]
        self.env = env

    def plan(self, work):
        _, out = finish([*self.args, str(work / "plan"), "--dry-run"], self.env, None)
        return json.loads(out)["commands"]

    def build(self, folder, kill_after=None):
        """Returns the seconds, the number of compiled passes and the number of all passes. The numbers are None if the build was killed."""
        seconds, out = finish([*self.args, str(folder)], self.env, kill_after)
        if not out:
            return seconds, None, None
        report = json.loads(out)
        units = [u for m in [*report["modules"], report["support"]] if m for u in m["units"]]
        return seconds, sum(u["status"] == "compiled" for u in units), len(units)


class Plain:
    name = "plain hipcc"

    def __init__(self, hipcc, env, arch, plan):
        self.hipcc, self.env = hipcc, env
        self.jobs = max(1, int(os.cpu_count() * 0.8))  # as check_and_set_ninja_worker in AIter's core.py
        self.units = {}  # module -> pairs of a source and its flags
        for c in plan:
            if c.get("pass") == "device":
                self.units.setdefault(c["module"], []).append((ROOT / "csrc/upstream" / c["file"], self.flags(c, arch)))

    @staticmethod
    def flags(c, arch):
        """Returns the flags of a command without those for a single pass, for reproducible builds and for lists of dependencies."""
        out, words = [f"--offload-arch={arch}", "-fPIC"], iter(c["arguments"][1:])
        for w in words:
            if w in ("-Xclang", "-c", "-o"):
                next(words)
            elif w.startswith("-I") and w.endswith("/csrc/include") and "/v2/source/" in w:
                out.append(f"-I{ROOT}/csrc/include")
            elif w.startswith("-I") and not w.startswith("-I/"):
                out.append(f"-I{ROOT}/csrc/upstream/{w[2:]}")
            elif not w.startswith(("--offload-arch", "--cuda-device-only", "--no-gpu-bundle-output", "-cuid", "-ffile-prefix-map", "-fPIC")):
                out.append(w)
        return out

    def build(self, folder, kill_after=None):
        seconds, compiled = 0.0, 0
        for module, units in self.units.items():
            at = folder / module
            at.mkdir(parents=True, exist_ok=True)
            objects, rules = [], ""
            for n, (source, flags) in enumerate(units):
                objects.append(f"{at}/{n}.o")
                # -MMD leaves out system headers: they may be in the root folder of a wrapper, where make would not find them.
                rules += f"{at}/{n}.o: {source}\n\t{self.hipcc} {' '.join(flags)} -w -MMD -MF {at}/{n}.d -MT $@ -c $< -o $@\n-include {at}/{n}.d\n"
            first = f"{at}/module.so: {' '.join(objects)}\n\t{self.hipcc} -shared $^ -o $@\n"
            (at / "Makefile").write_text(first + rules)
            left = None if kill_after is None else max(0.01, kill_after - seconds)
            took, out = finish(["make", "-f", str(at / "Makefile"), f"-j{self.jobs}"], self.env, left)
            seconds += took
            if kill_after is not None and seconds >= kill_after:
                return seconds, None, None
            compiled += out.count(" -c ")
        return seconds, compiled, sum(map(len, self.units.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--modules", default=MODULES, help="names without module_aiter_, with commas (default %(default)s)")
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--header", default="csrc/include/aiter_dispatch.h", help="the header to change (default %(default)s)")
    o = parser.parse_args()
    hipcc = os.path.abspath(os.environ.get("HIPCC", ROOT / ".toolchain/bin/hipcc"))
    aiterctl = os.path.abspath(os.environ.get("AITERCTL", ROOT / "bin/aiterctl"))
    with tempfile.TemporaryDirectory(prefix="bench-aiter-") as name:
        work = pathlib.Path(name)
        checkout = work / "checkout"
        shutil.copytree(o.checkout / "csrc", checkout / "csrc")
        header = checkout / o.header
        env = {**os.environ, "AITER_CHECKOUT": str(checkout), "HIPCC": hipcc}
        for variable in ("AITER_JIT_DIR", "AITER_JIT_PATH", "AITER_META_DIR", "MAKEFLAGS"):
            env.pop(variable, None)
        ours = Aiterctl(aiterctl, env, ["module_aiter_" + m for m in o.modules.split(",")], o.arch)
        builders = [ours, Plain(hipcc, env, o.arch, ours.plan(work))]
        print(f"{'':22} {'':12} {'seconds':>8} {'compiled':>9} {'of':>4}   load")

        def measure(step, folder, kill_after=lambda builder: None):
            results = {}
            for builder in builders:
                seconds, compiled, units = builder.build(work / folder / builder.name.split()[0], kill_after(builder))
                results[builder] = seconds
                count = "killed" if compiled is None else compiled
                print(f"{step:22} {builder.name:12} {seconds:8.2f} {count:>9} {units or '':>4}   {os.getloadavg()[0]:.1f}", flush=True)
            return results

        cold = measure("empty cache", "cold")
        measure("nothing to do", "cold")
        header.touch()
        measure("header, other time", "cold")
        header.write_text(header.read_text() + "\n// another comment\n")
        measure("header, other comment", "cold")
        measure("killed halfway", "killed", lambda builder: cold[builder] / 2)
        time.sleep(1)
        measure("after the kill", "killed")


if __name__ == "__main__":
    main()
