#include "cli/hosts/trace_parts.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/trace/session.h"

namespace muster {
namespace {

constexpr size_t kPieceBytes = 1 << 18;

}  // namespace

TraceParts::TraceParts(config::Config& config) : wanted_(!config.run().trace_file().empty()) {
  if (!wanted_) return;
  try {
    config.mutable_run()->set_dir(folder_.emplace().path());
  } catch (const Error&) {  // training goes on, and the launcher says that the part is missing
    config.mutable_run()->clear_trace_file();
  }
  config_ = config;
}

void TraceParts::Take(int rank) {
  if (!wanted_) return;
  const std::string path = trace::PartPath(config_, fmt::format("worker-{}", rank));
  parts_.push_back({rank, std::ifstream(path)});
  std::error_code none;  // its replacement may be killed before it writes another one
  std::filesystem::remove(path, none);
}

std::optional<nlohmann::json> TraceParts::Next() {
  if (parts_.empty()) return std::nullopt;
  Part& part = parts_.front();
  std::string text;
  for (std::string line; text.size() < kPieceBytes && std::getline(part.file, line);) {
    text += line + "\n";
  }
  const bool last = text.size() < kPieceBytes;
  nlohmann::json message{{"trace", std::move(text)}, {"rank", part.rank}, {"last", last}};
  if (last) parts_.pop_front();
  return message;
}

}  // namespace muster
