// The instruction set and the number of threads of the CPU kernels. Read once a process, at the first call.
//
//   AITER_CPU_ISA      scalar, avx2, avx512, avx512_bf16 or neon; default: the best that the
//                      processor has
//   AITER_NUM_THREADS  1 to 1024; default: one for each processor that the process may run on
//                      (its affinity mask and the quota of its cgroups)
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "status.h"

namespace aiter::cpu {

// Level is an instruction set that kernels are compiled for, in ascending order. kAvx512Bf16 is the code of kAvx512 with the
// processor's own rounding to bf16.
enum Level : int { kScalar, kNeon, kAvx2, kAvx512, kAvx512Bf16, kLevels };

constexpr int kMostThreads = 1024;

inline const char* level_name(int level) {
  const char* const names[kLevels] = {"scalar", "neon", "avx2", "avx512", "avx512_bf16"};
  return names[level];
}

// has reports whether this build has code for the level and the processor runs it.
inline bool has(int level) {
#if defined(__x86_64__)
  if (level == kAvx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (level == kAvx512)
    return has(kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (level == kAvx512Bf16) return has(kAvx512) && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
  if (level == kNeon) return true;
#endif
  return level == kScalar;
}

// Settings are the settings, or an error of the environment.
struct Settings {
  int level, threads;
  Text wrong;  // empty: no error
};

// Quota is the lowest limit, in processors, of the cgroups from a path upwards; 0: none. Version 2 has both numbers in one
// file, version 1 in two.
class Quota {
 public:
  static int read() {
    int least = 0;
    FILE* f = fopen("/proc/self/cgroup", "re");
    char line[512];
    while (f && fgets(line, sizeof line, f)) {
      line[strcspn(line, "\n")] = 0;
      char* controllers = strchr(line, ':');
      char* path = controllers ? strchr(controllers + 1, ':') : nullptr;
      if (!path) continue;
      *path++ = 0, controllers++;
      if (!*controllers) least = smaller(least, climb("/sys/fs/cgroup", path, true));
      else if (has_cpu(controllers)) least = smaller(least, climb("/sys/fs/cgroup/cpu", path, false));
    }
    if (f) fclose(f);
    return least;
  }

 private:
  static int smaller(int a, int b) { return a == 0 || (b != 0 && b < a) ? b : a; }

  static bool has_cpu(const char* list) {
    for (const char* p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : nullptr)
      if (!strncmp(p, "cpu", 3) && (p[3] == ',' || !p[3])) return true;
    return false;
  }

  static int climb(const char* root, char* path, bool unified) {
    int least = 0;
    for (;;) {
      least = smaller(least, unified ? both(root, path) : apart(root, path));
      char* slash = strrchr(path, '/');
      if (!slash || !*path) return least;
      *slash = 0;
    }
  }

  static int both(const char* root, const char* path) {
    long long max, period;
    return numbers("%s%s/cpu.max", root, path, &max, &period) == 2 ? processors(max, period) : 0;
  }

  static int apart(const char* root, const char* path) {
    long long max, period, none;
    if (numbers("%s%s/cpu.cfs_quota_us", root, path, &max, &none) != 1) return 0;
    return numbers("%s%s/cpu.cfs_period_us", root, path, &period, &none) == 1 ? processors(max, period) : 0;
  }

  // numbers reads up to two numbers and returns how many it has read; "max" is not a number.
  AITER_PRINTF(1, 0) static int numbers(const char* format, const char* root, const char* path, long long* a, long long* b) {
    char name[600];
    if (snprintf(name, sizeof name, format, root, path) >= int(sizeof name)) return 0;
    FILE* f = fopen(name, "re");
    if (!f) return 0;
    const int n = fscanf(f, "%lld %lld", a, b);
    fclose(f);
    return n;
  }

  static int processors(long long max, long long period) {
    if (max <= 0 || period <= 0) return 0;
    const long long n = (max + period - 1) / period;
    return n > kMostThreads ? kMostThreads : int(n);
  }
};

// Processors is an affinity mask of up to 8192 processors.
struct Processors {
  unsigned long bits[8192 / (8 * sizeof(unsigned long))];

  // of_process reads the mask of the process's first thread; other threads may have fewer processors.
  bool of_process() { return sched_getaffinity(getpid(), sizeof bits, reinterpret_cast<cpu_set_t*>(bits)) == 0; }
  void apply() const { sched_setaffinity(0, sizeof bits, reinterpret_cast<const cpu_set_t*>(bits)); }
  int count() const {
    int n = 0;
    for (unsigned long word : bits) n += __builtin_popcountl(word);
    return n;
  }
};

inline int usable_threads() {
  Processors mask = {};
  int n = mask.of_process() ? mask.count() : 1;
  const int quota = Quota::read();
  if (quota && quota < n) n = quota;
  return n < 1 ? 1 : n > kMostThreads ? kMostThreads : n;
}

inline int best_level() {
  int best = kScalar;
  for (int level = 0; level < kLevels; level++)
    if (has(level)) best = level;
  return best;
}

inline void read_level(const char* value, Settings* s) {
  s->level = best_level();
  if (!value || !*value) return;
  for (int level = 0; level < kLevels; level++)
    if (!strcmp(value, level_name(level)) && has(level)) {
      s->level = level;
      return;
    }
  s->wrong.add("AITER_CPU_ISA: expected one of");
  for (int level = 0; level < kLevels; level++)
    if (has(level)) s->wrong.add(" %s", level_name(level));
  s->wrong.add(", which this processor has, got %.24s", value);
}

inline void read_threads(const char* value, Settings* s) {
  char* end = nullptr;
  const long n = value && *value ? strtol(value, &end, 10) : 0;
  if (!end) s->threads = usable_threads();
  else if (!*end && n >= 1 && n <= kMostThreads) s->threads = int(n);
  else s->wrong.add("AITER_NUM_THREADS: expected a number from 1 to %d, got %.24s", kMostThreads, value);
}

// Constant-initialised: no constructor runs.
struct SettingsOnce {
  pthread_once_t once = PTHREAD_ONCE_INIT;
  alignas(Settings) unsigned char memory[sizeof(Settings)] = {};
};
inline SettingsOnce settings_once;

inline Settings* settings_memory() { return reinterpret_cast<Settings*>(settings_once.memory); }

inline void read_settings() {
  Settings* s = settings_memory();
  *s = {kScalar, 1, Text()};
  read_level(getenv("AITER_CPU_ISA"), s);
  if (!s->wrong.len) read_threads(getenv("AITER_NUM_THREADS"), s);
}

inline const Settings& settings() {
  pthread_once(&settings_once.once, read_settings);
  return *settings_memory();
}

// check_settings returns an error if the environment is wrong.
inline Status check_settings() {
  const Settings& s = settings();
  return s.wrong.len ? runtime_error("%s", s.wrong.data) : Status();
}

}  // namespace aiter::cpu
