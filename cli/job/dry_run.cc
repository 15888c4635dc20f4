#include "cli/job/dry_run.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/job/memory_check.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "cli/text/wrapped.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/config/config_check.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/plan/count_limits.h"
#include "common/plan/slices.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr uint32_t kMostRanks = 32;
constexpr const char* kEnd = "Dry run: nothing was started or written.";

std::string RangeText(const Range& range) {
  if (range.size() == 1) return std::to_string(range.begin);
  return fmt::format("{} ... {}", range.begin, range.end - 1);
}

// The host of each rank.
std::vector<std::string> HostsOfRanks(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.insert(names.end(), host.slots, host.name);
  return names;
}

// A table with the slices of each rank and its number of samples in a full batch.
std::vector<std::string> RankLines(const config::Config& config, const std::vector<Host>& hosts) {
  const std::vector<std::string> names = HostsOfRanks(hosts);
  const std::string samples = SampleNoun(config) + std::string("s");
  const bool measured = config.cluster().shares() == config::Cluster::MEASURED;
  TextTable table({{"rank", true},
                   {names.empty() ? "device" : "host and device"},
                   {"threads", true},
                   {measured ? "slices at first" : "slices"},
                   {samples + " per step", true}});
  const uint32_t workers = config.cluster().workers();
  const int64_t slices = config.run().slices(), batch = ResolveBatch(config).global_batch;
  const Assignment assignment = FirstAssignment(config);
  const bool cuda = config.worker().backend() == config::Worker::CUDA;
  const std::string device = cuda ? "cuda" : "cpu";
  for (uint32_t rank = 0; rank < std::min(workers, kMostRanks); ++rank) {
    const Range mine = assignment.SlicesOf(rank).front();
    const int64_t count =
        EvenPart(batch, slices, mine.end - 1).end - EvenPart(batch, slices, mine.begin).begin;
    table.AddRow({std::to_string(rank), names.empty() ? device : names.at(rank) + ", " + device,
                  FormatCount(int64_t{config.worker().threads()}), RangeText(mine),
                  batch > 0 ? FormatCount(count) : "-"});
  }
  std::vector<std::string> lines = table.Lines();
  if (workers > kMostRanks) lines.push_back(fmt::format("  ... and {} more", workers - kMostRanks));
  return lines;
}

std::vector<std::string> LengthLines(const config::Config& config, const Graph& graph,
                                     const DataCount& data) {
  const auto row = [](const std::string& label, const std::string& text) {
    return fmt::format("  {:<18} {}", label, text);
  };
  const std::string samples = SampleNoun(config) + std::string("s");
  if (!data.problem.empty()) {
    std::vector<std::string> lines = WrappedRow(row(samples, "unknown: " + data.problem), 80);
    lines.push_back(
        row("steps per epoch", fmt::format("unknown: {} / global_batch, rounded {}", samples,
                                           config.run().drop_last() ? "down" : "up")));
    lines.push_back(row("steps in total",
                        config.run().has_steps() ? FormatCount(config.run().steps()) : "unknown"));
    return lines;
  }
  const StepPlan plan = PlanSteps(config, data.train);
  const std::string trouble = CountTrouble(plan, data.test, config.evaluation().batch());
  if (!trouble.empty()) throw Error(ExitCode::kUsage, trouble);
  CheckBatchNorms(graph, plan);
  const std::string validation =
      data.validation > 0 ? FormatCount(data.validation) + " for validation, " : "";
  std::vector<std::string> lines{
      row(samples, fmt::format("{} for training, {}{} for testing", FormatCount(data.train),
                               validation, FormatCount(data.test))),
      row("steps per epoch", FormatCount(plan.StepsPerEpoch())),
      row("steps in total", FormatCount(plan.total_steps))};
  if (MeasuresNormalization(config.data())) {
    lines.push_back(row("mean and stddev", "would be measured on the training set"));
  }
  return lines;
}

std::vector<std::string> MemoryLines(const std::string& process, const std::vector<MemoryRow>& rows,
                                     bool on_card = false) {
  std::vector<std::string> lines{
      fmt::format("  {:<32} {:>9}", process, FormatBytes(on_card ? SumOfCard(rows) : SumOf(rows)))};
  for (const MemoryRow& row : rows) {
    if ((row.holder == MemoryRow::Holder::kCard) != on_card) continue;
    lines.push_back(fmt::format("    {:<30} {:>9}", row.what, FormatBytes(row.bytes)));
  }
  return lines;
}

// Instead of steps and memory.
std::string ProgramLine(const config::Config& config) {
  const config::Run& run = config.run();
  std::vector<std::string> unknown{"variables", "data"};
  if (run.batch_case() == config::Run::BATCH_NOT_SET) unknown.emplace_back("batch");
  if (run.length_case() == config::Run::LENGTH_NOT_SET) unknown.emplace_back("epochs");
  if (!config.has_learning_rate()) unknown.emplace_back("learning rate");
  const std::string last = unknown.back();
  unknown.pop_back();
  return fmt::format("Only the program knows its {} and {}.", Join(unknown, ", "), last);
}

// The memory of all processes, with shared mappings counted once.
double JobMemory(const std::vector<MemoryRow>& server, const std::vector<MemoryRow>& worker,
                 uint32_t workers) {
  double sum = SumOf(server);
  for (const MemoryRow& row : worker) {
    if (row.holder == MemoryRow::Holder::kProcess) sum += workers * row.bytes;
    if (row.holder == MemoryRow::Holder::kHost) sum += row.bytes;
  }
  return sum;
}

}  // namespace

std::vector<std::string> DryRunLines(const std::string& config_path, const config::Config& config,
                                     const Graph& graph,
                                     const std::vector<MemoryRow>& worker_memory,
                                     const std::string& shown_dir, HeaderOptions options,
                                     const std::vector<Host>& hosts) {
  options.cores = AvailableCores();
  options.all_of_bits = true;
  std::vector<std::string> lines = HeaderLines(config_path, config, graph, shown_dir, options);
  const auto add = [&](const std::vector<std::string>& more) {
    lines.insert(lines.end(), more.begin(), more.end());
  };
  lines.push_back("");
  add(RankLines(config, hosts));
  lines.push_back("");
  if (HasProgram(config)) {
    lines.insert(lines.end(), {ProgramLine(config), "", kEnd});
    return lines;
  }
  add(LengthLines(config, graph, options.data));
  lines.push_back("");
  lines.push_back("memory (plus about 12 MB of code and libraries of the server):");
  const uint32_t workers = config.cluster().workers();
  const std::vector<MemoryRow> server_memory = ServerMemory(config, graph);
  add(MemoryLines("server", server_memory));
  if (!hosts.empty()) {
    lines.push_back("  `muster launch --dry-run` on a worker's host shows that of its workers");
  } else {
    add(MemoryLines(workers == 1 ? "worker" : "each worker, about", worker_memory));
    lines.push_back(fmt::format("  {:<32} {:>9}", "total, shared parts counted once",
                                FormatBytes(JobMemory(server_memory, worker_memory, workers))));
  }
  if (SumOfCard(worker_memory) > 0) {  // the driver's part is unknown until it is loaded
    add(MemoryLines("on the GPU, for each worker", worker_memory, /*on_card=*/true));
    lines.push_back("    plus a few hundred MB for the driver");
  }
  lines.push_back("");
  lines.push_back(kEnd);
  return lines;
}

}  // namespace muster
