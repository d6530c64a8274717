// Assembly code objects of AIter, which the library contains. aiter/upstream.h names this header to AIter's aiter_hip_common.h, whose
// AiterAsmKernel then loads them from the library instead of the folder AITER_ASM_DIR. The link of a module that declares
// `assembly` makes the table aiter_code_objects.
//
// The macros at the end are for the rest of aiter_hip_common.h: its failures throw, and it writes nothing to the standard output of the
// process. aiter/upstream.h undefines them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

// The number of code objects, and a CodeObject for each, sorted by name (internal/codeobject/files.go).
extern "C" __attribute__((visibility("hidden"))) const unsigned char aiter_code_objects[];

namespace aiter::upstream {

// CodeObject has offsets from the start of the table. The name ends with a 0.
struct CodeObject {
  uint64_t name, start, size;
  const void* data() const { return aiter_code_objects + start; }
};

// CodeObjects is the table as AIter's loader uses a map: find never returns end().
struct CodeObjects {
  struct Found {
    CodeObject second;
    const Found* operator->() const { return this; }
    bool operator!=(const Found* end) const { return end != this; }
  };
  const Found* end() const { return nullptr; }

  // find finds "hsa/gfx942/gemm/gemm_64.co".
  Found find(const std::string& path) const {
    std::string name;  // relative to the folder of all architectures
    for (size_t i = path.find('/') + 1; i < path.size(); i++)
      if (path[i] != '/' || (!name.empty() && name.back() != '/')) name += path[i];
    uint64_t count;
    memcpy(&count, aiter_code_objects, sizeof count);
    for (uint64_t low = 0, high = count; low < high;) {
      const uint64_t middle = low + (high - low) / 2;
      CodeObject o;
      memcpy(&o, aiter_code_objects + sizeof count + middle * sizeof o, sizeof o);
      const int order = name.compare(reinterpret_cast<const char*>(aiter_code_objects) + o.name);
      if (order == 0) return Found{o};
      if (order < 0) high = middle;
      else low = middle + 1;
    }
    throw std::runtime_error("the library has no code object " + name + ", only " + std::to_string(count) +
                             " others: AIter's checkout had none for this GPU when the library was built; call the operator with other "
                             "sizes or types, or build the library from another checkout");
  }
};

inline constexpr CodeObjects code_objects{};

// failure is the text that AIter writes to the standard error before it ends the process.
inline std::ostringstream& failure() {
  thread_local std::ostringstream text;
  return text;
}

// message returns a text of AIter, "[AITER] FOLDER/FILE:LINE REASON", without the folder, which only one machine has.
inline std::string message(std::string text) {
  constexpr std::string_view mark = "[AITER] ";
  if (text.compare(0, mark.size(), mark) == 0) {
    text.erase(0, mark.size());
    const size_t slash = text.rfind('/', text.find(' '));
    if (slash != std::string::npos) text.erase(0, slash + 1);
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

[[noreturn]] inline void fail_as_aiter() {
  const std::string text = failure().str();
  throw std::runtime_error(text.empty() ? "AIter ended the call without a message" : text);
}

}  // namespace aiter::upstream

// AIter writes std::NAME for the names that the macros replace.
namespace std {
inline std::ostringstream& aiter_failure() { return ::aiter::upstream::failure(); }
[[noreturn]] inline void aiter_fail() { ::aiter::upstream::fail_as_aiter(); }
inline const char* aiter_no_folder(const char*) { return nullptr; }
}  // namespace std

#define AITER_EMBEDDED_HSA_MAP ::aiter::upstream::code_objects
#define cerr aiter_failure()
#define abort aiter_fail
#define getenv aiter_no_folder
#undef AITER_LOG_INFO
#define AITER_LOG_INFO(text) (void)0
