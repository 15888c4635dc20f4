#include "cli/job/placement.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cli/job/job_display.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "proto/config.pb.h"

namespace muster {

std::string RangesText(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ",";
    text += end == i + 1 ? std::to_string(numbers[i])
                         : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return text.empty() ? "-" : text;
}

std::string CoresOf(pid_t pid) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (pid <= 0 || ::sched_getaffinity(pid, sizeof set, &set) != 0) return "-";
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return RangesText(cores);
}

std::vector<std::string> PlacementLines(const events::Started& started,
                                        const std::function<std::string(pid_t)>& cores_of,
                                        std::span<const WorkerPlace> places) {
  std::vector<TextTable::Column> columns{{"rank", true}, {"host"},          {"pid", true},
                                         {"device"},     {"threads", true}, {"cores"}};
  if (!places.empty()) {
    columns.insert(columns.end(), {{"memory", true}, {"name"}, {"UUID"}});
  }
  TextTable table(columns);
  for (const events::Started::Worker& worker : started.workers()) {
    std::vector<std::string> row{
        std::to_string(worker.rank()),    worker.host(),
        std::to_string(worker.pid()),     "cpu",
        std::to_string(worker.threads()), cores_of(static_cast<pid_t>(worker.pid()))};
    const std::string kind = DeviceKind(worker);
    if (kind == "card") row[3] = kind;  // which of them is known of those that a job took
    if (worker.rank() < places.size()) {
      const Gpu& gpu = places[worker.rank()].gpu;
      row[3] = kind == "cpu" ? "cpu" : "card " + gpu.index;
      row.insert(row.end(),
                 {FormatBytes(static_cast<double>(gpu.total_bytes)), gpu.name, gpu.uuid});
    }
    table.AddRow(std::move(row));
  }
  return table.Lines();
}

std::string DeviceKind(const events::Started::Worker& worker) {
  if (worker.arithmetic().empty()) return "";
  // As worker/backend/cpu/cpu_arithmetic.cc words it.
  return worker.arithmetic().starts_with("oneDNN ") ? "cpu" : "card";
}

bool AreOnGpus(const events::Started& started) {
  return std::ranges::any_of(started.workers(), [](const events::Started::Worker& worker) {
    return DeviceKind(worker) == "card";
  });
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
