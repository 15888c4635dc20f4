// Finds the weights that a command reads, and checks the file that it writes.
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
  bool last = false;     // --last
};

struct OpenedModel {
  std::string shown;  // the file, or the folder of the checkpoint
  HeldFile held;      // the file that is read, also for other processes
  SafetensorsReader file;
  std::string note;  // of a run's last weights: which are better; or ""
};

// `from` is a file, the folder of a checkpoint, or a run directory. In a run directory, the choice
// selects the file; the default is best.safetensors if a validation set chose it, otherwise
// model.safetensors or, if that is missing or older, the newest intact checkpoint. In a checkpoint,
// the default is what an evaluation uses: the average with evaluation.use_ema, otherwise the
// weights. Throws Error: kUsage for a choice that does not apply, kData if the file cannot be read
// or is damaged.
OpenedModel OpenModel(const std::string& from, const ModelChoice& choice);

// "runs/a/best.safetensors, step 390, the moving average of the weights"
std::string DescribeModel(const OpenedModel& model);

// Whether `path` is a model for OpenModel, not a config: a directory, a file with the name of a
// safetensors file, or a file that is not text.
bool IsModel(const std::string& path);

// Whether `path` is the folder of a checkpoint.
bool IsCheckpoint(const std::string& path);

// Writes the weights, or their average, to `path` in the form of a run's model.safetensors.
// Verifies what it reads. Throws Error: kData; kUsage if this version lays out the network
// differently; kFailure.
void WriteCheckpointModel(const CheckpointReader& checkpoint, bool average,
                          const std::string& path);

// Throws Error(kUsage) if `path` cannot be the name of a file, or if it exists and `force` is not
// set, because weights may be a day's work.
void CheckOutputFile(const std::string& path, bool force);

// Checks run.initial_weights before anything starts. Returns lines for the header with the file and
// the variables that are skipped; empty without initial weights. Throws Error: kData for variables
// that do not match or are not finite, kUsage for a directory.
std::vector<std::string> DescribeInitialWeights(const config::Run& run, const Graph& graph);

}  // namespace muster
