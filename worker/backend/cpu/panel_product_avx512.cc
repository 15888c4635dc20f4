#include "worker/backend/cpu/panel_product_avx512.h"

#include "worker/backend/cpu/panel_product_wide.h"

namespace muster::cpu {

void MultiplyPanelsAvx512(const float* a, int64_t a_panel, const float* b, int64_t b_panel,
                          float* out, int64_t out_panel, int64_t rows, int64_t channels,
                          int64_t panels, bool first) {
  wide::MultiplyPanels(a, a_panel, b, b_panel, out, out_panel, rows, channels, panels, first);
}

void AddOuterPanelsAvx512(const float* a, int64_t a_panel, const float* b, int64_t b_panel,
                          float* sums, int64_t row, int64_t rows, int64_t outputs, int64_t panels,
                          bool first) {
  wide::AddOuterPanels(a, a_panel, b, b_panel, sums, row, rows, outputs, panels, first);
}

}  // namespace muster::cpu
