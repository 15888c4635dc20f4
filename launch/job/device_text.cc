#include "launch/job/device_text.h"

#include <fmt/core.h>

#include <map>

#include "launch/job/job_display.h"
#include "proto/config.pb.h"

namespace muster {

std::string DeviceKind(const events::Started::Worker& worker) {
  if (worker.arithmetic().empty()) return "";
  // As worker/backend/cpu/cpu_arithmetic.cc words it.
  return worker.arithmetic().starts_with("oneDNN ") ? "cpu" : "card";
}

std::vector<std::string> DeviceTexts(const config::Config& config, const events::Started& started) {
  if (config.worker().backend() != config::Worker::CUDA) return {};
  std::map<std::string, std::vector<uint32_t>> ranks_of;
  std::map<std::string, std::string> kind_of;
  for (const events::Started::Worker& worker : started.workers()) {
    if (worker.arithmetic().empty()) continue;
    ranks_of[worker.arithmetic()].push_back(worker.rank());
    kind_of[worker.arithmetic()] = DeviceKind(worker);
  }
  std::vector<std::string> lines;
  for (const auto& [arithmetic, ranks] : ranks_of) {
    const std::string who = ranks_of.size() == 1 ? "all workers" : RankList(ranks);
    const bool one = ranks_of.size() > 1 && ranks.size() == 1;
    if (kind_of[arithmetic] == "cpu") {
      lines.push_back(fmt::format(
          "Warning: worker.backend=CUDA, but {} {} on the CPU, with {} (worker.soft_placement): {} "
          "why",
          who, one ? "computes" : "compute", arithmetic, one ? "its log says" : "their logs say"));
    } else {
      lines.push_back(fmt::format("Computing on {}{}", arithmetic,
                                  ranks_of.size() == 1 ? "" : fmt::format(" ({})", who)));
    }
  }
  return lines;
}

}  // namespace muster
