#include "rocm_ops.hpp"
#include "aiter_stream.h"
#include "pos_encoding.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  AITER_SET_STREAM_PYBIND
  POS_ENCODING_PYBIND;
}
