#include "launch/gpu/gpus_text.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "launch/gpu/choice.h"
#include "launch/gpu/process_info.h"
#include "launch/gpu/usage_text.h"
#include "launch/text/text_table.h"
#include "launch/text/units.h"

namespace muster {
namespace {

using Json = nlohmann::json;

// As nvidia-smi counts: MiB.
std::string Mebibytes(uint64_t bytes) {
  return FormatCount(static_cast<int64_t>(bytes / (1024 * 1024)));
}

template <typename Number>
std::string OrDash(const std::optional<Number>& number, const char* unit) {
  return number ? fmt::format("{:.0f}{}", static_cast<double>(*number), unit) : "-";
}

std::vector<std::string> CardLines(const GpuSnapshot& seen,
                                   const std::vector<SeenTicket>& tickets) {
  TextTable table({{"card", true},
                   {"name"},
                   {"used", true},
                   {"free", true},
                   {"MiB", true},
                   {"busy", true},
                   {"temp", true},
                   {"power", true},
                   {"PCI"},
                   {"UUID"},
                   {"state"}});
  for (const Gpu& gpu : seen.gpus) {
    const bool held = HolderOf(tickets, gpu.uuid) != nullptr;
    const bool busy = !WhyBusy(gpu, 0).empty();
    table.AddRow({gpu.index, gpu.name, Mebibytes(gpu.used_bytes), Mebibytes(gpu.free_bytes),
                  Mebibytes(gpu.total_bytes), OrDash(gpu.utilization, " %"),
                  OrDash(gpu.temperature, " C"), OrDash(gpu.power_w, " W"), gpu.pci, gpu.uuid,
                  !gpu.trouble.empty() ? gpu.trouble
                  : held               ? "taken"
                  : busy               ? "busy"
                                       : "idle"});
  }
  return table.Lines();
}

std::string SinceText(const ProcessText& process) {
  return process.since ? ClockText(*process.since) : "-";
}

// Processes that compute or draw, and jobs that hold a card or wait for some.
std::vector<std::string> UserLines(const GpuSnapshot& seen,
                                   const std::vector<SeenTicket>& tickets) {
  TextTable table({{"card", true}, {"pid", true}, {"owner"}, {"MiB", true}, {"since"}, {"what"}});
  bool any = false;
  const auto add = [&](std::vector<std::string> row) {
    any = true;
    table.AddRow(std::move(row));
  };
  for (const Gpu& gpu : seen.gpus) {
    if (const SeenTicket* const job = HolderOf(tickets, gpu.uuid)) {
      add({gpu.index, std::to_string(job->text.pid), UserName(job->user), "-",
           ClockText(job->changed), "holds it: " + job->text.what});
    }
    for (const GpuProcess& process : gpu.processes) {
      const ProcessText text = DescribeProcess(process.pid);
      add({gpu.index, std::to_string(process.pid), text.seen ? text.user : "not seen from here",
           process.bytes ? Mebibytes(*process.bytes) : "-", SinceText(text),
           text.job.empty() ? text.command : text.job});
    }
  }
  for (const SeenTicket& job : tickets) {
    if (job.text.state == TicketState::kHolding) continue;
    add({"-", std::to_string(job.text.pid), UserName(job.user), "-", "-",
         fmt::format("waits for {}: {}", Plural(static_cast<int64_t>(job.text.wants), "card"),
                     job.text.what)});
  }
  return any ? table.Lines() : std::vector<std::string>{"Nobody uses them."};
}

template <typename Number>
Json OrNull(const std::optional<Number>& number) {
  return number ? Json(*number) : Json(nullptr);
}

Json ProcessJson(const GpuProcess& process) {
  const ProcessText text = DescribeProcess(process.pid);
  Json json{{"pid", process.pid},
            {"used_bytes", OrNull(process.bytes)},
            {"computes", process.computes},
            {"owner", text.seen ? Json(text.user) : Json(nullptr)},
            {"command", text.seen ? Json(text.command) : Json(nullptr)},
            {"job", text.job.empty() ? Json(nullptr) : Json(text.job)},
            {"since", OrNull(text.since)}};
  return json;
}

Json CardJson(const Gpu& gpu, const std::vector<SeenTicket>& tickets) {
  Json processes = Json::array();
  for (const GpuProcess& process : gpu.processes) processes.push_back(ProcessJson(process));
  const SeenTicket* const holder = HolderOf(tickets, gpu.uuid);
  const std::string why = WhyBusy(gpu, 0);
  return {{"index", gpu.index},
          {"uuid", gpu.uuid},
          {"name", gpu.name},
          {"pci", gpu.pci},
          {"total_bytes", gpu.total_bytes},
          {"free_bytes", gpu.free_bytes},
          {"used_bytes", gpu.used_bytes},
          {"utilization", OrNull(gpu.utilization)},
          {"temperature", OrNull(gpu.temperature)},
          {"power_w", OrNull(gpu.power_w)},
          {"power_limit_w", OrNull(gpu.power_limit_w)},
          {"ecc", OrNull(gpu.ecc)},
          {"ecc_uncorrected_errors", OrNull(gpu.ecc_errors)},
          {"exclusive", gpu.exclusive},
          {"idle", why.empty() && holder == nullptr},
          {"busy_because", why.empty() ? Json(nullptr) : Json(why)},
          {"held_by", holder == nullptr ? Json(nullptr) : Json(holder->text.pid)},
          {"processes", processes}};
}

}  // namespace

std::vector<std::string> GpusLines(const GpuSnapshot& seen,
                                   const std::vector<SeenTicket>& tickets) {
  if (seen.gpus.empty()) return {"No cards: " + seen.none};
  std::vector<std::string> lines = CardLines(seen, tickets);
  lines.push_back("");
  for (std::string& line : UserLines(seen, tickets)) lines.push_back(std::move(line));
  return lines;
}

Json GpusJson(const GpuSnapshot& seen, const std::vector<SeenTicket>& tickets) {
  Json json{{"driver", seen.driver}, {"gpus", Json::array()}, {"jobs", Json::array()}};
  if (seen.gpus.empty()) json["none"] = seen.none;
  for (const Gpu& gpu : seen.gpus) json["gpus"].push_back(CardJson(gpu, tickets));
  for (const SeenTicket& job : tickets) {
    json["jobs"].push_back({{"pid", job.text.pid},
                            {"owner", UserName(job.user)},
                            {"what", job.text.what},
                            {"holds", job.text.state == TicketState::kHolding},
                            {"wants", job.text.wants},
                            {"cards", job.text.cards},
                            {"since", job.changed}});
  }
  return json;
}

}  // namespace muster
