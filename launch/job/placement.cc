#include "launch/job/placement.h"

#include <fmt/core.h>
#include <sched.h>

#include <utility>

#include "launch/job/device_text.h"
#include "launch/text/text_table.h"
#include "launch/text/units.h"

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

}  // namespace muster
