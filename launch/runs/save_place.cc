#include "launch/runs/save_place.h"

#include <fmt/core.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/error.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/checkpoint/run_mark.h"
#include "common/model/model_metadata.h"
#include "common/tensors/safetensors_reader.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return file.eof() ? "" : line;  // without its end it is no line
}

// Says nothing of what it does not know: that may be of another version, and is not asked for.
struct Unheard : google::protobuf::io::ErrorCollector {
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

uintmax_t SizeOf(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

}  // namespace

SavePlace SavePlaceOf(const std::string& run_dir) {
  std::ostringstream text;
  text << std::ifstream(run_dir + "/config.txtpb").rdbuf();
  google::protobuf::TextFormat::Parser parser;
  Unheard unheard;
  parser.RecordErrorsTo(&unheard);
  parser.AllowUnknownField(true);
  config::Config config;
  if (!parser.ParseFromString(text.str(), &config)) return {};
  return {config.run().dir(), config.checkpoint().save_to(), RunIdOf(run_dir)};
}

bool HasCheckpointsElsewhere(const std::string& run_dir, const SavePlace& place) {
  if (place.folder.empty() || ListCheckpoints(place.folder).empty()) return false;
  const std::string here = RunIdOf(run_dir), there = RunIdOf(place.folder);
  if (!here.empty() && !there.empty()) return here == there;
  try {
    const checkpoint::State state = NewestState(place.folder);
    if (!here.empty()) return here == state.run_id();
    const std::string of = ParseKeptConfig(state.config()).run().dir();
    return of == place.run_dir || of == fs::absolute(run_dir).lexically_normal();
  } catch (const Error&) {  // damaged: the server names what is wrong
    return true;
  }
}

std::string NewestPlace(const std::string& run_dir, const SavePlace& place) {
  const std::vector<CheckpointName> here = ListCheckpoints(run_dir);
  if (!HasCheckpointsElsewhere(run_dir, place)) return here.empty() ? "" : run_dir;
  const std::vector<CheckpointName> there = ListCheckpoints(place.folder);
  return !here.empty() && there.front() <= here.front() ? run_dir : place.folder;
}

std::string RunThatSavesTo(const std::string& folder) {
  try {
    const config::Config config = ParseKeptConfig(NewestState(folder).config());
    const std::string& run = config.run().dir();
    std::error_code ignored;
    const bool saves = fs::equivalent(config.checkpoint().save_to(), folder, ignored) &&
                       !fs::equivalent(run, folder, ignored);
    if (!saves || !fs::exists(run + "/config.txtpb", ignored)) return "";
    return HasCheckpointsElsewhere(run, SavePlaceOf(run)) ? run : "";
  } catch (const Error&) {
    return "";
  }
}

std::string ModelElsewhere(const SavePlace& place, const std::string& name) {
  if (place.folder.empty()) return "";
  const std::string path = place.folder + "/" + name;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return "";
  const std::string there = RunIdOf(place.folder);
  if (!place.run_id.empty() && !there.empty()) return place.run_id == there ? path : "";
  try {
    const auto config = ConfigOf(SafetensorsReader(path).header().metadata, path);
    return config && config->run().dir() == place.run_dir ? path : "";
  } catch (const Error&) {  // it may be anybody's
    return "";
  }
}

std::string MetricsElsewhere(const std::string& run_dir, const SavePlace& place) {
  if (place.folder.empty()) return "";
  const std::string here = run_dir + "/metrics.jsonl", there = place.folder + "/metrics.jsonl";
  if (SizeOf(there) <= SizeOf(here)) return "";
  // A line has its time: no two runs have the same one.
  const std::string first = FirstLine(here);
  if (!first.empty()) return first == FirstLine(there) ? there : "";
  return HasCheckpointsElsewhere(run_dir, place) ? there : "";
}

std::string IfGone(const SavePlace& place) {
  std::error_code ignored;
  if (place.folder.empty() || fs::is_directory(place.folder, ignored)) return "";
  return fmt::format(
      "; {} (checkpoint.save_to), where what the run directory cannot take goes, is not there",
      place.folder);
}

}  // namespace muster
