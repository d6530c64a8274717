// The launch parameters of a call: values that a measurement on the user's device chose, in place of an operator's own plan.
//
//   tune.threads = { values = [1, 2, 4], targets = ["cpu"] }      # of the operator in the configuration
//   const int64_t threads = tuned("threads", plan_threads(p));    // in its code, on the thread of the call
//
// The values are of a class of shapes, so an operator must take any declared value for any problem: where a value does not fit, it
// keeps its plan.
#pragma once

#include <stdint.h>
#include <string.h>

namespace aiter {

struct LaunchParam {
  const char* name;
  int64_t value;
};
struct LaunchParams {
  int64_t count;
  const LaunchParam* list;
  uint8_t* read;  // null, or set to 1 for each that the call reads: a search varies only those
};

}  // namespace aiter

// The support library's function: the values of the running call, null for none. In Python it is absent.
extern "C" __attribute__((weak)) const void* aiter_launch_params();

namespace aiter {

// tuned returns the value chosen for a launch parameter, otherwise the plan's.
inline int64_t tuned(const char* name, int64_t plan) {
  if (!aiter_launch_params) return plan;
  const auto* p = static_cast<const LaunchParams*>(aiter_launch_params());
  for (int64_t i = 0; p && i < p->count; i++)
    if (!strcmp(p->list[i].name, name)) {
      if (p->read) p->read[i] = 1;
      return p->list[i].value;
    }
  return plan;
}

// tuned_among returns the value chosen for a launch parameter if it is one of some, otherwise the plan's.
template <class... N> int64_t tuned_among(const char* name, int64_t plan, N... values) {
  const int64_t chosen = tuned(name, plan);
  return ((chosen == values) || ...) ? chosen : plan;
}

}  // namespace aiter
