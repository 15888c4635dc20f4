#include "ps/run/convolution_choices.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/link/protocol.h"

namespace muster {

void ConvolutionChoices::Restore(const checkpoint::Arithmetic& kept) {
  const int count = std::min(kept.worker_size(), kept.convolutions_size());
  for (int i = 0; i < count; ++i) before_[kept.worker(i)] = kept.convolutions(i);
}

void ConvolutionChoices::Keep(checkpoint::Arithmetic& state) const {
  for (const std::string& arithmetic : state.worker()) {
    const auto found = choices_.find(arithmetic);
    state.add_convolutions(found == choices_.end() ? "" : found->second.line);
  }
}

ConvolutionChoices::Taken ConvolutionChoices::Take(const std::string& who,
                                                   const std::string& arithmetic,
                                                   const std::string& line) {
  if (line.size() > kMostConvolutionsBytes) {
    return {fmt::format("its convolution choices have {} bytes; expected at most {}", line.size(),
                        kMostConvolutionsBytes),
            ""};
  }
  constexpr size_t kMostKinds = 256;  // of processors and libraries in one job
  if (choices_.size() >= kMostKinds && !choices_.contains(arithmetic)) {
    return {fmt::format("it is the {}th kind of worker: expected at most {} kinds of processors "
                        "and libraries in one job",
                        kMostKinds + 1, kMostKinds),
            ""};
  }
  const auto [agreed, first] = choices_.try_emplace(arithmetic, Choice{line, who});
  if (!first) {
    if (agreed->second.line == line) return {};
    return {fmt::format(
                "it chose the convolutions \"{}\" but {} chose \"{}\", both on \"{}\". "
                "Use the same driver and libraries on all workers, or set worker.convolution=GEMM",
                Printable(line), agreed->second.who, Printable(agreed->second.line), arithmetic),
            ""};
  }
  if (!line.empty()) LogInfo("{}", line);
  const auto kept = before_.find(arithmetic);
  if (kept == before_.end() || kept->second == line) return {};
  return {"", fmt::format("convolutions changed from \"{}\" to \"{}\": the result is equally good, "
                          "but its bits may differ from an uninterrupted run",
                          kept->second, line)};
}

}  // namespace muster
