#include "rocm_ops.hpp"
#include "aiter_stream.h"
#include "plain.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  AITER_SET_STREAM_PYBIND
  PLAIN_PYBIND;
}
