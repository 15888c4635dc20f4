// panel_product_wide.h, compiled for AVX-512 (F, VL, DQ). Used only by panel_product.cc.
#pragma once

#include <cstdint>

namespace muster::cpu {

void MultiplyPanelsAvx512(const float* a, int64_t a_panel, const float* b, int64_t b_panel,
                          float* out, int64_t out_panel, int64_t rows, int64_t channels,
                          int64_t panels, bool first);
void AddOuterPanelsAvx512(const float* a, int64_t a_panel, const float* b, int64_t b_panel,
                          float* sums, int64_t row, int64_t rows, int64_t outputs, int64_t panels,
                          bool first);

}  // namespace muster::cpu
