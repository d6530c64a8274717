#pragma once
#include <optional>
#include <string>
#include <vector>

#include "aiter_tensor.h"

enum class Mode : int { slow, fast = 3 };

namespace plain {
void everything(const aiter_tensor_t& out, std::optional<aiter_tensor_t> x, Mode mode, const std::string& name,
                std::optional<std::vector<int64_t>> list, double eps, float scale, int64_t wide, bool on);
int count(int n);
void scaled(aiter_tensor_t& out, const aiter_tensor_t& x, Mode mode, float by, std::optional<aiter_tensor_t> bias);
}  // namespace plain
