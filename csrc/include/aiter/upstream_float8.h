// The 8-bit floats of a device, for aiter/upstream.h.
#pragma once

#include <hip/hip_runtime.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace aiter::upstream {

// Float8 is the e4m3 type of which a device converts elements: on others than these AIter's conversions compile, and result in zeros.
enum class Float8 : int8_t { kUnknown, kNone, kFN, kFNUZ };

// float8_of returns float8_e4m3fnuz on gfx940 to gfx942, float8_e4m3fn on gfx950 and gfx12.
inline Float8 float8_of(int device) {
  static std::atomic<Float8> known[64];
  const bool keep = unsigned(device) < 64;
  if (keep && known[device] != Float8::kUnknown) return known[device];
  hipDeviceProp_t properties;
  if (hipGetDeviceProperties(&properties, device) != hipSuccess) return Float8::kNone;
  const std::string_view family = std::string_view(properties.gcnArchName).substr(0, 5);
  const Float8 is = family == "gfx94" ? Float8::kFNUZ : family == "gfx95" || family == "gfx12" ? Float8::kFN : Float8::kNone;
  if (keep) known[device] = is;
  return is;
}

}  // namespace aiter::upstream
