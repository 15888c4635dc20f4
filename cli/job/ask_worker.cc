#include "cli/job/ask_worker.h"

#include <nlohmann/json.hpp>

#include "cli/process/held_file.h"
#include "cli/process/json_program.h"
#include "common/base/error.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

MemoryRow ParseRow(const nlohmann::json& json) {
  using Holder = MemoryRow::Holder;
  const auto what = json.find("what"), bytes = json.find("bytes"), holder = json.find("holder");
  const auto text = [&](const auto& field) { return field != json.end() && field->is_string(); };
  if (!text(what) || !text(holder) || bytes == json.end() || !bytes->is_number()) {
    throw Error(ExitCode::kFailure,
                "muster-worker --memory: expected what, bytes and holder, got {}: are muster and "
                "muster-worker of one build?",
                json.dump());
  }
  const auto name = holder->get<std::string>();
  return {what->get<std::string>(), bytes->get<double>(),
          name == "server" ? Holder::kServer
          : name == "host" ? Holder::kHost
          : name == "card" ? Holder::kCard
                           : Holder::kProcess};
}

}  // namespace

std::vector<MemoryRow> AskWorkerMemory(const std::string& worker_program,
                                       const config::Config& config, uint32_t rank) {
  const HeldFile held = HeldFile::OfText(ConfigText(config));
  const std::vector<std::string> words{"--config", held.path(), "--rank", std::to_string(rank),
                                       "--memory"};
  std::vector<MemoryRow> rows;
  for (const auto& json : RunJsonProgram(worker_program, words, config.deadlines().start_s())) {
    rows.push_back(ParseRow(json));
  }
  return rows;
}

}  // namespace muster
