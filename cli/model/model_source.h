// Which weights a command is about, and the file that it is asked to write.
#pragma once

#include <string>
#include <vector>

#include "cli/process/held_file.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/graph/graph.h"
#include "common/tensors/safetensors_reader.h"
#include "proto/config_fwd.h"

namespace muster {

struct ModelChoice {
  bool average = false;  // --ema
  bool raw = false;      // --raw
  bool best = false;     // --best
};

struct OpenedModel {
  std::string shown;  // the file, or the folder of the checkpoint
  HeldFile held;      // what is read, for other processes
  SafetensorsReader file;
};

// `from`: a file, the folder of a checkpoint, or a run directory. Of a run directory the choice
// tells the file; without one it is model.safetensors, or, where that is missing or older, the
// newest checkpoint that is whole. Of a checkpoint it is what an evaluation uses: the average with
// evaluation.use_ema, else the weights. Throws Error: kUsage for a choice that does not fit, kData
// if it cannot be read, or is damaged.
OpenedModel OpenModel(const std::string& from, const ModelChoice& choice);

// "runs/a/best.safetensors, step 390, the moving average of the weights"
std::string DescribeModel(const OpenedModel& model);

// Whether `path` is to be opened with OpenModel, and not read as a config: a directory, a file with
// the name of a safetensors file, or one that is not a text.
bool IsModel(const std::string& path);

// Whether it is the folder of a checkpoint.
bool IsCheckpoint(const std::string& path);

// Writes the weights, or their average, to `path` as a run writes model.safetensors. All of what it
// reads is checked. Throws Error: kData, kUsage where the network is not one of this version's,
// kFailure.
void WriteCheckpointModel(const CheckpointReader& checkpoint, bool average,
                          const std::string& path);

// Throws Error(kUsage), before any work is done, if `path` is not the name of a file, or if
// something is there already and `force` does not say that it may go: weights may be a day's work.
void CheckOutputFile(const std::string& path, bool force);

// What a run would start from (run.initial_weights), looked through before anything starts: lines
// for the header with the file and what of it is skipped. Empty without initial weights. Throws
// Error: kData that names what does not fit or is not finite, kUsage for a directory.
std::vector<std::string> DescribeInitialWeights(const config::Run& run, const Graph& graph);

}  // namespace muster
