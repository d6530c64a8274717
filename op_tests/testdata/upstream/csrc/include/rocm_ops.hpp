// Functions of the modules, as AIter lists them for pybind11.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "aiter_tensor.h"

namespace py = pybind11;

#define AITER_SET_STREAM_PYBIND                                                                \
  m.def(                                                                                       \
      "_set_current_hip_stream",                                                               \
      [](int64_t stream_ptr) { aiter::setCurrentHIPStream((hipStream_t)stream_ptr); }, py::arg("stream_ptr"));

#define POS_ENCODING_PYBIND                                             \
  m.def("rotary_embedding_fwd", &rotary_embedding, "rotary_embedding"); \
  m.def("batched_rotary_embedding", &batched_rotary_embedding, "batched_rotary_embedding");

#define PLAIN_PYBIND                                                                                                             \
  py::enum_<Mode>(m, "Mode").value("slow", Mode::slow).export_values();                                                          \
  m.def("everything", &plain::everything, "all types", py::arg("out"), py::arg("x") = std::nullopt, py::arg("mode") = Mode::fast, \
        py::arg("name") = "auto", py::arg("list") = py::none(), py::arg("eps") = 1e-6, py::arg("scale") = 0.5f,                  \
        py::arg("wide") = static_cast<int64_t>(-1), py::arg("on") = true);                                                       \
  m.def("count", &plain::count, py::arg("n"));                                                                                   \
  m.def("scaled", &plain::scaled, "out = x * by + bias", py::arg("out"), py::arg("x"), py::arg("mode") = Mode::slow,              \
        py::arg("by") = 0.1f, py::arg("bias") = std::nullopt);
