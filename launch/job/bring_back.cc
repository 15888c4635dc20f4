#include "launch/job/bring_back.h"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <span>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/plain_file.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/run_mark.h"
#include "common/checkpoint/saved_for.h"
#include "common/model/model_metadata.h"
#include "common/model/whole_file.h"
#include "common/tensors/safetensors_reader.h"
#include "launch/job/resume_place.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

void CopyWhole(const fs::path& from, const fs::path& to) {
  constexpr size_t kPiece = 1 << 20;
  std::ifstream in = ReadPlainFile(from);
  std::error_code error;
  AtomicFile out(to, fs::file_size(from, error));
  for (std::string piece(kPiece, '\0'); in.read(piece.data(), kPiece) || in.gcount() > 0;) {
    out.Write(std::as_bytes(std::span(piece).first(static_cast<size_t>(in.gcount()))));
  }
  if (!in.eof()) throw Error(ExitCode::kFailure, "{}: cannot be read", from.string());
  out.Commit();
}

// A folder without the mark of its run gets it.
void MarkRunIn(const std::string& folder, const std::string& run_id) {
  if (RunIdIn(folder).empty()) WriteFileAtomically(folder + "/" + kRunIdFile, run_id);
}

// As the server writes one: its name comes last.
void CopyCheckpoint(const CheckpointName& name, const SavePlace& place) {
  const std::string all = CheckpointsFolder(place.run_dir), to = all + "/" + name.Text(),
                    unfinished = to + ".partial";
  const std::string from = CheckpointsFolder(place.folder) + "/" + name.Text();
  try {
    fs::create_directories(unfinished);
    for (const char* const file : {kTensorFile, kStateFile}) {
      CopyWhole(fs::path(from) / file, fs::path(unfinished) / file);
    }
    SyncFolder(unfinished);
    const std::string run_id = ReadAnyState(from).run_id();
    MarkRunIn(all, run_id);
    fs::rename(unfinished, to);
    SyncFolder(all);
    MarkRunIn(place.run_dir, run_id);
  } catch (const std::exception& error) {  // the file system's, too
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw Error(ExitCode::kFailure, "{}", error.what());
  }
}

// One file of weights, in the run directory and in the folder.
struct TwoFiles {
  std::string here, there;
  bool is_here = false, is_there = false;
  std::string damage_here, damage_there;

  TwoFiles(const SavePlace& place, const std::string& name)
      : here(place.run_dir + "/" + name), there(place.folder + "/" + name) {
    std::error_code ignored;
    is_here = fs::exists(here, ignored);
    is_there = fs::exists(there, ignored);
    if (is_here) damage_here = DamageOf(here);
    if (is_there) damage_there = DamageOf(there);
  }
  // Whole, and the weights of this step.
  bool IsHere(int64_t step) const { return is_here && damage_here.empty() && StepIn(here) == step; }
  bool IsThere(int64_t step) const {
    return is_there && damage_there.empty() && StepIn(there) == step;
  }

 private:
  static int64_t StepIn(const std::string& path) {
    return StepOf(SafetensorsReader(path).header().metadata).value_or(0);
  }
};

// Tries to, and notes what became of it.
bool TryTo(const std::string& file, const std::string& there, BroughtBack& back,
           const std::function<void()>& copy) {
  try {
    copy();
    back.files.push_back(file);
    return true;
  } catch (const Error&) {
    back.elsewhere.push_back(there);
    return false;
  }
}

void BringMetrics(const SavePlace& place, BroughtBack& back) {
  const std::string there = MetricsElsewhere(place);
  if (there.empty()) return;
  TryTo("metrics.jsonl", there, back, [&] { CopyWhole(there, place.run_dir + "/metrics.jsonl"); });
}

// Other weights than those of this step are of an earlier end of the run.
void BringWeights(const SavePlace& place, const std::string& name, int64_t step,
                  BroughtBack& back) {
  const TwoFiles files(place, name);
  if (files.IsThere(step) && !files.IsHere(step)) {
    const bool copied = TryTo(name, files.there, back, [&] { CopyWhole(files.there, files.here); });
    if (copied && !files.damage_here.empty()) {
      back.mended.push_back(
          fmt::format("{}; it is written again from {}", files.damage_here, files.there));
    }
  } else if (!files.damage_there.empty() && files.IsHere(step)) {
    try {
      CopyWhole(files.here, files.there);
      back.mended.push_back(
          fmt::format("{}; it is written again from {}", files.damage_there, files.here));
    } catch (const Error& error) {
      back.mended.push_back(fmt::format("{}; {} is whole", files.damage_there, files.here));
    }
  }
}

}  // namespace

void BringBackMetrics(const SavePlace& place) {
  BroughtBack ignored;
  BringMetrics(place, ignored);
}

BroughtBack BringBack(const SavePlace& place, const std::map<std::string, int64_t>& weights) {
  BroughtBack back;
  if (!KeepsThingsOf(place.run_dir, place.folder)) return back;
  BringMetrics(place, back);
  for (const char* const name : kModelFiles) {
    if (const auto found = weights.find(name); found != weights.end()) {
      BringWeights(place, name, found->second, back);
    }
  }
  if (NewestPlace(place) == place.folder) {
    const CheckpointName name = ListCheckpoints(place.folder).front();
    const std::string config = KeptConfigFile(place);
    TryTo("checkpoints/" + name.Text(), CheckpointsFolder(place.folder) + "/" + name.Text(), back,
          [&] {
            WriteFileAtomically(place.run_dir + "/config.txtpb", config);
            CopyCheckpoint(name, place);
          });
  }
  return back;
}

}  // namespace muster
