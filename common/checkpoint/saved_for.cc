#include "common/checkpoint/saved_for.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <filesystem>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/read_text.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/run_mark.h"
#include "common/config/text_format.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Says nothing of what it does not know: that may be of another version, and is not asked for.
struct Unheard : google::protobuf::io::ErrorCollector {
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

bool IsSamePath(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code error;
  return fs::absolute(a).lexically_normal() == fs::absolute(b).lexically_normal() ||
         fs::equivalent(a, b, error);
}

// The directory that the mark names still has the run: by its id, or, without one, by a config that
// names this folder.
bool IsStillThere(const SavedFor& mark, const std::string& folder) {
  const std::string id = RunIdOf(mark.run_dir);
  if (!id.empty()) return id == mark.run_id;
  return IsSamePath(PlacesInConfigOf(mark.run_dir).save_to, folder);
}

}  // namespace

std::optional<SavedFor> SavedForIn(const std::string& folder) {
  const std::string text = ReadFileIfThere(folder + "/" + kSavedForFile);
  const size_t end = text.find('\n');
  if (end == std::string::npos || text.back() != '\n') return std::nullopt;
  SavedFor mark{
      .run_id = text.substr(0, end),
      .run_dir = end + 1 < text.size() ? text.substr(end + 1, text.size() - end - 2) : ""};
  if (!IsRunId(mark.run_id) || !mark.run_dir.starts_with('/')) return std::nullopt;
  return mark;
}

bool KeepsThingsOf(const std::string& run_dir, const std::string& folder) {
  if (folder.empty()) return false;
  const std::optional<SavedFor> mark = SavedForIn(folder);
  if (!mark) return false;
  const std::string id = RunIdOf(run_dir);
  if (!id.empty() && id != mark->run_id) return false;
  if (IsSamePath(mark->run_dir, run_dir)) return true;
  const bool is_moved = !id.empty() || IsSamePath(PlacesInConfigOf(run_dir).run_dir, mark->run_dir);
  return is_moved && !IsStillThere(*mark, folder);
}

std::string ThingOfARunIn(const std::string& folder) {
  std::error_code ignored;
  if (!ListCheckpoints(folder).empty() || !RunIdIn(CheckpointsFolder(folder)).empty())
    return "checkpoints";
  for (const char* const name : kModelFiles) {
    if (fs::exists(fs::path(folder) / name, ignored)) return name;
  }
  // Also the folder of a run's checkpoints, and one of these.
  for (const char* const name :
       {"metrics.jsonl", "repeat.json", "server.log", kRunIdFile, kStateFile}) {
    if (fs::exists(fs::path(folder) / name, ignored)) return name;
  }
  return "";
}

void MarkSavedFor(const std::string& folder, const SavedFor& run) {
  const std::optional<SavedFor> mark = SavedForIn(folder);
  if (mark == run) return;
  const bool is_own = mark && mark->run_id == run.run_id && KeepsThingsOf(run.run_dir, folder);
  if (const std::string thing = ThingOfARunIn(folder); !is_own && !thing.empty()) {
    throw Error(ExitCode::kFailure,
                "{}: the {} of another run {} there: choose another directory with --save-to",
                folder, thing, thing == "checkpoints" ? "are" : "is");
  }
  std::error_code ignored;  // the write says what is wrong
  fs::create_directories(folder, ignored);
  const std::string run_dir = fs::absolute(run.run_dir, ignored);  // as a server may not be told it
  WriteFileAtomically(folder + "/" + kSavedForFile, run.run_id + "\n" + run_dir + "\n");
}

ConfiguredPlaces PlacesInConfigOf(const std::string& run_dir) {
  google::protobuf::TextFormat::Parser parser;
  Unheard unheard;
  parser.RecordErrorsTo(&unheard);
  parser.AllowUnknownField(true);
  parser.SetRecursionLimit(kMostTextNesting);
  config::Config config;
  if (!parser.ParseFromString(ReadFileIfThere(run_dir + "/config.txtpb"), &config)) return {};
  return {config.run().dir(), config.checkpoint().save_to()};
}

}  // namespace muster
