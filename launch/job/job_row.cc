#include "launch/job/job_row.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/base/utf8.h"
#include "launch/text/wrapped.h"

namespace muster {
namespace {

constexpr int kWidth = 80;  // of any terminal and of most log viewers

}  // namespace

void Fit(std::vector<std::string>& lines) {
  std::vector<std::string> fitted;
  for (const std::string& line : lines) {
    const bool title = fitted.empty();
    for (std::string& part :
         WrappedRow(line, title ? std::max<int>(kWidth, std::ssize(line)) : kWidth))
      fitted.push_back(std::move(part));
  }
  lines = std::move(fitted);
}

std::string Row(const std::string& label, const std::string& text) {
  return fmt::format("  {:<14} {}", label, Shown(text));
}

}  // namespace muster
